"""The examples of the documentation write their files into a temporary folder."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each page in a folder of its own."""
    monkeypatch.chdir(tmp_path)
