"""Scores on the test rows, beside a baseline and scikit-learn's estimators on the same rows."""

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import balanced_accuracy_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lpunits.paper.fitting.target import Task

Array = npt.NDArray[Any]
LARGE = 300  # rows: from here on the networks stop early, Lp units as scikit-learn's


@dataclass(frozen=True)
class Split:
    """Numbers to train on, and numbers to test with."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


@dataclass(frozen=True)
class Score:
    """How well one model predicts the test rows.

    Args:
        name: The model.
        values: Its scores by name.
        seconds: Of training.
        against: Whether it is better than Lp units, worse, or undecided.
        failed: Why it has no scores, if it has none.
    """

    name: str
    values: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    against: str = ""
    failed: str = ""


def classification(model: Any, X: Array, y: Array) -> tuple[dict[str, float], Array]:
    """Accuracy, balanced accuracy and log loss; 1 for each row with a wrong class."""
    probabilities = model.predict_proba(X)
    places = np.searchsorted(model.classes_, y)
    true = probabilities[np.arange(len(y)), places]
    predicted = model.classes_[probabilities.argmax(1)]
    wrong = (predicted != y).astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class that is not in the test rows
        balanced = float(balanced_accuracy_score(y, predicted))
    log_loss = float(-np.log(np.maximum(true, np.finfo(np.float64).eps)).mean())
    return {
        "accuracy": float(1 - wrong.mean()),
        "balanced accuracy": balanced,
        "log loss": log_loss,
    }, wrong


def regression(model: Any, X: Array, y: Array) -> tuple[dict[str, float], Array]:
    """R², root mean squared error and mean absolute error; the squared error of each row."""
    scale = float(np.abs(y).max()) or 1.0  # squares must not overflow
    errors = (model.predict(X) - y) / scale
    squares = errors**2
    spread = ((y / scale - (y / scale).mean()) ** 2).mean()
    constant = float(not squares.any())  # as scikit-learn has it
    return {
        "R²": float(1 - squares.mean() / spread) if spread else constant,
        "RMSE": float(np.sqrt(squares.mean())) * scale,
        "MAE": float(np.abs(errors).mean()) * scale,
    }, squares


EVALUATE: dict[Task, Callable[[Any, Array, Array], tuple[dict[str, float], Array]]] = {
    "classification": classification,
    "regression": regression,
}


def rivals(task: Task, y: Array, seed: int) -> dict[str, Any]:
    """The baseline and scikit-learn's estimators, with their defaults, not yet fitted."""
    if task == "regression":
        net = MLPRegressor(random_state=seed, early_stopping=len(y) >= LARGE)
        scaled = make_pipeline(StandardScaler(), net)
        return {
            "the mean": DummyRegressor(),
            "HistGradientBoosting": HistGradientBoostingRegressor(random_state=seed),
            "MLP of scikit-learn": TransformedTargetRegressor(scaled, transformer=StandardScaler()),
        }
    splits = min(Counter(y.tolist()).values()) > 1  # into two parts with every class
    early = "auto" if splits else False
    net = MLPClassifier(random_state=seed, early_stopping=splits and len(y) >= LARGE)
    return {
        "the majority": DummyClassifier(),
        "HistGradientBoosting": HistGradientBoostingClassifier(
            random_state=seed, early_stopping=early
        ),
        "MLP of scikit-learn": make_pipeline(StandardScaler(), net),
    }


def compare(ours: Score, losses: Array, task: Task, split: Split, seed: int) -> Iterator[Score]:
    """Fit the rivals one by one, and score them on the same test rows.

    Args:
        ours: The score of Lp units.
        losses: Their loss in each test row.
        task: The task.
        split: The rows.
        seed: Random seed of the rivals.
    """
    yield ours
    for name, model in rivals(task, split.y, seed).items():
        start = time.perf_counter()
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # most often: the MLP had not converged
                model.fit(split.X, split.y)
                seconds = time.perf_counter() - start
                values, theirs = EVALUATE[task](model, split.X_test, split.y_test)
        except ValueError as error:
            yield Score(name, failed=str(error).partition("\n")[0])
        else:
            yield Score(name, values, seconds, paired(theirs, losses))


def paired(theirs: Array, ours: Array) -> str:
    """Whether losses in the same rows are ``better`` than ours, ``worse``, or it is ``undecided``.

    It is undecided if the mean difference is at most two of its standard errors from zero.

    >>> paired(np.array([1., 1., 0., 1.]), np.array([0., 0., 0., 0.]))
    'worse'
    >>> paired(np.array([0., 1.]), np.array([1., 0.]))
    'undecided'
    """
    difference = theirs - ours
    error = difference.std(ddof=1) / math.sqrt(len(difference)) if len(difference) > 1 else 0.0
    if abs(difference.mean()) <= 2 * error:
        return "undecided"
    return "better" if difference.mean() < 0 else "worse"


def number(value: float, name: str) -> str:
    """A score as text."""
    if name.endswith("accuracy"):
        return f"{value:.1%}"
    if name in ("R²", "log loss"):
        return f"{value:z.3f}"
    return f"{value:,.0f}" if 1000 <= value < 1e9 else f"{value:.4g}"
