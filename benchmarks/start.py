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
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import sklearn.datasets
import torch
from sklearn.model_selection import StratifiedKFold
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from lpunits import MLP, LpLinear, param_groups
from lpunits.paper.data import load
from lpunits.paper.training.likelihood import music_nll
from lpunits.paper.training.music import Music, Prediction
from lpunits.start import deviation, draw_, projections, spread, spread_

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results" / "start.json"
PLOT = ROOT / "docs" / "images" / "start.svg"
Run = tuple[Any, ...]

# ---------------------------------------------------------------- data

TABLES: dict[str, Callable[[int], Any]] = {
    "iris": lambda seed: sklearn.datasets.load_iris(return_X_y=True),
    "wine": lambda seed: sklearn.datasets.load_wine(return_X_y=True),
    "breast cancer": lambda seed: sklearn.datasets.load_breast_cancer(return_X_y=True),
    "digits": lambda seed: sklearn.datasets.load_digits(return_X_y=True),
    "diabetes > median": lambda seed: _above_median(
        *sklearn.datasets.load_diabetes(return_X_y=True)
    ),
    "moons": lambda seed: sklearn.datasets.make_moons(1000, noise=0.25, random_state=seed),
    "circles": lambda seed: sklearn.datasets.make_circles(
        1000, noise=0.1, factor=0.6, random_state=seed
    ),
    "classification, 20 features": lambda seed: sklearn.datasets.make_classification(
        1000, 20, n_informative=10, n_classes=3, random_state=seed
    ),
    "classification, 30 features": lambda seed: sklearn.datasets.make_classification(
        1500, 30, n_informative=8, n_redundant=5, n_classes=4, flip_y=0.05, random_state=seed
    ),
    "Gaussian quantiles": lambda seed: sklearn.datasets.make_gaussian_quantiles(
        n_samples=1000, n_features=6, n_classes=3, random_state=seed
    ),
    "Hastie 10.2": lambda seed: sklearn.datasets.make_hastie_10_2(1000, random_state=seed),
    "Friedman 1 > median": lambda seed: _above_median(
        *sklearn.datasets.make_friedman1(1000, noise=1.0, random_state=seed)
    ),
    "blobs": lambda seed: sklearn.datasets.make_blobs(
        1000, 8, centers=6, cluster_std=6.0, random_state=seed
    ),
}
LARGE = {"mnist": {}, "covertype": {}, "pentomino": {}}
MUSIC = ("chords", "jsb", "nottingham", "musedata")


def _above_median(features: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return features, targets > np.median(targets)


@cache
def folds(table: str, draw: int, seed: int) -> tuple[Tensor, ...]:
    """Standardised features and targets of 4/5 of a table, and those of the fifth ``seed``."""
    x, y = TABLES[table](draw)
    y = np.unique(y, return_inverse=True)[1]
    split = StratifiedKFold(5, shuffle=True, random_state=draw).split(x, y)
    train, judged = list(split)[seed]
    return _standardised(x[train], y[train], x[judged], y[judged])


@cache
def large(name: str) -> tuple[Tensor, ...]:
    """10,000 rows to train on and 10,000 of the validation set."""
    data = load(name)
    rows = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))[:10_000]
    x, y = data.train.features[rows].float(), data.train.targets[rows]
    judged = data.valid.features[:10_000].float(), data.valid.targets[:10_000]
    if name == "covertype":
        return _standardised(*(np.asarray(t) for t in (x, y, *judged)))
    center = x.mean(0)
    return x - center, y, judged[0] - center, judged[1]


def _standardised(x: Any, y: Any, x_judged: Any, y_judged: Any) -> tuple[Tensor, ...]:
    center, scale = x.mean(0), x.std(0)
    scale[scale == 0] = 1
    features = ((part - center) / scale for part in (x, x_judged))
    x, x_judged = (torch.tensor(part, dtype=torch.float32) for part in features)
    return x, torch.tensor(y), x_judged, torch.tensor(y_judged)


# ---------------------------------------------------------------- networks of one kind of start


