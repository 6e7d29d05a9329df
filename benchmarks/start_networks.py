"""The data, the networks and the training of the study in ``start.py``."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import sklearn.datasets
import torch
from sklearn.model_selection import StratifiedKFold
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lpunits import MLP, LpLinear, lp_pool, param_groups
from lpunits.paper.data import load
from lpunits.start import draw_, spread, spread_, statistics

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


def restart_(
    layer: LpLinear, change: str, *, width: float | None = None, small: bool = False
) -> None:
    """The start of a layer with one thing changed."""
    width = spread(layer.in_features) if width is None else width
    initial = statistics(lambda z: lp_pool(z, 3.0, dim=-2), layer.filters, width)
    between = (initial.deviation * initial.slope).sqrt()
    scale = initial.root_mean_square if small else between
    if change in ("slope", "deviation"):
        scale = getattr(initial, change)
    draw_(layer.weight, scale.expand(layer.units), zero_sum=not small and change != "sums free")
    with torch.no_grad():
        spread_(layer.center, width).div_(scale)
        if layer.bias is not None:
            layer.bias.copy_((-initial.mean / scale).expand(layer.units))


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
    if change in ("no bias", "fixed mean", "running mean"):
        sizes["bias"] = False
    if start == "zero" and change == "bias":
        net = MLP(features, [units] * depth, classes, bias=True, **sizes)
    else:
        net = MLP(features, [units] * depth, classes, start=start, **sizes)
    layers = [layer for layer in net if isinstance(layer, LpLinear)]
    for i, layer in enumerate(layers):
        small = change != "large" and (i == 0 or dropout > 0)
        if start == "zero" and change == "bias":
            restart_(layer, "deviation", width=0.0)
        elif change.startswith("spread"):
            restart_(layer, change, width=float(change.split()[1]), small=small)
        elif change in ("large", "sums free"):
            restart_(layer, change, small=small)
        elif change in ("slope", "deviation") and not small:
            restart_(layer, change)
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
                with torch.no_grad():
                    x = layer(x)
                shifted.append(Shift(x.mean(0), 0.1 if change == "running mean" else 0.0))
                x = shifted[-1].eval()(x)
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
                    lp = isinstance(module, LpLinear)
                    moved = -module.center.grad if lp else module.bias.grad
                    module.weight.grad -= moved.unsqueeze(-1) * inputs[module]
            chosen.step()
            schedule.step()
            if kind.endswith("sums kept"):
                with torch.no_grad():
                    for module in later:
                        module.weight -= module.weight.mean(-1, keepdim=True)
    net.eval()
