"""How networks of norms start, and how they then learn: the study of docs/explanation/start.md.

    python benchmarks/start.py             # every question that has no answer yet; hours
    python benchmarks/start.py --only depth
    python benchmarks/start.py --table     # what results/start.json holds, as Markdown
    python benchmarks/start.py --plot      # docs/images/start.svg

A run is a question, data, a network, a seed; its answer goes to ``results/start.json`` at once, so
that an interrupted study resumes. Everything is judged on validation data, except for the question
"test", whose folds and generated data nothing was chosen on.
"""

import argparse
import json
import math
import multiprocessing
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from lpunits import param_groups
from lpunits.paper.data import load
from lpunits.paper.training.likelihood import music_nll
from lpunits.paper.training.music import Music, Prediction
from start_networks import LARGE, TABLES, folds, large, network, train

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results" / "start.json"
PLOT = ROOT / "docs" / "images" / "start.svg"
MUSIC = ("chords", "jsb", "nottingham", "musedata")
Run = tuple[Any, ...]


def classified(run: Run) -> dict[str, float]:
    """The error on what is judged, and on the training set, in %."""
    question, data, kind, depth, dropout, optimizer, seed = run
    torch.manual_seed(seed)
    if data in LARGE:
        x, y, x_judged, y_judged = large(data)
        net = network(kind, x, int(y.max()) + 1, depth, dropout, units=100)
        train(net, kind, x, y, optimizer=optimizer, epochs=20, batch=100)
    else:
        # The question "test" has folds and generated data of its own.
        draw, fold = (1 + seed // 5, seed % 5) if question == "test" else (0, seed)
        x, y, x_judged, y_judged = folds(data, draw, fold)
        net = network(kind, x, int(y.max()) + 1, depth, dropout, units=64)
        train(net, kind, x, y, optimizer=optimizer)
    with torch.no_grad():
        return {
            "error": 100 * (net(x_judged).argmax(1) != y_judged).float().mean().item(),
            "train": 100 * (net(x).argmax(1) != y).float().mean().item(),
        }


def played(run: Run) -> dict[str, Any]:
    """Validation NLL after each of four epochs, and how much of the state is saturated."""
    _, data, kind, lr, seed = run
    rolls = load(data)
    model, _, start = kind.partition(" ")
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    config = Music(
        data, model, hidden=200, units=200, output_units=200, dropout=0.1, batch=4, lr=lr,
        start=start or "spread",
    )  # fmt: skip
    net = config.net()  # with zero as the bias of its outputs: no help from the marginals
    optimizer = torch.optim.AdamW(param_groups(net, lr), fused=True)
    curve = []
    for _ in range(4):
        net.train()
        for _ in Prediction(config).gradients(net, [rolls.train], generator):
            optimizer.step()
            optimizer.zero_grad()
        curve.append(music_nll(net, rolls.valid.features).pooled)
    net.eval()
    with torch.no_grad():
        states, _ = net.rnn(pad_sequence(rolls.valid.features[:20]))  # type: ignore[operator]
    frames = torch.cat(rolls.train.features)
    often = (frames.sum(0) + 1) / (len(frames) + 2)
    marginals = music_nll(
        lambda frames: often.logit().expand_as(frames), rolls.valid.features
    ).pooled
    return {
        "curve": curve,
        "saturated": 100 * (states.abs() > 0.95).float().mean().item(),
        "marginals": marginals,
    }


# ---------------------------------------------------------------- questions

STARTS = (
    "zero",
    "spread",
    "relu",
    "maxout zero",
    "maxout spread",
    "spread, spread 0.5",
    "spread, spread 1",
    "spread, spread 4",
    "spread, large",
    "spread, deviation",
    "spread, slope",
    "spread, sums free",
    "spread, quantiles",
)
MEANS = (
    *(f"zero, {way}" for way in ("bias", "fixed mean", "running mean")),
    *(f"zero, {way}" for way in ("centred update", "sums kept", "batch", "layer")),
    *(f"spread, {way}" for way in ("no bias", "fixed mean", "running mean")),
    *(f"spread, {way}" for way in ("centred update", "sums kept", "batch", "layer")),
)
FIVE = range(5)


def questions() -> dict[str, Iterator[Run]]:
    """The runs of each question."""
    deep = ("zero", "spread", "relu", "spread, slope", "spread, deviation")
    three = ("digits", "breast cancer", "classification, 20 features")
    return {
        "test": (
            ("test", table, kind, 2, 0.0, "adamw", seed)
            for table in TABLES
            for kind in ("zero", "spread", "relu")
            for seed in range(20)
        ),
        "starts": (
            ("starts", table, kind, 2, 0.0, "adamw", seed)
            for table in TABLES
            for kind in STARTS
            for seed in FIVE
        ),
        "means": (
            ("means", table, kind, 2, 0.0, "adamw", seed)
            for table in (*three, "moons", "Friedman 1 > median")
            for kind in MEANS
            for seed in FIVE
        ),
        "depth": (
            ("depth", table, kind, depth, 0.0, "adamw", seed)
            for table in three
            for depth in (1, 2, 4, 10)
            for kind in deep
            for seed in FIVE
        ),
        "dropout": (
            ("dropout", table, kind, depth, 0.3, "adamw", seed)
            for table in three
            for depth in (2, 6)
            for kind in ("zero", "spread", "relu", "maxout zero", "maxout spread")
            for seed in FIVE
        ),
        "sgd": (
            ("sgd", table, kind, 2, 0.0, "sgd", seed)
            for table in TABLES
            for kind in ("zero", "spread", "relu", "maxout spread", "spread, no bias")
            for seed in FIVE
        ),
        "large": (
            ("large", data, kind, 2, 0.0, "adamw", seed)
            for data in LARGE
            for kind in ("zero", "spread", "relu")
            for seed in FIVE
        ),
        "music": (
            ("music", data, kind, lr, seed)
            for data in MUSIC
            for kind in ("lp spread", "lp zero", "maxout spread", "maxout zero", "tanh", "gru")
            for lr in (1e-3, 3e-3)
            for seed in (FIVE if data in ("chords", "jsb") and "lp" in kind else range(1))
            if "lp" in kind or lr == 1e-3
        ),
    }


def answer(run: Run) -> tuple[Run, dict[str, Any]]:
    """One run, on one thread."""
    torch.set_num_threads(1)
    return run, played(run) if run[0] == "music" else classified(run)


def study(only: Iterable[str], processes: int) -> None:
    """All runs that are not in the file yet."""
    records = stored()
    wanted = [run for name, runs in questions().items() if name in only for run in runs]
    missing = [run for run in wanted if key(run) not in records]
    print(f"{len(wanted)} runs, {len(missing)} of them to do")
    with multiprocessing.Pool(processes) as pool:
        for done, (run, found) in enumerate(pool.imap_unordered(answer, missing), 1):
            records[key(run)] = found
            print(f"[{done}/{len(missing)}] {key(run)}: {found}", flush=True)
            if run[0] == "music" or done % 20 == 0 or done == len(missing):
                write(records)


def key(run: Run) -> str:
    return " | ".join(map(str, run))


def stored() -> dict[str, Any]:
    return json.loads(RECORDS.read_text())["runs"] if RECORDS.exists() else {}


def write(records: dict[str, Any]) -> None:
    """All at once, or not at all."""
    runs = ",\n".join(
        f"{json.dumps(k)}: {json.dumps(_rounded(v))}" for k, v in sorted(records.items())
    )
    head = {"torch": torch.__version__, "command": "python benchmarks/start.py"}
    text = f'{{"about": {json.dumps(head)},\n"runs": {{\n{runs}\n}}}}\n'
    with tempfile.NamedTemporaryFile("w", dir=RECORDS.parent, delete=False) as file:
        file.write(text)
    os.replace(file.name, RECORDS)


def _rounded(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _rounded(value) for name, value in found.items()}
    return [round(v, 3) for v in found] if isinstance(found, list) else round(found, 3)


# ---------------------------------------------------------------- tables


def grouped() -> dict[tuple[str, ...], list[Any]]:
    """All seeds of a run together."""
    groups: dict[tuple[str, ...], list[Any]] = defaultdict(list)
    for name, found in stored().items():
        groups[tuple(name.split(" | ")[:-1])].append(found)
    return groups


def spread_of(values: list[float]) -> str:
    """Mean and standard error."""
    if len(values) < 2:
        return f"{values[0]:.1f}"
    return f"{mean(values):.1f} ± {stdev(values) / math.sqrt(len(values)):.1f}"


def tables() -> str:
    """Every question as a table: data by kind of start."""
    text = []
    groups = grouped()
    for question in questions():
        rows: dict[str, dict[str, str]] = defaultdict(dict)
        for parts, found in groups.items():
            if parts[0] != question:
                continue
            if question == "music":
                row, column = f"{parts[1]}, rate {parts[3]}", parts[2]
                cell = spread_of([f["curve"][-1] for f in found])
                cell += f" ({mean(f['saturated'] for f in found):.0f} %)"
                rows[row]["marginals"] = f"{found[0]['marginals']:.2f}"
            else:
                row = parts[1] + (
                    f", {parts[3]} layers" if question in ("depth", "dropout") else ""
                )
                column, cell = parts[2], spread_of([f["error"] for f in found])
            rows[row][column] = cell
        if not rows:
            continue
        columns = sorted({column for row in rows.values() for column in row})
        text += [f"\n### {question}\n", "| | " + " | ".join(columns) + " |"]
        text.append("|---" * (len(columns) + 1) + "|")
        for row, cells in sorted(rows.items()):
            text.append(f"| {row} | " + " | ".join(cells.get(c, "") for c in columns) + " |")
    return "\n".join(text)


def plot() -> None:
    """Errors relative to a ReLU network's, the learning of a recurrent network, and depth."""
    import matplotlib.pyplot as plt

    groups = grouped()
    inks = {"zero": "#d1495b", "spread": "#2e86ab", "relu": "#8d8d8d"}
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")

    errors = {
        (parts[1], parts[2]): mean(f["error"] for f in found)
        for parts, found in groups.items()
        if parts[0] == "test"
    }
    names = sorted(TABLES, key=lambda name: errors[name, "zero"] / errors[name, "relu"])
    for kind in ("zero", "spread"):
        ratios = [errors[name, kind] / errors[name, "relu"] for name in names]
        left.plot(ratios, range(len(names)), "o", color=inks[kind], label=f"start={kind!r}")
    left.axvline(1, color=inks["relu"], lw=1)
    left.set(xscale="log", xticks=[1, 2, 4, 8], xticklabels=["1", "2", "4", "8"])
    left.set(yticks=range(len(names)), yticklabels=names)
    left.set(xlabel="test error / that of ReLU units", title="Tables, two layers")
    left.minorticks_off()
    left.legend(frameon=False)

    for kind in ("zero", "spread", "relu"):
        depths, values = [1, 2, 4, 10], []
        for depth in depths:
            found = groups["depth", "digits", kind, str(depth), "0.0", "adamw"]
            values.append(mean(f["error"] for f in found))
        middle.plot(depths, values, "o-", color=inks[kind], label=kind)
    middle.set(yscale="log", yticks=[2, 5, 10, 20, 50], yticklabels=["2", "5", "10", "20", "50"])
    middle.set(xticks=[1, 2, 4, 10], xlabel="layers", ylabel="validation error, %", title="Digits")
    middle.minorticks_off()
    middle.text(9.9, 7, "ReLU", color=inks["relu"], ha="right")
    right.text(4, 10.8, "note marginals", color=inks["relu"], ha="right", va="top")

    for (_, data, kind, lr), found in (
        (parts, found) for parts, found in groups.items() if parts[0] == "music"
    ):
        if data != "jsb" or not kind.startswith("lp"):
            continue
        curve = [mean(values) for values in zip(*(f["curve"] for f in found), strict=True)]
        style = "-" if lr == "0.001" else "--"
        right.plot(range(1, 5), curve, style, color=inks[kind.split()[1]], label=f"rate {lr}")
        right.axhline(found[0]["marginals"], color=inks["relu"], lw=1)
    right.set(xticks=[1, 2, 3, 4], xlabel="epochs", ylabel="validation NLL")
    right.set(title="JSB, dashed: rate 0.003")
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PLOT, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(questions()), default=list(questions()))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--table", action="store_true", help="print what was found")
    parser.add_argument("--plot", action="store_true", help="draw what was found")
    args = parser.parse_args()
    if args.table:
        print(tables())
    elif args.plot:
        plot()
    else:
        study(args.only, args.processes)


if __name__ == "__main__":
    main()
