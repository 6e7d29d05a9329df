"""Every reader against every hostile file of its kinds: one sentence that names the file.

A new reader joins by one line of READERS, a new file by one line of corpus.py.
"""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("optuna", reason="needs lpunits[paper]")

import torch

from hostile import models as models_of_networks
from hostile.corpus import FILES
from lpunits import sealed, sklearn
from lpunits.paper.data import covertype, fer2013, midi, mnist, music, sources, tfd
from lpunits.paper.fitting import folder, reading
from lpunits.paper.fitting.fit import prepare
from lpunits.paper.report.parts import collect
from lpunits.paper.report.section import Experiment, Section
from lpunits.paper.search.claims import shared
from lpunits.paper.search.study import open_storage, studies
from lpunits.paper.training import checkpoint, models
from lpunits.paper.training.records import Records
from lpunits.paper.training.trial import Trial
from paper.configs import Sum

EMPTY = "empty", "a byte", "another program's"  # databases that can be added to
TRIAL = Trial(Sum(needs=("curve",)), 0)


class Reader(NamedTuple):
    """What reads files.

    Args:
        name: What its file is called.
        kinds: The parts of the corpus that it is run against.
        read: The call.
        accepts: The files that make sense to it, or that it may ignore.
    """

    name: str
    kinds: tuple[str, ...]
    read: Callable[[Path], Any]
    accepts: tuple[str, ...] = ()


def report(path: Path) -> None:
    """A section that reads its outcomes without a check, as those of the experiments do."""
    experiment = Experiment(
        name="sums",
        title="Sums",
        about="",
        trials=lambda scale: [TRIAL],
        section=lambda results: Section(f"{sum(float(r.outcome['sum']) for r in results):.2f}"),
        minutes={},
    )
    if not collect([experiment], Records(path.parent), ("quick",)):
        raise ValueError(f"{path}: ignored")  # the record of another config, which is no harm


def restored(path: Path) -> None:
    if checkpoint.restore(path, {"net": torch.nn.Linear(1, 1)}, {}) is None:
        raise ValueError(f"{path}: ignored")  # it belongs to something else, which is no harm


def searches(path: Path) -> None:
    with open_storage(f"sqlite:///{path}") as opened:
        studies(opened)


def claims(path: Path) -> None:
    with shared(path.parent) as taken:
        taken.claim("a trial")


def kept(path: Path) -> None:
    """A cached file is never an error: it is made again."""
    arrays = sources.cached("kept", "key", lambda: {"x": torch.ones(2).numpy()})
    assert arrays["x"].tolist() == [1, 1]
    raise ValueError(f"{path}: made again")


@cache
def saved(kind: type) -> bytes:
    """The file of an estimator for two columns."""
    x = torch.rand(20, 2, dtype=torch.float64).numpy()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "weights"
        kind((2,), max_iter=1).fit(x, x[:, 0] > x[0].min()).save(path)
        return path.read_bytes()


def changed(path: Path) -> None:
    """An estimator that is right but for the facts that the file changes."""
    changes = json.loads(path.read_bytes())
    path.write_bytes(saved(sklearn.LpClassifier))
    tensors, facts = sealed.read(path)
    facts["parameters"] |= changes.pop("parameters", {})
    sealed.write(path, tensors, facts | changes)
    sklearn.load(path)


def fitted(path: Path) -> None:
    """A folder of ``lpunits fit``. Where the file is one of ours, its checksums are made right."""
    weights = saved(sklearn.LpRegressor)
    sha256 = hashlib.sha256(weights).hexdigest()
    name = f"{sha256[:16]}.safetensors"
    (path.parent / name).write_bytes(weights)
    if path.read_bytes().startswith(b'{"weights"'):
        content = json.loads(path.read_bytes())
        right = {"weights": name, "sha256": sha256}
        content |= {key: value for key, value in right.items() if content.get(key) == "HERE"}
        text = {"format": folder.FORMAT, "check": folder._check(content), "content": content}
        path.write_text(json.dumps(text))
    folder.load(path.parent)


READERS = {
    "record": Reader(f"{TRIAL.key}.json", ("anything", "records", "outcomes"), report),
    "findings": Reader(
        "findings.md", ("anything", "findings"), lambda p: Records(p.parent).findings(), ("empty",)
    ),
    "model": Reader("model.safetensors", ("anything", "models"), models.load_model),
    "checkpoint": Reader("checkpoint.safetensors", ("models",), restored),
    "cache": Reader("parsed/kept.safetensors", ("models",), kept),
    "estimator": Reader("a.safetensors", ("anything", "models"), sklearn.load),
    "estimator of changed facts": Reader("a.safetensors", ("estimators",), changed),
    "fitted model": Reader("model.json", ("anything", "folders", "records"), fitted),
    "table to fit": Reader(
        "table.csv",
        ("anything", "csv", "parquet", "npz", "music"),
        lambda p: prepare(reading.read(p), "target"),
    ),
    "midi": Reader("a.mid", ("anything", "midi"), midi.read_midi),
    "idx": Reader("a.gz", ("anything", "idx"), mnist.FILES[0].read),
    "covertype": Reader("covtype.data", ("anything", "idx", "csv"), covertype.read),
    "faces as npz": Reader("a.npz", ("anything", "npz"), fer2013.read),
    "faces as csv": Reader("a.csv", ("anything", "csv"), fer2013.read),
    "Toronto faces": Reader("a.mat", ("music",), tfd.read),
    "music of MATLAB": Reader("a.mat", ("music",), music.read),
    "music as pickle": Reader("a.pickle", ("music",), music.read),
    "claims": Reader(
        ".claims.db", ("anything", "databases"), claims, (*EMPTY, "tables without columns")
    ),
    "searches": Reader("studies.db", ("anything", "databases", "plans"), searches, EMPTY),
}
CASES = [
    (reader, kind, name)
    for reader, described in READERS.items()
    for kind in described.kinds
    for name in FILES[kind]
]


@pytest.mark.parametrize(("reader", "kind", "name"), CASES)
def test_one_sentence_that_names_the_file(reader, kind, name, tmp_path, monkeypatch):
    monkeypatch.setenv("LPUNITS_CACHE", str(tmp_path))
    described = READERS[reader]
    path = tmp_path / described.name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(FILES[kind][name]())
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # a storage may come into being
    start = sum(os.times()[:4])  # of processors, of children, too: others may be busy
    try:
        described.read(path)
        assert name in described.accepts, "it was read without an error"
    except (ValueError, OSError) as error:  # what the command line turns into its one line
        assert name not in described.accepts
        sentence = str(error)
        assert path.name in sentence
        assert len(sentence) < 600
        assert "\n" not in sentence
    assert sum(os.times()[:4]) - start < 60


def test_the_readers_read_what_is_right(tmp_path):
    """What is changed in the corpus is all that is wrong there."""
    (tmp_path / "a.safetensors").write_bytes(b"{}")
    changed(tmp_path / "a.safetensors")
    (tmp_path / "model.json").write_bytes(models_of_networks.folder()())
    fitted(tmp_path / "model.json")
