"""The folder of a model: ``model.json``, the weights, and ``card.html``. Nothing is unpickled.

``model.json`` has what became of the columns, and names the file of the weights. It is replaced
last and as one, so that at any moment the folder holds all of the old or of the new model.
"""

import hashlib
import json
import math
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import lpunits
from lpunits import sealed, sklearn
from lpunits.files import write_atomically
from lpunits.paper.fitting.columns import Column, as_json, encode, from_json
from lpunits.paper.fitting.reading import Table, shown
from lpunits.paper.fitting.target import Target

if TYPE_CHECKING:
    from lpunits.paper.fitting.fit import Fitted

FORMAT = 1
NAME = "model.json"
CARD = "card.html"
WEIGHTS = re.compile(r"[0-9a-f]{16}\.safetensors")


@dataclass(frozen=True)
class Model:
    """What predicts: an estimator, and what becomes of columns before.

    Args:
        target: What is predicted.
        columns: The columns of the table that it was fitted on.
        estimator: An :class:`~lpunits.sklearn.LpClassifier` or ``LpRegressor``.
        facts: Data, split, scores, versions and the command.
    """

    target: Target
    columns: list[Column]
    estimator: Any
    facts: dict[str, Any]

    def encode(self, table: Table) -> tuple[npt.NDArray[np.float64], list[str]]:
        """A table as the estimator takes it, and notes; a missing column is a ValueError."""
        needed = [column.name for column in self.columns if column.kind != "out"]
        if missing := [name for name in needed if name not in table.columns]:
            raise ValueError(
                f"{table.source} lacks {_counted(missing)} that the model was fitted on"
            )
        known = {column.name for column in self.columns}
        unexpected = [n for n in table.columns if n not in known and n != self.target.name]
        X, _, notes = encode(table, self.columns)
        if unexpected:
            notes.insert(0, f"not used: {_counted(unexpected)}, unknown to the model")
        return X, notes

    def predict(self, table: Table) -> tuple[list[str], list[list[str]], list[str]]:
        """The titles of columns, their rows, and notes."""
        X, notes = self.encode(table)
        if self.target.task == "regression":
            return ["prediction"], [[repr(float(v))] for v in self.estimator.predict(X)], notes
        probabilities = self.estimator.predict_proba(X)
        classes = self.estimator.classes_
        found = classes[probabilities.argmax(1)]
        rows = [
            [str(label), *(repr(float(p)) for p in some)]
            for label, some in zip(found, probabilities, strict=True)
        ]
        return ["prediction", *(f"probability of {label}" for label in classes)], rows, notes


def check(folder: Path, replace: bool) -> None:
    """Raise ValueError if a model cannot be written to this place."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, a folder for the model is expected")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if NAME in names:
        if not replace:
            raise ValueError(f"{folder} holds a model: choose another folder, or --replace it")
    elif others := [n for n in names if n != CARD and not WEIGHTS.fullmatch(n) and n[0] != "."]:
        raise ValueError(f"{folder} is not empty, it has {shown(min(others))!r}: choose another")


def save(folder: Path, fitted: "Fitted", facts: dict[str, Any], card: str) -> None:
    """Write a model; an older one in the folder is replaced at one moment."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "weights"
        fitted.estimator.save(path)
        weights = path.read_bytes()
    sha256 = hashlib.sha256(weights).hexdigest()
    name = f"{sha256[:16]}.safetensors"
    content = {
        "weights": name,
        "sha256": sha256,
        "target": asdict(fitted.prepared.target),
        "columns": as_json(fitted.prepared.columns),
        "facts": facts,
    }
    old = _weights(folder)
    write_atomically(folder / name, weights)
    write_atomically(folder / CARD, card.encode("utf-8", "replace"))
    text = {
        "format": FORMAT,
        "lpunits": lpunits.__version__,
        "check": _check(content),
        "content": content,
    }
    write_atomically(folder / NAME, f"{json.dumps(text, indent=1)}\n".encode())
    if old not in (None, name):
        (folder / str(old)).unlink(missing_ok=True)


def load(folder: Path) -> Model:
    """The model of a folder; a damaged one is a ValueError."""
    content = _content(folder)
    path = folder / content["weights"]
    if not path.is_file():
        raise ValueError(f"{folder}: the file {path.name} is missing")
    if hashlib.sha256(path.read_bytes()).hexdigest() != content.get("sha256"):
        raise ValueError(f"{path} is damaged: its checksum is not that of {NAME}")
    estimator = sklearn.load(path)
    try:
        model = Model(
            sealed.made(Target, content["target"]),
            from_json(content["columns"]),
            estimator,
            content["facts"],
        )
        names = [name for column in model.columns for name in column.features]
        if len(names) != estimator.n_features_in_:
            raise ValueError(f"{len(names)} numbers of a row, the network takes another count")
        classes = getattr(estimator, "classes_", None)
        if list(model.target.classes) != ([] if classes is None else classes.tolist()):
            raise ValueError("the classes are not those of the network")
        if (model.target.task == "regression") != (classes is None):
            raise ValueError(f"the network is not one for {model.target.task}")
        if not all(math.isfinite(column.fill) for column in model.columns):
            raise ValueError("a missing number would be filled by one that is not finite")
    except Exception as error:  # nothing is known of what a file made by hand may hold
        raise ValueError(f"{folder / NAME} cannot be used: {sealed.reason(error)}") from error
    return model


def _content(folder: Path) -> dict[str, Any]:
    path = folder / NAME
    if not path.is_file():
        raise ValueError(f"{folder} is not the folder of a model: there is no {path}")
    try:
        text = json.loads(path.read_bytes())
        if text["format"] != FORMAT:
            raise ValueError(
                f"it was written by lpunits {text['lpunits']} in format {text['format']}, "
                f"this lpunits {lpunits.__version__} reads format {FORMAT}"
            )
        content: dict[str, Any] = text["content"]
        if text["check"] != _check(content) or not WEIGHTS.fullmatch(content["weights"]):
            raise ValueError("its checksum is not that of its content")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} cannot be used: {sealed.reason(error)}") from error
    return content


def _weights(folder: Path) -> str | None:
    """The file of weights that a folder uses now."""
    try:
        return str(_content(folder)["weights"])
    except ValueError:
        return None


def _check(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _counted(names: list[str]) -> str:
    """Some columns by name.

    >>> _counted(["a"]), _counted(["a", "b"])
    ("the column 'a'", "the columns 'a', 'b'")
    """
    some = ", ".join(repr(shown(name)) for name in names[:10])
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"the column{'s' * (len(names) > 1)} {some}{more}"
