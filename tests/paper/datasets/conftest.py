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
def real(data: Path, real_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the real files, where there is one; the tests that use it share a cache."""
    if not REAL or not Path(REAL).is_dir():
        pytest.skip("needs the real data files: LPUNITS_DATA does not name a folder")
    monkeypatch.setenv("LPUNITS_DATA", REAL)
    monkeypatch.setenv("LPUNITS_CACHE", str(real_cache))
    return Path(REAL)
