"""A dataset from outside the package: registered by a script, and by an installed plugin."""

import os
import subprocess
import sys
from copy import copy
from pathlib import Path

import pytest

from lpunits.paper import data

WINE = """
import numpy as np
from sklearn.datasets import load_wine
from lpunits.paper import data

def load(*, seed=0):
    wine = load_wine()
    x = ((wine.data - wine.data.mean(0)) / wine.data.std(0)).astype(np.float32)
    rows = np.split(np.random.default_rng(seed).permutation(178), [106, 142])
    parts = [data.split(x[r], wine.target[r]) for r in rows]
    return WINE.dataset(*parts, classes=tuple(wine.target_names), shape=(13,), checksum="0" * 64)

WINE = data.Info("wine", "wines, 3 classes: 106 / 36 / 36", "embedded", "CC BY 4.0", "UCI", load)
"""


def test_a_script_registers_a_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "DATASETS", copy(data.DATASETS))
    script: dict[str, object] = {}
    exec(WINE, script)
    wine = script["WINE"]
    assert isinstance(wine, data.Info)
    for _ in range(2):  # a notebook's cell may be run again
        data.register(wine)
    assert len(data.load("wine", seed=3).train) == 106
    assert data.info("wine").present
    with pytest.raises(ValueError, match="wine has no option 'sed': it has seed"):
        data.load("wine", sed=3)
    mine = data.Info("mnist", "mine", "1 MB", "none", "here", wine.load)
    with pytest.raises(ValueError, match="the name 'mnist' belongs to another dataset"):
        data.register(mine)


def test_the_command_line_finds_the_dataset_of_an_installed_package(tmp_path: Path) -> None:
    """Installed means: a module and its metadata in a folder of the Python path."""
    (tmp_path / "cellar.py").write_text(WINE)
    metadata = tmp_path / "cellar-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: cellar\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[lpunits.datasets]\nwine = cellar:WINE\nmnist = cellar:WINE\nold = cellar:GONE\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    code = """
import runpy, sys
from lpunits.paper import data
assert data.info("mnist").name == "mnist"  # not replaced
try:
    data.info("old")
except ValueError as error:
    print(error)
del data.DATASETS["old"]
settings = "--scale smoke --set data=wine --set epochs=1 --records r"
for command in ("data", f"run mnist {settings} --work w", f"report mnist {settings} --out page"):
    sys.argv[1:] = command.split()
    try:
        runpy.run_module("lpunits", run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code
"""
    child = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "120"},
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert "the dataset 'old' cannot be imported: " in child.stdout
    assert "wines, 3 classes: 106 / 36 / 36" in child.stdout
    records = [record.read_text() for record in (tmp_path / "r").rglob("*.json")]
    assert records
    assert all('"data": "wine"' in record for record in records)
