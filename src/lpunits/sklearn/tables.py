"""Tables as the estimators see them: rows in chunks, their scaling, and the rows that judge."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from torch import Tensor, nn

Rows = npt.NDArray[np.intp]
Weights = npt.NDArray[np.float64]

CHUNK = 2**16  # values of a table that are looked at together
SAMPLE = 2**17  # values that the quartiles are taken from
BOUND = 5.0  # of scaled inputs
NORMAL_RANGE = 1.349  # between the quartiles of a normal distribution, in standard deviations


def dense(X: Any, rows: Any) -> Tensor:
    """Some rows of an array or a sparse matrix, as a new tensor of float64."""
    part: Any = X[rows]
    return torch.from_numpy(np.array(part.toarray() if issparse(X) else part, np.float64))


def chunks(X: Any, rows: Rows | None = None) -> Iterator[slice]:
    """Slices of a table, or of its rows, of about :data:`CHUNK` values each."""
    step = max(1, CHUNK // max(1, X.shape[1]))
    count = X.shape[0] if rows is None else len(rows)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


class Standardize(nn.Module):
    r"""Columns on one scale, computed in float64: :math:`z = (x - m) / s`, bent beyond a bound.

    With a bound b the result is :math:`z / \sqrt{1 + (z / b)^2}`, which is close to z in the middle
    and never beyond b. A column that was constant has the scale infinity: it becomes 0, whatever
    comes later.

    Args:
        mean: What is subtracted from each column.
        scale: What each column is divided by.
        dtype: The dtype of the result.
        bound: The largest absolute value of the result.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self, mean: Tensor, scale: Tensor, dtype: torch.dtype, bound: float = math.inf
    ) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        self.dtype, self.bound = dtype, bound

    def forward(self, x: Tensor) -> Tensor:
        """``(rows, columns)``, as they are in the table."""
        z = (x - self.mean) / self.scale
        if self.bound < math.inf:
            z = z / (1 + (z / self.bound).square()).sqrt()
        return z.to(self.dtype)

    def extra_repr(self) -> str:
        """The number of columns, and the bound."""
        return f"columns={len(self.mean)}, bound={self.bound:g}"


