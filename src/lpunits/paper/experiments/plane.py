"""What the figures of Section 4 share: a small net, fitted to a 2-D set by natural gradients."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from lpunits import MLP, LpLinear
from lpunits.optim import NaturalConjugateGradient
from lpunits.paper import data, playground
from lpunits.paper.report.figures import COLORS
from lpunits.paper.training.job import Job
from lpunits.paper.training.trial import Result, Scale

GROUPED = ("lp", "l2", "maxout")  # two projections go into each of these units, into others one
# Points keep out of the colours that stand for kinds of units; their markers differ, too.
POINTS = ("#8f8f8f", "#b39b3e", "#5f8fa3")
UNITS = (COLORS["lp"], "#aa4499")  # two Lp units in one picture
CLASSES = {"two-gaussians": 2, "three-gaussians": 3, "curve": 2, "teacher": 2}


@dataclass(frozen=True)
class Plane:
    """A net with one hidden layer on a 2-D set.

    Args:
        data: The set, by its name in ``lpunits data``.
        activation: The kind of the hidden units.
        projections: Of the hidden layer: as many units, or half as many if they pool pairs.
        orders: Orders that stay as they are; if none are given, they start at 3 and are learned.
        data_seed: Makes the points.
        points: How many to train on.
        steps: Of natural conjugate gradient, at most; a stall ends it earlier.
        loss: Stop at this loss; by default at zero training errors.
    """

    data: str
    activation: str
    projections: int
    orders: tuple[float, ...] = ()
    data_seed: int = 0
    points: int = 5000
    steps: int = 200
    loss: float = -1.0

    @property
    def label(self) -> str:
        """What it is, in a few words."""
        again = f" {self.data_seed}" if self.data_seed else ""
        orders = "".join(f" {order:g}" for order in self.orders)
        return f"{self.data}{again}, {self.projections} projections, {self.activation}{orders}"

    @property
    def datasets(self) -> tuple[str, ...]:
        """The one."""
        return (self.data,)

    multiplications = 0  # the net is so small that one thread is fastest

    def run(self, seed: int, job: Job) -> dict[str, Any]:
        """Errors, orders and weights after training."""
        found = data.load(self.data, points=self.points, seed=self.data_seed)
        train, test = found.train, found.test
        torch.manual_seed(seed)
        net = self.net()
        before = _orders(net)
        if CLASSES[self.data] == 2:
            optimizer = NaturalConjugateGradient(net, loss="logistic")
            targets = train.targets.unsqueeze(1)
        else:
            optimizer = NaturalConjugateGradient(net)
            targets = train.targets

        def errors(part: Any) -> int:
            with torch.no_grad():
                scores = net(part.features)
            guess = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(1)
            return int((guess != part.targets).sum())

        stop = optimizer.minimize(
            train.features,
            targets,
            steps=self.steps,
            target=self.loss if self.loss >= 0 else lambda: errors(train) == 0,
        )
        outcome = {
            "train_errors": errors(train),
            "test_errors": errors(test),
            "loss": stop.loss,
            "steps": stop.steps,
            "stopped": stop.reason,
            "orders": {"initial": before, "final": _orders(net)},
            "net": {name: value.tolist() for name, value in net.named_parameters()},
        }
        if not math.isfinite(stop.loss):
            return {"diverged": f"the loss was {stop.loss} after {stop.steps} steps"}
        return outcome

    def net(self) -> MLP:
        """An untrained net."""
        grouped = self.activation in GROUPED
        options: dict[str, Any] = {}
        if self.orders:
            options = {"order": list(self.orders), "learn_order": False}
        classes = CLASSES[self.data]
        return MLP(
            2,
            [self.projections // 2 if grouped else self.projections],
            1 if classes == 2 else classes,
            activation=self.activation,
            start="zero",  # as in the paper
            **options,
        )


def curve_net(
    activation: str, projections: int, scale: Scale, data: str = "curve", data_seed: int = 0
) -> Plane:
    """A net of Fig. 4; at ``smoke`` it sees few points, for a few steps."""
    if scale == "smoke":
        return Plane(data, activation, projections, data_seed=data_seed, points=300, steps=15)
    return Plane(data, activation, projections, data_seed=data_seed)


def trained(result: Result) -> MLP:
    """The net of a record."""
    net: MLP = result.config.net()
    saved = {name: torch.tensor(value) for name, value in result.outcome["net"].items()}
    net.load_state_dict(saved, strict=False)  # orders that stay are in the config
    return net


def playground_link(*results: Result) -> str:
    """Opens the nets of one or two records, which have the same data, in the playground."""
    config = results[0].config
    seed = config.data_seed
    nets = map(trained, results)
    return playground.link(*nets, data=config.data, points=config.points, draw=seed)


def best(results: Iterable[Result]) -> Result:
    """The result with the fewest training errors; of those, the one with the lowest loss."""
    return min(results, key=lambda r: (r.outcome["train_errors"], r.outcome["loss"]))


def order_name(p: float) -> str:
    """An order, as it is written in a figure."""
    return "∞" if math.isinf(p) else f"{p:.3g}"


def _orders(net: MLP) -> list[float | str]:
    orders = [p for layer in net if isinstance(layer, LpLinear) for p in layer.order.tolist()]
    return ["inf" if math.isinf(p) else p for p in orders]
