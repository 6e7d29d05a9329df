"""What the figures of the report share: one colour for one thing, and histograms of orders.

Draw with matplotlib's defaults on a ``Figure(layout="constrained")``: in the page black becomes the
colour of the text and the backgrounds become clear, so that a figure is readable on light and dark.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter

# Okabe and Ito's colours: told apart by the colour-blind, visible on white and on near-black.
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
QUIET = "#888888"  # what is there for comparison: the start, the paper's value


def order_histograms(
    learned: Mapping[str, npt.NDArray[np.float64]], starts: Mapping[str, float]
) -> Figure:
    """A panel for each name: its learned orders and their start, all on one logarithmic axis."""
    every = np.concatenate([*learned.values(), list(starts.values())])
    low, high = every.min() / 1.05, every.max() * 1.05
    edges = np.geomspace(low, high, 61)
    fig = Figure(figsize=(8, 1.1 + 1.5 * len(learned)), layout="constrained")
    panels = fig.subplots(len(learned), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, values) in zip(panels, learned.items(), strict=True):
        axes.hist(values, edges, color=COLORS["lp"], label="learned")
        axes.axvline(starts[name], color=QUIET, lw=2, ls="--", label="start of every unit")
        axes.set_title(name, loc="left", fontsize=10)
        axes.set(xscale="log", xlim=(low, high), ylabel="units")
        axes.spines[["top", "right"]].set_visible(False)
    ticks = [t for t in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15, 20, 40) if low <= t <= high]
    panels[-1].set_xticks(ticks)
    panels[-1].xaxis.set_major_formatter(ScalarFormatter())
    panels[-1].xaxis.set_minor_formatter(NullFormatter())
    panels[-1].set_xlabel("order p")
    panels[0].legend(frameon=False, fontsize=9)
    return fig
