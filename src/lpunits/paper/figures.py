"""What the figures of the report share: one colour for one thing, wherever it appears.

Draw with matplotlib's defaults on a ``Figure(layout="constrained")``: in the page black becomes the
colour of the text and the backgrounds become clear, so that a figure is readable on light and dark.
"""

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
