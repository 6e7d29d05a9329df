"""What the figures of the report share: colours, names, panels, and histograms of orders.

In the page black becomes the colour of the text and backgrounds become transparent, so that a
figure is readable on light and on dark.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

# Okabe and Ito's colours: safe for the colour-blind, visible on white and on near-black.
COLORS = {
    "lp": "#1f83c6",
    "l2": "#56b4e9",
    "maxout": "#e69f00",
    "relu": "#d55e00",
    "sigmoid": "#009e73",
    "tanh": "#cc79a7",
    "gru": "#8c7a5b",
}
NAMES = {
    "lp": "Lp",
    "l2": "L2 (p = 2)",
    "maxout": "maxout",
    "relu": "ReLU",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "gru": "GRU",
}
QUIET = "#888888"  # for comparison: the initial order, the paper's value


def panels(
    rows: int, columns: int, width: float, height: float, *, frame: bool = False, share: str = ""
) -> tuple[Figure, list[Axes]]:
    """A figure of panels of one size in inches; ``share`` names the axes that they share."""
    fig = Figure(figsize=(width * columns, height * rows), layout="constrained")
    grid = fig.subplots(rows, columns, squeeze=False, sharex="x" in share, sharey="y" in share)
    found: list[Axes] = list(grid.flat)
    for axes in found:
        axes.spines[["top", "right"]].set_visible(frame)
    return fig, found


def order_histograms(
    learned: Mapping[str, npt.NDArray[np.float64]], starts: Mapping[str, float]
) -> Figure:
    """A panel for each name: its learned orders and their initial value, on a logarithmic axis.

    As in the paper, the number of units is on a logarithmic axis, too: rare orders stay visible.
    """
    every = np.concatenate([*learned.values(), list(starts.values())])
    low, high = every.min() / 1.05, every.max() * 1.05
    edges = np.geomspace(low, high, 61)
    fig, drawn = panels(len(learned), 1, 8, 1.8, share="x")
    for axes, (name, values) in zip(drawn, learned.items(), strict=True):
        axes.hist(values, edges.tolist(), color=COLORS["lp"], label="learned")
        axes.axvline(starts[name], color=QUIET, lw=2, ls="--", label="initial")
        axes.set_title(name, loc="left", fontsize=10)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(0.7, None), ylabel="units")
        axes.yaxis.set_major_formatter("{x:g}")
    ticks = [t for t in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15, 20, 40) if low <= t <= high]
    drawn[-1].set_xticks(ticks)
    drawn[-1].xaxis.set_major_formatter("{x:g}")
    drawn[-1].xaxis.set_minor_formatter(NullFormatter())
    drawn[-1].set_xlabel("order p")
    drawn[0].legend(frameon=False, fontsize=9)
    return fig
