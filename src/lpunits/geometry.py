r"""The shapes that Lp units draw in the plane, for any model with two inputs.

A unit whose N filters are the rows of W has the value :math:`u(x) = \|W x - c\|_p / N^{1/p}`. It is
convex, so the region below a level is convex, too: the inside of a superellipse, or, if all filters
are parallel, the strip between two lines.

>>> from lpunits import MLP, geometry
>>> unit = geometry.units(MLP(2, [3], 2))[0]
>>> (curve,) = unit.curve(level=unit.lowest + 1)
>>> bool(abs(unit(curve) - unit.lowest - 1).max() < 1e-6)
True

Needs numpy; drawing needs matplotlib: ``pip install 'lpunits[geometry]'``.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lpunits.functional import lp_pool
from lpunits.layers import LpLinear
from lpunits.pooling import LpPool

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = NDArray[np.float64]

# Filters are parallel if the smaller singular value of W is below this share of the larger one.
THIN = 1e-9


@dataclass(frozen=True, eq=False)
class Unit:
    """An Lp unit as a function of the plane, made by :func:`units`.

    Attributes:
        name: The path of its layer in the model and its index there, such as ``0[2]``.
        order: p.
        filters: W, of shape ``(N, 2)``.
        offsets: c, of shape ``(N,)``.
        bias: Added after the root; 0 in a layer without a bias.
        center: The minimiser of u, of shape ``(2,)``. With two filters, both projections are zero
            there. If the minimisers form a line, its point next to the origin.
        axes: The columns of the pseudo-inverse of W, one for each filter, of shape ``(N, 2)``. With
            two filters, a step along one of them changes one projection by 1 and the other by 0.
    """

    name: str
    order: float
    filters: Points
    offsets: Points
    bias: float
    center: Points
    axes: Points

    def __call__(self, points: Points) -> Points:
        """The value u at points of shape ``(..., 2)``."""
        z = torch.from_numpy(np.asarray(points, np.float64) @ self.filters.T - self.offsets)
        values: Points = lp_pool(z, self.order).numpy() + self.bias
        return values

    @property
    def lowest(self) -> float:
        """The smallest value of u, which it has at the centre."""
        return float(self(self.center))

    def curve(self, level: float, points: int = 720, reach: float = 10.0) -> list[Points]:
        """The points where u equals ``level``: one closed curve, two lines, or an empty list.

        Args:
            level: The value of u.
            points: The number of points on a closed curve. The first one is repeated at the end.
            reach: The length of each of the two lines, to both sides of the centre.
        """
        if not self.lowest < level < math.inf:
            return []
        _, sizes, turn = np.linalg.svd(self.filters, full_matrices=False)
        if sizes[0] == 0:
            return []  # a constant
        if sizes[-1] <= THIN * sizes[0] or len(sizes) < 2:
            across, along = turn[0], np.array([-turn[0][1], turn[0][0]])
            starts = self.meet(np.array([across, -across]), level)
            return [start + np.outer([-reach, reach], along) for start in starts]
        # Directions are evenly spaced in the plane of the projections, where the shape is nearly
        # round. With two filters and a multiple of 8 points, the corners are among the points.
        angle = np.linspace(0, 2 * np.pi, points + 1)
        circle = np.stack([np.cos(angle), np.sin(angle)], -1)
        basis = self.axes if len(self.filters) == 2 else turn / sizes[:, None]
        curve = self.meet(circle @ basis, level)
        curve[-1] = curve[0]
        return [curve]

    def meet(self, directions: Points, level: float) -> Points:
        """Where rays from the centre, of directions ``(n, 2)``, meet the curve of a level.

        u is convex and has its minimum at the centre, so it crosses the level once on every ray.
        Bisection finds the place to the last bit.
        """
        near, far = np.zeros(len(directions)), np.ones(len(directions))
        while (short := self(self.center + far[:, None] * directions) < level).any():
            near[short], far[short] = far[short], 2 * far[short]
        while True:
            middle = (near + far) / 2
            if ((middle <= near) | (middle >= far)).all():
                return np.asarray(self.center + far[:, None] * directions)
            low = self(self.center + middle[:, None] * directions) < level
            near, far = np.where(low, middle, near), np.where(low, far, middle)


def units(model: nn.Module) -> list[Unit]:
    """The Lp units of a model with two inputs, as functions of the plane.

    These are the units of every :class:`~lpunits.LpLinear` and :class:`~lpunits.LpPool` whose input
    is an affine function of the model's input: in the first layer, or behind linear layers and
    normalisations in evaluation mode. Units of deeper layers do not draw superellipses and are left
    out.

    >>> from lpunits import LpLinear
    >>> unit = units(LpLinear(2, units=3, filters=2, order=4.0))[1]
    >>> unit.name, round(unit.order, 5), unit.center.shape, unit.axes.shape
    ('[1]', 4.0, (2,), (2, 2))

    Raises:
        ValueError: If the model does not take inputs of shape ``(samples, 2)``, has no such unit,
            or has one of an order below 1, whose shape is not convex.
    """
    twin = copy.deepcopy(model).double().eval()
    probes = torch.tensor([[0, 0], [1, 0], [0, 1], [2, -3], [-5, 0.5]], dtype=torch.float64)
    seen: dict[str, Tensor] = {}
    for name, module in twin.named_modules():
        if isinstance(module, LpLinear | LpPool):
            module.register_forward_pre_hook(
                lambda _, args, name=name: seen.update({name: args[0]})
            )
    with torch.no_grad():
        try:
            twin(probes)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"model must take inputs of shape (samples, 2): {error}") from None
    found = []
    for name, inputs in seen.items():
        layer: Any = twin.get_submodule(name)
        offset = inputs[0]
        slopes = inputs[1:3] - offset
        expected = offset + torch.tensordot(probes, slopes, 1)
        if not torch.allclose(inputs, expected, rtol=1e-9, atol=1e-9):
            continue  # its input is not an affine function of the model's
        for j in range(layer.units):
            found.append(_unit(f"{name}[{j}]" if name else f"[{j}]", layer, j, slopes, offset))
    if not found:
        raise ValueError("model must have Lp units in its first layer of units, got none")
    return found


def _unit(name: str, layer: LpLinear | LpPool, j: int, slopes: Tensor, offset: Tensor) -> Unit:
    """Unit j of a layer whose input is ``offset + x @ slopes``."""
    with torch.no_grad():
        order, bias = float(layer.order[j]), 0.0
        if order < 1:
            raise ValueError(f"the order of unit {name} must be at least 1, got {order:g}")
        if isinstance(layer, LpLinear):
            W = layer.weight[:, j] @ slopes.T
            c = -layer.weight[:, j] @ offset
            c = c if layer.center is None else c + layer.center[:, j]
            bias = 0.0 if layer.bias is None else float(layer.bias[j])
        else:
            # Counted from the end, the pooled dimension is the same with and without a batch.
            dim = layer.dim if layer.dim < 0 else layer.dim - offset.ndim - 1
            W = torch.stack([slope.movedim(dim, 0)[..., j] for slope in slopes], -1)
            c = -offset.movedim(dim, 0)[..., j]
    filters, offsets = W.numpy(), c.numpy()
    axes = np.linalg.pinv(filters, rcond=THIN).T
    center = _lowest(filters, offsets, order, offsets @ axes)
    return Unit(name, order, filters, offsets, bias, center, axes)


def _lowest(filters: Points, offsets: Points, order: float, start: Points) -> Points:
    """The minimiser of the unit. ``start`` is the least-squares solution of W x = c."""

    def value(points: Points) -> Points:
        found: Points = lp_pool(torch.from_numpy(points @ filters.T - offsets), order).numpy()
        return found

    best = float(value(start))
    _, sizes, turn = np.linalg.svd(filters, full_matrices=False)
    rank = int((sizes > THIN * sizes[0]).sum())
    if rank == 0 or order == 2 or best <= 1e-12 * abs(offsets).max():
        return start
    # In these coordinates |W x| is the Euclidean distance, which bounds that of the minimum.
    first, *second = turn[:rank] / sizes[:rank, None]
    far = 2 * best * len(filters) ** 1.5
    ends = np.array([-far]), np.array([far])
    if not second:
        t, _ = _section(lambda t: value(start + t[..., None] * first), *ends)
        return np.asarray(start + t * first)

    def down(t: Points) -> tuple[Points, Points]:
        """For every t, the best step along the second direction, and the value there."""
        lines = (start + t.ravel()[:, None] * first)[:, None]
        widths = np.full(t.size, -far), np.full(t.size, far)
        return _section(lambda s: value(lines + s[..., None] * second[0]), *widths)

    t, _ = _section(lambda t: down(t)[1].reshape(t.shape), *ends)
    return np.asarray(start + t * first + down(t)[0] * second[0])


def _section(f: Callable[[Points], Points], low: Points, high: Points) -> tuple[Points, Points]:
    """Minimise convex functions of one variable, one per row: the minimisers and the minima."""
    rows, ticks = np.arange(len(low)), np.linspace(0, 1, 18)
    for _ in range(17):  # each one shrinks the interval by 8.5, in the end to 1e-16
        t = low[:, None] + (high - low)[:, None] * ticks
        values = f(t)
        k = values.argmin(1)
        low, high = t[rows, np.maximum(k - 1, 0)], t[rows, np.minimum(k + 1, 17)]
    return t[rows, k], values[rows, k]


def boundary(
    model: nn.Module, extent: tuple[float, float, float, float], grid: int = 401
) -> Points:
    """Points on the decision boundary of a model, of shape ``(points, 2)``.

    A point lies between two neighbours on a grid over ``extent`` (left, right, bottom, top) that
    have different classes, where linear interpolation makes the two scores equal. A model with one
    output is read as log-odds.

    >>> net = nn.Linear(2, 1)
    >>> points = boundary(net, (-5, 5, -5, 5))
    >>> bool(net(torch.tensor(points).float()).abs().max() < 1e-5)
    True
    """
    xs, ys, scores = _scores(model, extent, grid)
    top = scores.argmax(-1)
    found = []
    for axis in (0, 1):
        first, second = (np.take(scores, r, axis) for r in (range(grid - 1), range(1, grid)))
        a, b = (np.take(top, r, axis) for r in (range(grid - 1), range(1, grid)))
        i, k = np.nonzero(a != b)
        lead = first[i, k, a[i, k]] - first[i, k, b[i, k]]
        lag = second[i, k, b[i, k]] - second[i, k, a[i, k]]
        share = lead / (lead + lag)
        x = xs[i] + (xs[1] - xs[0]) * share * (axis == 0)
        y = ys[k] + (ys[1] - ys[0]) * share * (axis == 1)
        found.append(np.stack([x, y], -1))
    return np.concatenate(found)


def _scores(
    model: nn.Module, extent: tuple[float, float, float, float], grid: int
) -> tuple[Points, Points, Points]:
    """The scores of all classes on a grid, (x, y, class); log-odds z become the scores (0, z)."""
    xs, ys = np.linspace(*extent[:2], grid), np.linspace(*extent[2:], grid)
    twin = copy.deepcopy(model).double().eval()
    x, y = torch.from_numpy(xs), torch.from_numpy(ys)
    with torch.no_grad():
        scores = twin(torch.cartesian_prod(x, y)).reshape(grid, grid, -1)
    if scores.shape[-1] == 1:
        scores = torch.cat([torch.zeros_like(scores), scores], -1)
    return xs, ys, scores.numpy()


def levels(model: nn.Module, extent: tuple[float, float, float, float]) -> list[float]:
    """A level for each of the :func:`units`: its median on the :func:`boundary` of the model.

    Without a boundary in ``extent`` the level is :math:`2 u_{min} + 1`.
    """
    points = boundary(model, extent)
    found = units(model)
    if not len(points):
        return [2 * unit.lowest + 1.0 for unit in found]
    return [float(np.median(unit(points))) for unit in found]


def draw_boundary(
    axes: "Axes", model: nn.Module, extent: tuple[float, float, float, float], **line: Any
) -> None:
    """Draw the decision boundary of a model. ``line`` goes to matplotlib's ``contour``."""
    xs, ys, scores = _scores(model, extent, 401)
    style: dict[str, Any] = {"colors": "black", "linewidths": 1.6} | line
    for k in range(scores.shape[-1] - (scores.shape[-1] == 2)):
        others = np.delete(scores, k, -1).max(-1)
        axes.contour(xs, ys, (scores[..., k] - others).T, [0], **style)


