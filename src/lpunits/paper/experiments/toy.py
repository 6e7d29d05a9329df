"""A toy with a known answer: does a unit find the order of the norm that made the data?

Two classes lie inside and outside a superellipse that is rotated, stretched and shifted. One Lp
unit with two filters and an initial order of 2 learns axes, centre and order from 2000 points.
In the plane a superellipse of order p is close to one of the dual order p / (p - 1) rotated by
45 degrees (at 1 and inf both are squares), so training may end in that shape: of several random
starts the one with the lowest training loss is taken.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import cross_entropy

from lpunits import MLP, geometry, lp_pool
from lpunits.paper.experiments.plane import POINTS, trained
from lpunits.paper.report.figures import QUIET, panels
from lpunits.paper.report.section import Experiment, Picture, Section, Table, grouped
from lpunits.paper.statistics import spread
from lpunits.paper.training.job import Job
from lpunits.paper.training.trial import Result, Scale, Trial, check_at_least

ORDERS = (1.2, 2.0, 4.0, 10.0)


@dataclass(frozen=True)
class Toy:
    """One dataset, made by the seed, and how a unit is fitted to it."""

    order: float
    starts: int = 8
    points: int = 2000
    test_points: int = 10_000
    start_order: float = 2.0
    iterations: int = 200

    datasets = ()
    multiplications = 0  # the net is so small that one thread is fastest

    def __post_init__(self) -> None:
        check_at_least(self, 1, "starts", "points", "test_points", "iterations")

    @property
    def label(self) -> str:
        """The order that is to be found."""
        return f"a norm of order {self.order:g}"

    def run(self, seed: int, job: Job) -> dict[str, Any]:
        """The best of several random starts on one dataset."""
        x, y = self.data(seed)
        best, lowest = None, math.inf
        for start in range(self.starts):
            loss, net = self.fit(x[: self.points], y[: self.points], start)
            if loss < lowest:
                best, lowest = net, loss
            job.epoch(start + 1, self.starts, {"lowest_loss": lowest})
        if best is None:
            return {"diverged": f"no loss was finite, in {self.starts} starts"}
        wrong = best(x).argmax(1) != y
        return {
            "learned_order": best[0].order.item(),
            "train_errors": int(wrong[: self.points].sum()),
            "test_error": wrong[self.points :].double().mean().item(),
            "net": {name: value.tolist() for name, value in best.state_dict().items()},
        }

    def data(self, seed: int) -> tuple[Tensor, Tensor]:
        """Points uniform on a square, labelled 1 outside a superellipse; test points come last."""
        generator = torch.Generator().manual_seed(seed)
        count = self.points + self.test_points
        x = 3 * torch.rand(count, 2, generator=generator, dtype=torch.float64) - 1.5
        turn, shift_x, shift_y = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
        angle = torch.tensor(turn * math.pi)
        axes = torch.stack([angle.cos(), angle.sin(), -angle.sin(), angle.cos()]).reshape(2, 2)
        shift = 0.4 * torch.tensor([shift_x, shift_y]) - 0.2
        z = (x - shift) @ axes.double() * torch.tensor([1.0, 1.4])
        return x, (lp_pool(z, self.order) > 0.75).long()

    def fit(self, x: Tensor, y: Tensor, start: int) -> tuple[float, MLP]:
        """Training loss and net after L-BFGS from one random start."""
        torch.manual_seed(start)
        net = self.net()
        optimizer = torch.optim.LBFGS(
            net.parameters(), max_iter=self.iterations, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            optimizer.zero_grad()
            value = cross_entropy(net(x), y)
            value.backward()
            return value

        optimizer.step(loss)
        return float(loss().detach()), net

    def net(self) -> MLP:
        """One Lp unit, two filters, two classes."""
        paper: dict[str, Any] = {"order": self.start_order, "start": "zero"}
        return MLP(2, [1], 2, filters=2, dtype=torch.float64, **paper)


def trials(scale: Scale) -> list[Trial]:
    """Several datasets of each order."""
    if scale == "smoke":
        return [Trial(Toy(p, starts=1, iterations=60), seed) for p in (2.0, 4.0) for seed in (0, 1)]
    seeds = range(3 if scale == "quick" else 10)
    return [Trial(Toy(p), seed) for p in ORDERS for seed in seeds]


def section(results: Sequence[Result]) -> Section:
    """Learned orders beside the true ones."""
    groups, rows, off = grouped(results, lambda config: config.order), [], {}
    for order, found in groups.items():
        learned, mistakes, errors = (
            [r.outcome[name] for r in found]
            for name in ("learned_order", "train_errors", "test_error")
        )
        off[order] = abs(statistics.fmean(learned) / order - 1)
        numbers = spread(learned), " ".join(map(str, mistakes)), spread(errors, ".2%")
        rows.append([f"{order:g}", *numbers])
    far = max(off, key=lambda order: off[order])
    close = sum(distance < 0.1 for distance in off.values())
    config = results[0].config
    note = (
        f"The best of {config.starts} random starts by training loss, on {config.points:,} points; "
        f"tested on {config.test_points:,} new ones."
    )
    head = ["true order", "learned order", "training errors", "test error"]
    alt = "Datasets, each with the boundary that one Lp unit learned"
    return Section(
        f"For {close} of {len(off)} orders the mean learned order is within 10 % of the true one. "
        f"The largest deviation, {off[far]:.0%}, is at p = {far:g}.",
        [Table(head, rows)],
        [Picture("toy", figure(groups), alt)],
        [note],
    )


def figure(groups: Mapping[float, Sequence[Result]]) -> Figure:
    """One panel per order: the data, and the learned boundary."""
    fig, drawn = panels(1, len(groups), 2.75, 3.2, frame=True)
    for axes, (order, (result, *_)) in zip(drawn, groups.items(), strict=True):
        x, y = result.config.data(result.trial.seed)
        geometry.draw_points(axes, x, y, POINTS[:2], 500)
        geometry.draw_boundary(axes, trained(result), (-1.5, 1.5, -1.5, 1.5))
        axes.set(aspect="equal", xticks=[], yticks=[])
        axes.spines[:].set_color(QUIET)
        learned = result.outcome["learned_order"]
        axes.set_title(f"made with p = {order:g}, learned {learned:.2f}", fontsize=10)
    return fig


EXPERIMENT = Experiment(
    name="toy",
    title="Learning the order of a known norm",
    about="Not in the paper, a check with a known answer: one Lp unit with an initial order of 2 "
    "learns axes, centre and order of the superellipse that separates two classes.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 1, "paper": 4},
)