def moments(X: Any, rows: Rows, weights: Weights) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column; infinity for one that is constant."""
    shares = torch.from_numpy(weights / weights.sum())
    mean = torch.zeros(X.shape[1], dtype=torch.float64)
    low, high = torch.full_like(mean, torch.inf), torch.full_like(mean, -torch.inf)
    for some in chunks(X, rows):
        x = dense(X, rows[some])
        mean += shares[some] @ x
        low, high = torch.minimum(low, x.amin(0)), torch.maximum(high, x.amax(0))
    variance = torch.zeros_like(mean)
    unit = high / 2 - low / 2  # neither this nor squares of what it divides overflow
    for some in chunks(X, rows):
        variance += shares[some] @ ((dense(X, rows[some]) - mean) / unit).square_()
    constant = unit == 0
    deviation = torch.where(constant, torch.inf, variance.sqrt() * unit)
    return torch.where(constant, low, mean), deviation


def quartiles(X: Any, rows: Rows, weights: Weights) -> Tensor:
    """The quartiles of each column, ``(3, columns)``; of a large table, those of a part of it."""
    some = np.linspace(0, len(rows) - 1, min(len(rows), max(1, SAMPLE // X.shape[1]))).astype(int)
    values, order = dense(X, rows[some]).sort(0)
    below = torch.from_numpy(weights[some])[order].cumsum(0)
    places = [(below >= q * below[-1]).int().argmax(0) for q in (0.25, 0.5, 0.75)]
    return torch.stack([values.gather(0, place[None])[0] for place in places])


def scaling(X: Any, rows: Rows, weights: Weights, dtype: torch.dtype) -> Standardize:
    """The scaling of inputs, from some rows of a table, each with its weight.

    It is made of quartiles, so that a few wild values do not matter. A column of which half of the
    values are the same, such as an indicator, has its mean and its standard deviation instead.
    """
    mean, deviation = moments(X, rows, weights)
    low, median, high = quartiles(X, rows, weights)
    spread = (high - low) / NORMAL_RANGE
    spreads = deviation.isfinite() & (spread > 0)
    return Standardize(
        torch.where(spreads, median, mean), torch.where(spreads, spread, deviation), dtype, BOUND
    )


def unscaled(columns: int, dtype: torch.dtype) -> Standardize:
    """Leaves columns as they are."""
    ones = torch.ones(columns, dtype=torch.float64)
    return Standardize(0 * ones, ones, dtype)


class Restore(nn.Module):
    """The inverse of :class:`Standardize`; a target that was constant is restored as it was."""

    mean: Tensor
    scale: Tensor

    def __init__(self, of: Standardize) -> None:
        super().__init__()
        self.register_buffer("mean", of.mean)
        self.register_buffer("scale", torch.where(of.scale.isinf(), 0, of.scale))

    def forward(self, z: Tensor) -> Tensor:
        """``(rows, targets)``, as the network gives them."""
        return z * self.scale + self.mean

    def inverse(self, y: Tensor) -> Tensor:
        """What the network should give for targets."""
        return (y - self.mean) / torch.where(self.scale == 0, torch.inf, self.scale)

    def extra_repr(self) -> str:
        """The number of targets."""
        return f"targets={len(self.mean)}"


def scaled(X: Any, rows: Rows, scaling: Standardize) -> Callable[[Tensor], Tensor]:
    """A function that gives rows by their number, scaled, on the device of the scaling.

    A dense table is scaled once. Of a sparse one only those rows are ever dense that are asked for.
    """
    device = scaling.mean.device
    if issparse(X):
        return lambda some: scaling(dense(X, rows[some.cpu().numpy()]).to(device))
    table = torch.empty(len(rows), X.shape[1], dtype=scaling.dtype, device=device)
    for some in chunks(X, rows):
        table[some] = scaling(dense(X, rows[some]).to(device))
    return lambda some: table.index_select(0, some)


def check_finite(X: Any, estimator: Any) -> None:
    """Raise ValueError where a number is missing or infinite: in one sentence, with the column."""
    sparse: bool = issparse(X)
    values = X.data if sparse else X
    with np.errstate(over="ignore", invalid="ignore"):  # then the values are looked at one by one
        if np.isfinite(values.sum(dtype=np.float64)):
            return
    counts = {"NaN": 0, "inf": 0}
    columns: dict[str, int] = {}
    for some in chunks(X):
        x = dense(X, some)
        for kind, wrong in (("NaN", x.isnan()), ("inf", x.isinf())):
            if found := int(wrong.sum()):
                counts[kind] += found
                columns.setdefault(kind, int(wrong.any(0).nonzero()[0]))
    name = type(estimator).__name__
    for kind, column in columns.items():
        names = getattr(estimator, "feature_names_in_", range(X.shape[1]))
        place = f"the first in column {names[column]!r}"
        if kind == "NaN":
            raise ValueError(
                f"X must have no missing values, got NaN in {counts[kind]} places, {place}: put an "
                f"imputer in front, as in make_pipeline(SimpleImputer(), {name}())"
            )
        raise ValueError(f"X must be finite, got inf in {counts[kind]} places, {place}")


def hold_out(
    target: npt.NDArray[Any], fraction: float, rng: np.random.Generator, *, classes: bool
) -> npt.NDArray[np.bool_]:
    """Which rows to judge by: a random part of them, in which classes (or targets) are as in all.

    The rows are sorted by their target, ties at random, and every k-th is taken. Of a class, at
    least one row stays.
    """
    count = len(target)
    order = np.lexsort((rng.permutation(count), target))
    wanted = max(1, round(fraction * count))
    places = ((np.arange(wanted) + rng.random()) * count / wanted).astype(np.intp)
    held = np.zeros(count, np.bool_)
    held[order[places]] = True
    if classes:
        first = np.unique(target[order], return_index=True)[1]
        held[order[first]] = False
    return held
