"""From a table to a fitted estimator: the split, the training, the scores."""

import difflib
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpunits.paper.fitting import scores
from lpunits.paper.fitting.columns import KINDS, Column, Kind, encode, learn
from lpunits.paper.fitting.reading import Table, shown
from lpunits.paper.fitting.scores import Score, Split
from lpunits.paper.fitting.target import Target, Task, find
from lpunits.sklearn import LpClassifier, LpRegressor
from lpunits.sklearn.tables import hold_out

OURS = "Lp units"


@dataclass(frozen=True)
class Prepared:
    """A table that is split, and made numbers of.

    Args:
        table: The table.
        target: What is to be predicted.
        columns: What becomes of the other columns.
        features: The names of the numbers.
        notes: What was filled.
        split: The rows.
        seed: Random seed of the split, and of all that is trained.
    """

    table: Table
    target: Target
    columns: list[Column]
    features: list[str]
    notes: list[str]
    split: Split
    seed: int


@dataclass(frozen=True)
class Fitted:
    """A fitted estimator, with all that its card shows.

    Args:
        prepared: The data.
        estimator: An :class:`~lpunits.sklearn.LpClassifier` or ``LpRegressor``.
        scores: Its scores on the test rows, then those of others.
        predicted: What it predicts for the test rows.
    """

    prepared: Prepared
    estimator: Any
    scores: list[Score]
    predicted: npt.NDArray[Any]

    @property
    def validation(self) -> str:
        """How many of the rows to train on chose the epoch."""
        if self.estimator.validation_scores_ is None:
            return "none, too few rows"
        return f"about {self.estimator.validation_fraction:.0%} of them, to choose the epoch"

    def facts(self) -> dict[str, Any]:
        """What the JSON file has beside the columns."""
        prepared = self.prepared
        return {
            "data": {
                "file": prepared.table.source.name,
                "sha256": digest(prepared.table.source),
                "rows": len(prepared.table),
            },
            "split": {
                "seed": prepared.seed,
                "train": len(prepared.split.y),
                "validation": self.validation,
                "test": len(prepared.split.y_test),
            },
            "scores": [
                {**asdict(score), "seconds": round(score.seconds, 3)} for score in self.scores
            ],
        }


def prepare(
    table: Table,
    target: str,
    *,
    task: Task | None = None,
    test: float = 0.2,
    seed: int = 0,
    kinds: Mapping[str, Kind] | None = None,
) -> Prepared:
    """Split a table, and make numbers of its columns; a table that cannot serve is a ValueError.

    Args:
        table: The table.
        target: The column to predict.
        task: ``classification`` or ``regression``; by default it is guessed.
        test: The part of the rows that is used for the scores alone.
        seed: Which rows these are.
        kinds: Kinds of columns that are not to be guessed.
    """
    if not 0 < test < 1:
        raise ValueError(f"test must be a fraction between 0 and 1, got {test}")
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a number from 0 to 4294967295, got {seed}")
    goal = find(table, target, task)
    kinds = dict(kinds or {})
    for name, kind in kinds.items():
        if name not in table.columns or name == target:
            close = difflib.get_close_matches(name, table.columns, n=1)
            hint = f"did you mean {shown(close[0])!r}?" if close else "it must be one of the table"
            raise ValueError(f"--column: there is no column {shown(name)!r} to learn from: {hint}")
        if kind not in KINDS:
            raise ValueError(f"--column must be NAME={'|'.join(KINDS)}, got {name}={kind}")
    y = goal.of(table)
    classes = goal.task == "classification"
    key = np.unique(y, return_inverse=True)[1] if classes else y
    held = hold_out(key, test, np.random.default_rng(seed), classes=classes)
    if not held.any() or held.all():
        raise ValueError(f"test must leave rows on both sides, got {test} of {len(table)} rows")
    rows, test_rows = np.flatnonzero(~held), np.flatnonzero(held)
    columns = learn(table, [name for name in table.columns if name != target], rows, kinds)
    if all(column.kind == "out" for column in columns):
        reasons = "; ".join(f"{shown(c.name)}: {c.why}" for c in columns[:5])
        raise ValueError(f"{table.source}: no column is left to predict from ({reasons})")
    X, features, notes = encode(table, columns)
    split = Split(X[rows], y[rows], X[test_rows], y[test_rows])
    return Prepared(table, goal, columns, features, notes, split, seed)


def fit(
    prepared: Prepared,
    settings: Mapping[str, Any] | None = None,
    *,
    compare: bool = True,
    verbose: bool = False,
    show: Callable[[str], None] = lambda text: None,
) -> Fitted:
    """Train on the rows to train on, and score on the test rows.

    Args:
        prepared: The data.
        settings: Parameters of the estimator.
        compare: Whether a baseline and scikit-learn's estimators are fitted, too.
        verbose: Whether the training shows its progress.
        show: Is called with what is being done.
    """
    split, task = prepared.split, prepared.target.task
    kind = LpClassifier if task == "classification" else LpRegressor
    estimator: Any = kind(random_state=prepared.seed, verbose=verbose)
    known = sorted(set(estimator.get_params()) - {"random_state", "verbose", "warm_start"})
    for name in settings or ():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            raise ValueError(f"--set: {kind.__name__} has no parameter {name!r}: {hint}")
    estimator.set_params(**(settings or {}))
    show(f"training on {len(split.y):,} rows")
    start = time.perf_counter()
    estimator.fit(split.X, split.y)
    seconds = time.perf_counter() - start
    values, losses = scores.EVALUATE[task](estimator, split.X_test, split.y_test)
    found = [Score(OURS, values, seconds)]
    if compare:
        show("comparing with scikit-learn's estimators on the same rows")
        found = list(scores.compare(found[0], losses, task, split, prepared.seed))
    return Fitted(prepared, estimator, found, estimator.predict(split.X_test))


def digest(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
