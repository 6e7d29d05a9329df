"""A toy with a known answer: does a unit find the order of the norm that made the data?

Two classes lie inside and outside a superellipse that is rotated, stretched and shifted. One Lp
unit with two filters and an initial order of 2 learns axes, centre and order from 2000 points.
In the plane a superellipse of order p is close to one of the dual order p / (p - 1) rotated by
45 degrees (at 1 and inf both are squares), so training may end in that shape: of several random
starts the one with the lowest training loss is taken.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import cross_entropy

from lpunits import MLP, geometry, lp_pool
from lpunits.paper.experiments.plane import POINTS
from lpunits.paper.report.figures import QUIET, panels
from lpunits.paper.report.section import Experiment, Picture, Section, Table
from lpunits.paper.statistics import spread
from lpunits.paper.training.job import Job
from lpunits.paper.training.trial import Result, Scale, Trial

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

    @property
    def label(self) -> str:
        """A short description."""
        return f"a norm of order {self.order:g}"

    @property
    def datasets(self) -> tuple[str, ...]:
        """None: it makes its own data."""
        return ()

    multiplications = 0  # the net is so small that one thread is fastest

    def run(self, seed: int, job: Job) -> dict[str, Any]:
        """The best of several random starts on one dataset."""
        x, y = self.data(seed)
        nets, losses = [], []
        for start in range(self.starts):
            loss, net = self.fit(x[: self.points], y[: self.points], start)
            nets.append(net)
            losses.append(loss if math.isfinite(loss) else math.inf)
            job.epoch(start + 1, self.starts, {"lowest_loss": min(losses)})
        best = losses.index(min(losses))
        if math.isinf(losses[best]):
            return {"diverged": f"no loss was finite, in {self.starts} starts"}
        wrong = nets[best](x).argmax(1) != y
        return {
            "learned_order": nets[best][0].order.item(),
            "train_errors": int(wrong[: self.points].sum()),
            "test_error": wrong[self.points :].double().mean().item(),
            "net": {name: value.tolist() for name, value in nets[best].state_dict().items()},
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
        start: dict[str, Any] = {"order": self.start_order, "start": "zero"}  # as in the paper
        return MLP(2, [1], 2, filters=2, dtype=torch.float64, **start)


def trials(scale: Scale) -> list[Trial]:
    """Several datasets of each order."""
    if scale == "smoke":
        return [Trial(Toy(p, starts=1, iterations=60), seed) for p in (2.0, 4.0) for seed in (0, 1)]
    seeds = range(3 if scale == "quick" else 10)
    return [Trial(Toy(p), seed) for p in ORDERS for seed in seeds]


def section(results: Sequence[Result]) -> Section:
    """Learned orders beside the true ones."""
    orders = sorted({r.config.order for r in results})
    rows, off = [], {}
    for order in orders:
        found = [r.outcome for r in results if r.config.order == order]
        learned = [o["learned_order"] for o in found]
        off[order] = abs(sum(learned) / len(learned) / order - 1)
        errors = [o["test_error"] for o in found]
        mistakes = " ".join(str(o["train_errors"]) for o in found)
        rows.append([f"{order:g}", spread(learned), mistakes, spread(errors, ".2%")])
    far = max(off, key=lambda order: off[order])
    close = [order for order in orders if off[order] < 0.1]
    config = results[0].config
    note = (
        f"The best of {config.starts} random starts by training loss, on {config.points:,} points; "
        f"tested on {config.test_points:,} new ones."
    )
    head = ["true order", "learned order", "training errors", "test error"]
    alt = "Datasets, each with the boundary that one Lp unit learned"
    return Section(
        f"For {len(close)} of {len(orders)} orders the mean learned order is within 10 % of the "
        f"true one. The largest deviation, {off[far]:.0%}, is at p = {far:g}.",
        [Table(head, rows)],
        [Picture("toy", figure(results, orders), alt)],
        [note],
    )


def figure(results: Sequence[Result], orders: Sequence[float]) -> Figure:
    """One panel per order: the data, and the learned boundary."""
    fig, drawn = panels(1, len(orders), 2.75, 3.2, frame=True)
    grid = torch.linspace(-1.5, 1.5, 301, dtype=torch.float64)
    xy = torch.cartesian_prod(grid, grid)
    for axes, order in zip(drawn, orders, strict=True):
        result = next(r for r in results if r.config.order == order)
        x, y = result.config.data(result.trial.seed)
        geometry.draw_points(axes, x, y, POINTS[:2], 500)
        net = result.config.net()
        saved = result.outcome["net"]
        net.load_state_dict({k: torch.tensor(v, dtype=torch.float64) for k, v in saved.items()})
        score = (net(xy) @ torch.tensor([-1.0, 1.0]).double()).detach().reshape(301, 301)
        axes.contour(grid.numpy(), grid.numpy(), score.T.numpy(), [0], colors="black")
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
