"""Every test has a data folder and a cache folder of its own; the real files only where asked."""

import os
from pathlib import Path

import pytest

REAL = os.environ.get("LPUNITS_DATA", "")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that LPUNITS_DATA names, empty."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("LPUNITS_DATA", str(folder))
    monkeypatch.setenv("LPUNITS_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture(scope="session")
def real_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def real(
    data: Path, real_cache: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path:
    """The folder of the real files, if it has those that the module names as NEEDS."""
    missing = [name for name in request.module.NEEDS if not (Path(REAL) / name).is_file()]
    if not REAL or missing:
        pytest.skip(f"needs the real data files: {', '.join(missing)} in LPUNITS_DATA")
    monkeypatch.setenv("LPUNITS_DATA", REAL)
    monkeypatch.setenv("LPUNITS_CACHE", str(real_cache))  # the tests that use it share a cache
    return Path(REAL)
