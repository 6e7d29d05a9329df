"""The README's table of speed, from ``results/bench.json``: ``python benchmarks/readme.py``.

``make bench`` calls it after a full run. ``tests/test_docs.py`` compares both.
"""

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
README, BENCH = ROOT / "README.md", ROOT / "results" / "bench.json"
BEGIN, END = "<!-- speed: written by benchmarks/readme.py -->\n", "<!-- end of speed -->\n"

# What the README calls it, the group and the case of bench.json, and the alternatives there.
ROWS = (
    ("`lp_pool`, (100, 5, 240)", "over the filters", "(100, 5, 240)",
     {"naive": "the formula", "maxout, amax": "`amax` maxout", "ReLU": "ReLU"}),
    ("`lp_pool`, (4096, 2, 512)", "over the filters", "(4096, 2, 512)",
     {"naive": "the formula", "maxout, amax": "`amax` maxout", "ReLU": "ReLU"}),
    ("`GlobalLpPool`, 7x7, channels first", "GlobalLpPool, channels first", "32x256x7x7",
     {"GeM": "the GeM formula", "nn.AdaptiveMaxPool2d": "`nn.AdaptiveMaxPool2d`"}),
    ("`LpPool2d`, 3x3, channels first", "LpPool2d, channels first", "k=3 s=2 p=1",
     {"nn.LPPool2d": "`nn.LPPool2d`", "nn.MaxPool2d": "`nn.MaxPool2d`"}),
    ("`LpPool2d`, 3x3, channels last", "LpPool2d, channels last", "k=3 s=2 p=1",
     {"nn.LPPool2d": "`nn.LPPool2d`", "nn.MaxPool2d": "`nn.MaxPool2d`"}),
    ("training step of the paper's MNIST net", "step of MLP(784, [240, 240], 10, filters=5)",
     "batch 100",
     {"maxout, amax": "`amax` maxout", "ReLU, 780 units": "ReLU with as many weights"}),
    ("`DTRNN`, batch 64, 400 steps", "batch 64", "400 steps",
     {"nn.GRU": "`nn.GRU`", "nn.LSTM": "`nn.LSTM`", "nn.RNN": "`nn.RNN`"}),
)  # fmt: skip


def table(results: list[dict]) -> str:
    """A row per layer and layout: our time divided by that of each alternative."""
    best = {
        (r["group"], r["case"], r["contestant"]): r["timing"]["best"]
        for r in results
        if r["mode"] == "forward + backward"
    }
    lines = ["| layer and layout | time of ours / time of the alternative |", "|---|---|"]
    for name, group, case, rivals in ROWS:
        ours = best[group, case, "ours"]
        ratios = [f"{words} {ours / best[group, case, key]:.2f}" for key, words in rivals.items()]
        lines.append(f"| {name} | {', '.join(ratios)} |")
    return "\n".join(lines) + "\n"


def write(readme: Path, bench: Path) -> None:
    """Replace the table of the README by that of the measurements."""
    before, _, rest = readme.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    found = json.loads(bench.read_text())["results"]
    readme.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{after}")


if __name__ == "__main__":
    write(README, BENCH)
