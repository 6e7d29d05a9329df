"""Fig. 1b: what the order does to the shape that a unit cuts out of its input space."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lpunits import lp_pool
from lpunits.paper.experiment import Experiment, Picture, Result, Section

ORDERS = (1.0, 1.3, 2.0, 4.0, 10.0, math.inf)


def superellipse(order: float, points: int = 721) -> NDArray[np.float64]:
    """The curve on which a unit with the projections a_1 = x, a_2 = y has the value 1: (points, 2).

    A norm is homogeneous, so the point in direction d lies at ``d / norm(d)``.

    >>> curve = torch.from_numpy(superellipse(3.0))
    >>> bool((lp_pool(curve, 3.0) - 1).abs().max() < 1e-12)
    True
    """
    angle = torch.linspace(0, 2 * math.pi, points, dtype=torch.float64)
    direction = torch.stack([angle.cos(), angle.sin()], dim=-1)
    curve: NDArray[np.float64] = (direction / lp_pool(direction, order).unsqueeze(-1)).numpy()
    return curve


def figure() -> Figure:
    """The superellipses of several orders, and one unit's response along one projection."""
    fig = Figure(figsize=(9, 4.2), layout="constrained")
    shapes, response = fig.subplots(1, 2)
    colors = colormaps["plasma"](np.linspace(0.15, 0.85, len(ORDERS)))
    for order, color in zip(ORDERS, colors, strict=True):
        x, y = superellipse(order).T
        name = "∞" if math.isinf(order) else f"{order:g}"
        shapes.plot(x, y, color=color, lw=2, label=f"p = {name}")
        a = torch.linspace(-3, 3, 601, dtype=torch.float64)
        u = lp_pool(torch.stack([a, torch.ones_like(a)], dim=-1), order)
        response.plot(a.numpy(), u.numpy(), color=color, lw=2, label=f"p = {name}")
    shapes.set(aspect="equal", xlabel="projection $a_1$", ylabel="projection $a_2$")
    shapes.set_title("where the unit has the value 1")
    response.set(xlabel="projection $a_1$, while $a_2 = 1$", ylabel="output $u$")
    response.set_title("its output along one projection")
    response.legend(frameon=False, ncols=2, loc="upper center")
    return fig


def section(results: Sequence[Result]) -> Section:
    """The figure: it follows from the definition, so there is nothing to measure."""
    worst = max(
        float((lp_pool(torch.from_numpy(superellipse(p)), p) - 1).abs().max()) for p in ORDERS
    )
    return Section(
        f"Drawn with the unit itself: on the curves it has the value 1 to {worst:.0e}.",
        pictures=[
            Picture(
                "fig1",
                figure(),
                "Superellipses of orders from 1, a diamond, to infinity, a square; and the output "
                "of a unit along one projection",
            )
        ],
    )


EXPERIMENT = Experiment(
    name="fig1",
    title="Fig. 1b: the shape of a unit",
    about="An Lp unit is a normalised norm of a group of projections. Its order p shapes the "
    "region that it cuts out of the input: a diamond at p = 1, an ellipse at p = 2, a box at "
    "p = ∞, where it is max pooling.",
    trials=lambda scale: (),
    section=section,
    minutes={"smoke": 0, "quick": 0, "paper": 0},
)
