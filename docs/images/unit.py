"""Draw unit.svg, the picture of the README: ``python docs/images/unit.py``."""

import math
import re
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

from lpunits import LpLinear, geometry


def unit(order: float, filters: list[list[float]], center: list[float]) -> geometry.Unit:
    """A single Lp unit with these filters and centres."""
    layer = LpLinear(2, units=1, filters=2, order=order, learn_order=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(filters)[:, None])
        layer.center.copy_(torch.tensor(center)[:, None])
    return geometry.units(layer)[0]


def draw() -> Figure:
    """Left: the level 1 for five orders. Right: the levels of one unit, its centre and axes."""
    figure = Figure(figsize=(9, 4.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    colors = matplotlib.colormaps["plasma"](np.linspace(0.05, 0.8, 5))
    for order, color in zip([1, 1.4, 2, 4, math.inf], colors, strict=True):
        (curve,) = unit(order, [[1, 0], [0, 1]], [0, 0]).curve(1, points=160)
        left.plot(*curve.round(3).T, color=color, lw=2)
        label = "p = ∞" if order == math.inf else f"{order:g}"
        top = curve[:, 1].max() - 0.03
        left.text(0, top, label, color=color, weight="bold", ha="center", va="top", fontsize=9)
    left.plot([1, 1, -1, -1], [1, -1, 1, -1], "ko", ms=4)
    left.set(xlabel="projection $a_1 - c_1$", ylabel="projection $a_2 - c_2$", aspect="equal")
    left.set_title("where a unit with two filters has the value 1")

    one = unit(4, [[0.96, 0.45], [-0.43, 0.86]], [0.3, 0.1])
    right.set(
        xlim=(-2, 2), ylim=(-2, 2), aspect="equal", xlabel="input $x_1$", ylabel="input $x_2$"
    )
    levels = np.arange(0.2, 2.7, 0.2)
    colormap = matplotlib.colormaps["cividis_r"]
    right.set_facecolor(colormap(1.0))
    for level in levels[::-1]:
        (curve,) = one.curve(level, points=96)
        right.fill(*curve.round(3).T, fc=colormap((level - 0.1) / 2.6), ec="white", lw=0.5)
    geometry.draw_unit(right, one, 1.0, color="black", shape=False)
    right.plot(*one.curve(1.0, points=160)[0].round(3).T, color="black", lw=2)
    right.annotate("centre", one.center, (6, -12), textcoords="offset points")
    for k, axis in enumerate(one.axes, 1):
        tip = one.meet(axis[None], 1.0)[0]
        right.annotate(f"$a_{k}$", tip, (4, 4), textcoords="offset points")
    right.text(-0.95, -1.0, "u = 1", ha="right")
    right.set_title("the output u of one unit, p = 4")
    scale = matplotlib.cm.ScalarMappable(matplotlib.colors.Normalize(0, 2.6), colormap)
    bar = figure.colorbar(scale, ax=right, boundaries=np.arange(0, 2.7, 0.2), ticks=[0, 1, 2])
    bar.set_label("output u")
    return figure


if __name__ == "__main__":
    # Text stays text, and a tenth of a point is enough: a quarter of the size.
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "lpunits"}
    matplotlib.rcParams["font.sans-serif"] = ["DejaVu Sans", "Verdana"]
    file = Path(__file__).with_suffix(".svg")
    draw().savefig(file, metadata=dict.fromkeys(["Date", "Creator", "Format", "Type"]))
    short = re.sub(r"\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", file.read_text())
    file.write_text(re.sub(r" ?\n(?=[LMCQz\"])", " ", short))
