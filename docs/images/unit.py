"""Draw unit.svg, the picture of the README, which is Fig. 1: ``python docs/images/unit.py``."""

import re
from pathlib import Path

import matplotlib

from lpunits.paper.experiments import fig1

# Text stays text, and a tenth of a point is enough: a quarter of the size.
matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "lpunits"}
matplotlib.rcParams["font.sans-serif"] = ["DejaVu Sans", "Verdana"]
file = Path(__file__).with_suffix(".svg")
fig1.figure().savefig(file, metadata=dict.fromkeys(["Date", "Creator", "Format", "Type"]))
short = re.sub(r"\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", file.read_text())
file.write_text(re.sub(r" ?\n(?=[LMCQz\"])", " ", short))
