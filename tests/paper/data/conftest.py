"""Every test has empty data and cache folders; the real files only where it asks for them."""

import os
from pathlib import Path

import pytest

REAL = os.environ.get("LPUNITS_DATA", "")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that LPUNITS_DATA names, empty."""
    path = tmp_path / "data"
    path.mkdir()
    monkeypatch.setenv("LPUNITS_DATA", str(path))
    monkeypatch.setenv("LPUNITS_CACHE", str(tmp_path / "cache"))
    return path


@pytest.fixture(scope="session")
def real_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def real(
    folder: Path, real_cache: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path:
    """The folder of the real files, if it has those that the module names as NEEDS."""
    missing = [name for name in request.module.NEEDS if not (Path(REAL) / name).is_file()]
    if not REAL or missing:
        pytest.skip(f"needs the real data files: {', '.join(missing)} in LPUNITS_DATA")
    monkeypatch.setenv("LPUNITS_DATA", REAL)
    monkeypatch.setenv("LPUNITS_CACHE", str(real_cache))  # the tests that use it share a cache
    return Path(REAL)
