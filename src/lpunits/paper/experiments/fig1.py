"""Fig. 1: the superellipses of different orders, and what one unit makes of the plane."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lpunits import LpLinear, geometry
from lpunits.paper.experiments.plane import order_name
from lpunits.paper.report.figures import panels
from lpunits.paper.report.section import Experiment, Picture, Section
from lpunits.paper.training.trial import Result

ORDERS = (1.0, 1.4, 2.0, 4.0, math.inf)
SHADES = ("#8f6be0", "#c45bbf", "#dd5f82", "#e5793e", "#c99212")  # all visible on dark and light
INK = "#1a1a1a"  # on a coloured surface text stays dark, on light and dark pages
# The unit of the second panel: its filters, its centres and its order.
FILTERS, CENTERS, ORDER = ((0.9, 0.5), (-0.35, 0.8)), (0.3, 0.1), 4.0


def unit(
    filters: Sequence[Sequence[float]], centers: Sequence[float], order: float
) -> geometry.Unit:
    """A unit of the library, seen as a shape."""
    layer = LpLinear(2, 1, len(filters), order=order, bias=False, dtype=torch.float64)
    weights = {"weight": torch.tensor(filters), "center": torch.tensor(centers)}
    layer.load_state_dict({k: w.unsqueeze(1) for k, w in weights.items()}, strict=False)
    return geometry.units(layer)[0]


def figure() -> Figure:
    """The shapes of several orders, and the response surface of one unit."""
    fig, (shapes, surface) = panels(1, 2, 4.5, 4.3, frame=True)
    _draw_shapes(shapes)
    _draw_surface(fig, surface)
    return fig


def _draw_shapes(axes: Axes) -> None:
    """Normalised norms agree where all projections are equal: the curves meet in four points."""
    for order, color in zip(ORDERS, SHADES, strict=True):
        shape = unit(((1.0, 0.0), (0.0, 1.0)), (0.0, 0.0), order)
        (curve,) = shape.curve(1.0, points=240)
        axes.plot(*curve.T, color=color, lw=2)
        top = float(shape.meet(np.array([[0.0, 1.0]]), 1.0)[0, 1])
        name = "p = ∞" if math.isinf(order) else order_name(order)
        style: dict[str, Any] = {"ha": "center", "va": "center", "weight": "bold", "fontsize": 9}
        axes.text(0, top - 0.1 - 0.05 * (order == 1), name, color=color, **style)
    axes.plot([1, 1, -1, -1], [1, -1, 1, -1], "o", ms=4, color="black")
    axes.set(aspect="equal", xlabel="projection $a_1 - c_1$", ylabel="projection $a_2 - c_2$")
    axes.set(xlim=(-2.1, 2.1), ylim=(-2.1, 2.1))
    axes.set_title("where a unit of two filters has the value 1", fontsize=11)


def _draw_surface(fig: Figure, axes: Axes) -> None:
    """One unit over its input: its level curves, its centre, and its axes."""
    drawn = unit(FILTERS, CENTERS, ORDER)
    side = np.linspace(-2, 2, 61)
    values = drawn(np.stack(np.meshgrid(side, side), -1))
    steps = np.linspace(0, 2.4, 13)
    filled = axes.contourf(side, side, values, steps, cmap="cividis_r", extend="max")
    axes.contour(side, side, values, steps, colors="white", linewidths=0.4)
    fig.colorbar(filled, ax=axes, label="output $u$", ticks=[0, 1, 2], shrink=0.8)
    (curve,) = drawn.curve(1.0)
    axes.plot(*curve.T, color=INK, lw=2)
    axes.plot(*drawn.center, "o", ms=5, color=INK)
    style: dict[str, Any] = {"textcoords": "offset points", "color": INK}
    axes.annotate("centre", drawn.center.tolist(), (6, -12), **style)
    for i, axis in enumerate(drawn.axes, start=1):
        ends = drawn.meet(np.stack([axis, -axis]), 1.0)
        axes.plot(*ends.T, color=INK, lw=1)
        axes.annotate(f"$a_{i}$", ends[0].tolist(), (5, 5), **style)
    lowest = curve[curve.sum(1).argmin()]
    axes.annotate("$u = 1$", lowest.tolist(), (-4, -12), ha="right", **style)
    axes.set(aspect="equal", xlabel="input $x_1$", ylabel="input $x_2$", xlim=(-2, 2), ylim=(-2, 2))
    axes.set_title(f"the output of one unit, p = {ORDER:g}", fontsize=11)


def section(results: Sequence[Result]) -> Section:
    """The figure: it follows from the definition, so there is nothing to measure."""
    drawn = [unit(((1.0, 0.0), (0.0, 1.0)), (0.0, 0.0), p) for p in ORDERS]
    drawn.append(unit(FILTERS, CENTERS, ORDER))
    worst = max(float(abs(u(curve) - 1).max()) for u in drawn for curve in u.curve(1.0))
    alt = (
        "Left, superellipses of orders from 1, a diamond, to infinity, a square, which meet in "
        "four points; right, the output of a unit of order 4 over its input, with its centre, its "
        "two axes and the curve on which it has the value 1"
    )
    return Section(
        f"Drawn with the unit itself: on the curves its value is 1, with an error of {worst:.0e}.",
        pictures=[Picture("fig1", figure(), alt)],
    )


EXPERIMENT = Experiment(
    name="fig1",
    title="Fig. 1b: the shape of a unit",
    about="An Lp unit is a normalised norm of a group of projections; its order p shapes the "
    "region that it encloses: a diamond at p = 1, an ellipse at p = 2, a box at p = ∞.",
    trials=lambda scale: (),
    section=section,
    minutes={"smoke": 0, "quick": 0, "paper": 0},
)
