"""What the figures of Section 4 share: a small net on 2-D data, and how it is drawn."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from torch import Tensor

from lpunits import MLP, LpLinear, geometry
from lpunits.optim import NaturalConjugateGradient
from lpunits.paper import data, playground
from lpunits.paper.report.figures import QUIET, panels
from lpunits.paper.training.job import Job
from lpunits.paper.training.trial import Result, Scale, Trial

GROUPED = ("lp", "l2", "maxout")  # these units pool two projections, the others have one
# Visible on white and on near-black. The markers of the classes differ, too.
POINTS = ("#4a90c8", "#d9605a", "#4d9f62")
UNITS = ("#a04fc4", "#0f9e90")  # two Lp units in one picture
Extent = tuple[float, float, float, float]  # left, right, bottom, top
EXTENT = (-4.2, 4.2, -3.4, 3.4)  # of the Gaussian classes
CLASSES = {"two-gaussians": 2, "three-gaussians": 3, "curve": 2, "teacher": 2}


@dataclass(frozen=True)
class Plane:
    """A net with one hidden layer on 2-D data.

    Args:
        data: The dataset, by its name in ``lpunits data``.
        activation: The kind of the hidden units.
        projections: Of the hidden layer: as many units, or half as many if they pool pairs.
        orders: Fixed orders; if none are given, orders start at 3 and are learned.
        data_seed: The random seed of the points.
        points: How many to train on.
        steps: Of natural conjugate gradient, at most; it ends earlier if it makes no progress.
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

    multiplications = 0  # the net is so small that one thread is fastest

    @property
    def label(self) -> str:
        """A short description."""
        draw = f" {self.data_seed}" if self.data_seed else ""
        orders = "".join(f" {order:g}" for order in self.orders)
        return f"{self.data}{draw}, {self.projections} projections, {self.activation}{orders}"

    @property
    def datasets(self) -> tuple[str, ...]:
        """The one dataset."""
        return (self.data,)

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

        def errors(part: data.Split[Tensor]) -> int:
            return int((classes(net, part.features) != part.targets).sum())

        stop = optimizer.minimize(
            train.features,
            targets,
            steps=self.steps,
            target=self.loss if self.loss >= 0 else lambda: errors(train) == 0,
        )
        if not math.isfinite(stop.loss):
            return {"diverged": f"the loss was {stop.loss} after {stop.steps} steps"}
        return {
            "train_errors": errors(train),
            "test_errors": errors(test),
            "loss": stop.loss,
            "steps": stop.steps,
            "stopped": stop.reason,
            "orders": {"initial": before, "final": _orders(net)},
            "net": {name: value.tolist() for name, value in net.named_parameters()},
        }

    def net(self) -> MLP:
        """An untrained net."""
        grouped = self.activation in GROUPED
        units = self.projections // 2 if grouped else self.projections
        options: dict[str, Any] = {"activation": self.activation, "start": "zero"}  # as the paper
        if self.orders:
            options |= {"order": list(self.orders), "learn_order": False}
        outputs = 1 if CLASSES[self.data] == 2 else CLASSES[self.data]
        return MLP(2, [units], outputs, **options)


def gaussian_trials(configs: Collection[Plane], scale: Scale) -> list[Trial]:
    """Several seeds of each net of Figs. 2 and 3, of which the best is drawn.

    With a few seeds it may be a shape that is much larger than the picture.
    """
    seeds = range(1 if scale == "smoke" else 20)
    return [Trial(config, seed) for config in configs for seed in seeds]


def curve_net(
    activation: str, projections: int, scale: Scale, data: str = "curve", data_seed: int = 0
) -> Plane:
    """A net of Fig. 4; at the scale smoke it has 300 points and 15 steps."""
    net = Plane(data, activation, projections, data_seed=data_seed)
    return replace(net, points=300, steps=15) if scale == "smoke" else net


def trained(result: Result) -> MLP:
    """The net of a record."""
    net: MLP = result.config.net()
    weights: dict[str, Any] = result.outcome["net"]
    saved = {name: torch.tensor(value, dtype=torch.float64) for name, value in weights.items()}
    net.load_state_dict(saved, strict=False)  # fixed orders are in the config
    return net


def playground_link(*results: Result) -> str:
    """Opens the nets of one or two records, which have the same data, in the playground."""
    config, nets = results[0].config, map(trained, results)
    return playground.link(*nets, data=config.data, points=config.points, draw=config.data_seed)


def classes(net: MLP, points: Tensor) -> Tensor:
    """The class that the net gives to each point. One output is read as log-odds."""
    with torch.no_grad():
        scores: Tensor = net(points)
    return (scores[:, 0] > 0).long() if scores.shape[1] == 1 else scores.argmax(1)