class Shift(nn.Module):
    """Takes a mean away: a constant, or with a rate the running mean of what comes in."""

    def __init__(self, mean: Tensor, rate: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Subtract the mean."""
        if self.training and self.rate:
            self.mean.lerp_(x.detach().mean(0), self.rate)
        return x - self.mean


def draw_again_(
    layer: LpLinear, width: float | None = None, *, zero_sum: bool = True, slopes: bool = False
) -> None:
    """The layer's start with another spread of centres, other filters or another scale."""
    width = spread(layer.in_features) if width is None else width
    z = projections(layer.filters, width).float().requires_grad_()
    u = (z.abs() ** 3).mean(-2) ** (1 / 3)
    (slope,) = torch.autograd.grad(u.sum(), z)
    scale = slope.square().sum(-2).mean().sqrt() if slopes else deviation(u.detach())
    draw_(layer.weight, scale.expand(layer.units), zero_sum)
    spread_(layer.center, width / scale.item())


def network(kind: str, x: Tensor, classes: int, depth: int, dropout: float, units: int) -> MLP:
    """A network by the name of its start. Rectifiers get as many weights."""
    features = x.shape[1]
    sizes: dict[str, Any] = {"dropout": dropout}
    if kind == "relu":
        goal = 2 * units * features + (depth - 1) * 2 * units**2 + units * classes
        half = (features + classes) / (2 * max(depth - 1, 1))
        width = (
            math.sqrt(half**2 + goal / (depth - 1)) - half
            if depth > 1
            else goal / (features + classes)
        )
        return MLP(features, [math.ceil(width)] * depth, classes, activation="relu", **sizes)
    if kind.startswith("maxout"):
        start = kind.split()[1]
        return MLP(features, [units] * depth, classes, activation="maxout", start=start, **sizes)
    start, _, change = kind.partition(", ")
    if change in ("batch", "layer"):
        sizes["normalization"] = change
    if change == "bias":
        sizes["bias"] = True
        net = MLP(features, [units] * depth, classes, start="spread", **sizes)
        for layer in net:
            if isinstance(layer, LpLinear) and start == "zero":
                draw_again_(layer, 0.0)
        return net
    net = MLP(features, [units] * depth, classes, start=start, **sizes)
    layers = [layer for layer in net if isinstance(layer, LpLinear)]
    for layer in layers:
        if change.startswith("spread"):
            draw_again_(layer, float(change.split()[1]))
        elif change == "sums free":
            draw_again_(layer, zero_sum=False)
        elif change == "slopes":
            draw_again_(layer, slopes=True)
    if change == "quantiles":
        # The projections of examples: quantiles of the data, as seen by each filter.
        with torch.no_grad():
            for layer in layers:
                z = x @ layer.weight.flatten(0, 1).t()
                rows = torch.randint(len(x), (z.shape[1],))
                layer.center.copy_(z[rows, range(z.shape[1])].view_as(layer.center))
                x = layer(x)
    if change in ("fixed mean", "running mean"):
        shifted: list[nn.Module] = []
        for layer in net:
            shifted.append(layer)
            if isinstance(layer, LpLinear):
                outputs = layer.initial_outputs()
                start_mean = (outputs.mean((0, 1)) / deviation(outputs)).float()
                shifted.append(Shift(start_mean, 0.1 if change == "running mean" else 0.0))
        return nn.Sequential(*shifted)  # type: ignore[return-value]
    return net


# ---------------------------------------------------------------- training


def train(
    net: nn.Module,
    kind: str,
    x: Tensor,
    y: Tensor,
    *,
    optimizer: str,
    epochs: int = 40,
    batch: int = 32,
    lr: float | None = None,
) -> None:
    """AdamW at 1e-3, or SGD with momentum .9 at .05; cosine decay over all steps."""
    lr = lr or {"adamw": 1e-3, "sgd": 0.05}[optimizer]
    groups = param_groups(net, lr)
    chosen: torch.optim.Optimizer = (
        torch.optim.AdamW(groups, fused=True)
        if optimizer == "adamw"
        else torch.optim.SGD(groups, momentum=0.9)
    )
    steps = epochs * math.ceil(len(x) / batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(chosen, steps)
    later = [m for m in net if isinstance(m, LpLinear | nn.Linear)][1:]
    if kind.endswith("centred update"):
        # Before a step the gradient of W becomes that of W (x - mean x) + b'.
        inputs: dict[nn.Module, Tensor] = {}
        for module in later:
            module.register_forward_pre_hook(
                lambda module, given: inputs.__setitem__(module, given[0].detach().mean(0))
            )
    net.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch):
            loss = cross_entropy(net(x[rows]), y[rows])
            chosen.zero_grad()
            loss.backward()
            if kind.endswith("centred update"):
                for module in later:
                    moved = (
                        -module.center.grad if isinstance(module, LpLinear) else module.bias.grad
                    )
                    module.weight.grad -= moved.unsqueeze(-1) * inputs[module]
            chosen.step()
            schedule.step()
            if kind.endswith("sums kept"):
                with torch.no_grad():
                    for module in later:
                        module.weight -= module.weight.mean(-1, keepdim=True)
    net.eval()


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
    "spread, sums free",
    "spread, slopes",
    "spread, quantiles",
)
MEANS = (
    *(f"zero, {way}" for way in ("bias", "fixed mean", "running mean")),
    *(f"zero, {way}" for way in ("centred update", "sums kept", "batch", "layer")),
    *(f"spread, {way}" for way in ("bias", "fixed mean", "running mean")),
    *(f"spread, {way}" for way in ("centred update", "sums kept", "batch", "layer")),
)
FIVE = range(5)


def questions() -> dict[str, Iterator[Run]]:
    """The runs of each question."""
    deep = ("zero", "spread", "relu", "spread, spread 1")
    few = ("digits", "breast cancer", "classification, 20 features")
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
            for table in (*few, "moons", "Friedman 1 > median")
            for kind in MEANS
            for seed in FIVE
        ),
        "depth": (
            ("depth", table, kind, depth, 0.0, "adamw", seed)
            for table in few
            for depth in (1, 2, 4, 10)
            for kind in deep
            for seed in FIVE
        ),
        "dropout": (
            ("dropout", table, kind, depth, 0.3, "adamw", seed)
            for table in few
            for depth in (2, 6)
            for kind in ("zero", "spread", "relu", "maxout zero", "maxout spread")
            for seed in FIVE
        ),
        "sgd": (
            ("sgd", table, kind, 2, 0.0, "sgd", seed)
            for table in TABLES
            for kind in ("zero", "spread", "relu")
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
    right.set(title="JSB Chorales, DOT-RNN (dashed: 3 x the rate)")
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
