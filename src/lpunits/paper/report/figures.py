"""What the figures of the report share: colours, names and panels.

In the page black becomes the colour of the text and backgrounds become transparent, so that a
figure is readable on light and on dark.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