def best(results: Iterable[Result]) -> Result:
    """The result with the fewest training errors; of those, the one with the lowest loss."""
    return min(results, key=lambda r: (r.outcome["train_errors"], r.outcome["loss"]))


def compact(results: Sequence[Result]) -> Result:
    """Of the nets with the fewest training errors, the one with the smallest shapes."""
    if results[0].config.activation != "lp":
        return best(results)
    fewest = min(r.outcome["train_errors"] for r in results)
    equal = [r for r in results if r.outcome["train_errors"] == fewest]
    # The size is the longest side of the boxes around the shapes.
    return min(equal, key=lambda r: max(float(np.ptp(c, axis=0).max()) for c in outlines(r)))


def outlines(result: Result, extent: Extent = EXTENT) -> list[geometry.Points]:
    """The superellipse of each Lp unit of a net, at its level on the boundary in a picture."""
    net = trained(result)
    levels = geometry.levels(net, extent)
    return [
        curve
        for unit, level in zip(geometry.units(net), levels, strict=True)
        for curve in unit.curve(level, reach=100.0)
    ]


def around(shown: Collection[Result], most: float) -> Extent:
    """A part of the plane with all points and all shapes, at most ``most`` times :data:`EXTENT`."""
    extent = EXTENT
    for _ in range(2):  # in a larger picture more of the boundary counts, so shapes may be larger
        ends = np.array(EXTENT)
        for result in shown:
            if result.config.activation == "lp":
                for curve in outlines(result, extent):
                    ends[::2] = np.minimum(ends[::2], curve.min(0) - 0.3)
                    ends[1::2] = np.maximum(ends[1::2], curve.max(0) + 0.3)
        limits = most * abs(np.array(EXTENT))
        left, right, bottom, top = np.clip(ends, -limits, limits).tolist()
        extent = left, right, bottom, top
    return extent


def figure(
    shown: Mapping[str, Result],
    extent: Extent,
    size: tuple[float, float],
    most: int,
    *,
    shapes: bool = True,
    rings: bool = False,
) -> Figure:
    """A panel for each net: points, the region of each class, the boundary, and the Lp units.

    Args:
        shown: The trained nets, by the beginning of their titles.
        extent: The part of the plane to draw.
        size: Of a panel, in inches.
        most: How many points to draw, at most.
        shapes: Draw the superellipse of each unit; its centre and axes are always drawn.
        rings: Draw a ring around each training error.
    """
    fig, drawn = panels(1, len(shown), *size, frame=True)
    for axes, (name, result) in zip(drawn, shown.items(), strict=True):
        config, net, errors = result.config, trained(result), result.outcome["train_errors"]
        train = data.load(config.data, points=config.points, seed=config.data_seed).train
        axes.set(aspect="equal", xticks=[], yticks=[], xlim=extent[:2], ylim=extent[2:])
        axes.set_title(f"{name}: {errors} error{'s' * (errors != 1)}", fontsize=10)
        axes.spines[:].set_color(QUIET)
        grid = torch.cartesian_prod(
            *(torch.linspace(*ends, 300) for ends in (extent[:2], extent[2:]))
        )
        tints = np.array([to_rgba(color, 0.16) for color in POINTS])
        image = tints[classes(net, grid).reshape(300, 300).T]
        axes.imshow(image, origin="lower", extent=extent, interpolation="nearest")
        colors = POINTS[: CLASSES[config.data]]
        geometry.draw_points(axes, train.features, train.targets, colors, most)
        geometry.draw_boundary(axes, net, extent)
        if config.activation == "lp":
            _draw_units(axes, net, extent, shapes)
        if rings:
            wrong = classes(net, train.features) != train.targets
            x, y = train.features[wrong].numpy().T
            axes.plot(x, y, "o", ms=6, mfc="none", mec="black", mew=0.8)
    return fig


def _draw_units(axes: Axes, net: MLP, extent: Extent, shapes: bool) -> None:
    found = zip(geometry.units(net), geometry.levels(net, extent), UNITS, strict=False)
    for unit, level, color in found:
        geometry.draw_unit(axes, unit, level, color=color, shape=shapes)
        if shapes:
            axes.plot([], [], "--", color=color, label=f"p = {order_name(unit.order)}")
    if shapes:
        below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "ncols": 2}
        axes.legend(**below, frameon=False, labelcolor="linecolor")


def order_name(p: float) -> str:
    """An order, as it is written in a figure."""
    return "∞" if math.isinf(p) else f"{p:.3g}"


def _orders(net: MLP) -> list[float | str]:
    orders = [p for layer in net if isinstance(layer, LpLinear) for p in layer.order.tolist()]
    return ["inf" if math.isinf(p) else p for p in orders]
