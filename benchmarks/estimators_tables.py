"""The tables of ``estimators.py``: those that the defaults were chosen on, and those held out."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import sklearn.datasets as ready
from sklearn.model_selection import train_test_split

from lpunits.paper.data import load

Table = tuple[Any, Any]


def outliers(seed: int) -> Table:
    """Friedman 1 with skewed columns, and a hundredth of their values far out."""
    rng = np.random.default_rng(seed)
    X, y = ready.make_friedman1(1500, noise=1.0, random_state=seed)
    X = np.exp(3 * X)
    X[rng.random(X.shape) < 0.01] *= 1000
    return X, y


def covertype(rows: int) -> Callable[[int], Table]:
    """So many rows of the training set, with the columns as they are in the file's units."""

    def table(seed: int) -> Table:
        part = load("covertype", components=None).train
        some = np.random.default_rng(seed).permutation(len(part))[:rows]
        return np.asarray(part.features)[some], np.asarray(part.targets)[some]

    return table


def elevation(seed: int) -> Table:
    """The first column of Covertype from the others."""
    X, _ = covertype(6_000)(seed)
    return X[:, 1:], X[:, 0]


def skewed_target(seed: int) -> Table:
    """The target is the exponential of a smooth function."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3000, 10))
    y = X[:, 0] + 0.5 * X[:, 1] * X[:, 2] + 0.3 * np.sin(3 * X[:, 3])
    return X, np.exp(y + 0.2 * rng.normal(size=3000))


def skewed_inputs(seed: int) -> Table:
    """A product of columns, whose largest values decide."""
    rng = np.random.default_rng(seed)
    X = np.exp(1.5 * rng.normal(size=(3000, 8)))
    return X, X[:, 0] * X[:, 1] / (1 + X[:, 2]) + 0.1 * rng.normal(size=3000)


def steps(seed: int) -> Table:
    """A function that is constant in boxes, as trees are."""
    rng = np.random.default_rng(seed)
    X = rng.random((8000, 6))
    y = np.floor(4 * X[:, 0]) * np.where(X[:, 1] > 0.5, 1, -1) + 2 * (X[:, 2] > 0.3)
    return X, y + 0.3 * rng.normal(size=8000)


CLASSES: dict[str, Callable[[int], Table]] = {
    "wine": lambda seed: ready.load_wine(return_X_y=True),
    "breast cancer": lambda seed: ready.load_breast_cancer(return_X_y=True),
    "digits": lambda seed: ready.load_digits(return_X_y=True),
    "moons": lambda seed: ready.make_moons(500, noise=0.25, random_state=seed),
    "Gaussian quantiles": lambda seed: ready.make_gaussian_quantiles(
        n_samples=1500, n_features=8, n_classes=3, random_state=seed
    ),
    "classification, 30 columns": lambda seed: ready.make_classification(
        2000, 30, n_informative=8, n_redundant=5, n_classes=4, flip_y=0.05, random_state=seed
    ),
    "Hastie 10.2": lambda seed: ready.make_hastie_10_2(3000, random_state=seed),
    "covertype, 4,000 rows": covertype(6_250),
}
NUMBERS: dict[str, Callable[[int], Table]] = {
    "diabetes": lambda seed: ready.load_diabetes(return_X_y=True),
    "Friedman 1": lambda seed: ready.make_friedman1(1000, noise=1.0, random_state=seed),
    "Friedman 3": lambda seed: ready.make_friedman3(2000, noise=0.1, random_state=seed),
    "linear, 50 columns": lambda seed: ready.make_regression(
        600, 50, n_informative=10, noise=20.0, random_state=seed
    ),
    "outliers": outliers,
    "skewed inputs": skewed_inputs,
}
HELD_OUT_CLASSES: dict[str, Callable[[int], Table]] = {
    "iris": lambda seed: ready.load_iris(return_X_y=True),
    "blobs": lambda seed: ready.make_blobs(1000, 8, centers=6, cluster_std=6.0, random_state=seed),
    "covertype, 20,000 rows": covertype(25_000),
    "3 % in one class": lambda seed: ready.make_classification(
        4000, 20, n_informative=6, weights=[0.97], flip_y=0.005, random_state=seed
    ),
    "150 x 2,000": lambda seed: ready.make_classification(
        150, 2000, n_informative=15, n_redundant=0, class_sep=2.0, random_state=seed
    ),
}
HELD_OUT_NUMBERS: dict[str, Callable[[int], Table]] = {
    "Friedman 2": lambda seed: ready.make_friedman2(1500, noise=100.0, random_state=seed),
    "swiss roll": lambda seed: ready.make_swiss_roll(2000, noise=0.5, random_state=seed),
    "elevation": elevation,
    "skewed target": skewed_target,
    "steps": steps,
}
ALL = CLASSES | NUMBERS | HELD_OUT_CLASSES | HELD_OUT_NUMBERS


def has_classes(name: str) -> bool:
    """Whether the targets of a table are classes."""
    return name in CLASSES or name in HELD_OUT_CLASSES


@cache
def parts(name: str, seed: int) -> tuple[Any, ...]:
    """Inputs and targets to train on, to validate on, to test on: 64, 16 and 20 % of the rows."""

    def split(X: Any, y: Any) -> Any:
        stratify = y if has_classes(name) else None
        return train_test_split(X, y, test_size=0.2, random_state=seed, stratify=stratify)

    X, X_test, y, y_test = split(*ALL[name](seed))
    X, X_valid, y, y_valid = split(X, y)
    return X, y, X_valid, y_valid, X_test, y_test
