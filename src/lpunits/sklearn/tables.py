"""Tables as the estimators see them: rows in chunks, their scaling, and the rows that judge."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from torch import Tensor, nn

Rows = npt.NDArray[np.intp]

CHUNK = 2**20  # values of a table that are looked at together


def dense(X: Any, rows: Any) -> Tensor:
    """Some rows of an array or a sparse matrix, as a new tensor of float64."""
    part = X[rows]
    return torch.from_numpy(np.array(part.toarray() if issparse(part) else part, np.float64))


def chunks(X: Any, rows: Rows | None = None) -> Iterator[slice]:
    """Slices of a table, or of its rows, of about :data:`CHUNK` values each."""
    step = max(1, CHUNK // max(1, X.shape[1]))
    count = X.shape[0] if rows is None else len(rows)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


class Standardize(nn.Module):
    r"""Columns with mean 0 and standard deviation 1: :math:`(x - m) / s`, computed in float64.

    A column that was constant has the scale infinity: it becomes 0, whatever comes later.

    Args:
        mean: One for each column.
        scale: One for each column.
        dtype: The dtype of the result.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        self.dtype = dtype

    @classmethod
    def of(cls, X: Any, rows: Rows, weights: npt.NDArray[np.float64], dtype: torch.dtype) -> Any:
        """The scaling of a table, from some of its rows, each with its weight."""
        shares = torch.from_numpy(weights / weights.sum())
        mean = torch.zeros(X.shape[1], dtype=torch.float64)
        largest = torch.zeros_like(mean)
        for some in chunks(X, rows):
            x = dense(X, rows[some])
            mean += shares[some] @ x
            largest = torch.maximum(largest, x.abs().amax(0))
        variance = torch.zeros_like(mean)
        unit = torch.where(largest > 0, largest, 1)  # squares must not overflow
        for some in chunks(X, rows):
            variance += shares[some] @ ((dense(X, rows[some]) - mean) / unit).square_()
        scale = variance.sqrt()
        constant = scale <= 8 * torch.finfo(torch.float64).eps
        return cls(mean, torch.where(constant, torch.inf, scale * unit), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """``(rows, columns)``, as they are in the table."""
        return ((x - self.mean) / self.scale).to(self.dtype)

    def extra_repr(self) -> str:
        """The number of columns."""
        return f"columns={len(self.mean)}"


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
    values = X.data if issparse(X) else X
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