def draw_unit(
    axes: "Axes", unit: Unit, level: float, *, color: str, label: str = "", shape: bool = True
) -> None:
    """Draw a unit's superellipse at a level, its centre, and its axes up to the superellipse.

    The label stands at the highest visible point of the superellipse: set the limits of ``axes``
    first. ``shape=False`` leaves the superellipse out.
    """
    curves = unit.curve(level)
    if shape:
        for curve in curves:
            axes.plot(*curve.T, color=color, lw=1.6, ls="--")
    axes.plot(*unit.center, marker="o", ms=4, color=color)
    for axis in unit.axes:
        for sign in (-1, 1):
            if curves and np.abs(axis).max() > 0:
                tip = unit.meet(sign * axis[None], level)[0]
                axes.plot(*np.stack([unit.center, tip]).T, color=color, lw=1.0)
    if label:
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        dense = [
            np.linspace(curve[0], curve[1], 99) if len(curve) == 2 else curve for curve in curves
        ]
        x, y = np.concatenate([*dense, unit.center[None]]).T
        inside = (left < x) & (x < right) & (bottom < y) & (y < top - 0.06 * (top - bottom))
        k = np.where(inside, y, -np.inf).argmax() if inside.any() else -1
        style: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "weight": "bold"}
        axes.annotate(label, (x[k], y[k]), (0, 4), color=color, **style)


def draw_points(
    axes: "Axes", points: Tensor, classes: Tensor, colors: Sequence[str], max_points: int = 600
) -> None:
    """Draw the first points of a dataset, with a colour and a marker for each class."""
    for k, color in enumerate(colors):
        x, y = points[:max_points][classes[:max_points] == k].numpy().T
        axes.plot(x, y, "o+^"[k % 3], ms=3.5, mew=0.8, color=color, alpha=0.7)
