"""A toy with a known answer: does a unit find the order of the norm that made the data?

Two classes lie inside and outside a superellipse, turned, stretched and shifted. One Lp unit with
two filters, which starts at p = 2, has to find axes, centre and order from 2000 labelled points.
In the plane a superellipse of order p looks much like one of the dual order p / (p - 1) turned by
45 degrees (at 1 and inf both are squares), so training may end in that shape: of several starts the
one with the lowest training loss is taken.
"""

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import cross_entropy

from lpunits import MLP, LpLinear, lp_pool


@dataclass(frozen=True)
class Toy:
    """The settings; every number that the result depends on."""

    orders: tuple[float, ...] = (1.2, 2.0, 4.0, 10.0)
    seeds: tuple[int, ...] = (0, 1, 2)
    starts: int = 8
    points: int = 2000
    test_points: int = 10_000
    start_order: float = 2.0
    iterations: int = 200


@dataclass(frozen=True)
class Result:
    """One data set, and the net that was found for it."""

    true_order: float
    seed: int
    learned_order: float
    train_errors: int
    test_error: float
    net: MLP


def data(order: float, seed: int, points: int, test_points: int) -> tuple[Tensor, Tensor]:
    """Points uniform on a square, labelled 1 outside a superellipse; the test points come last."""
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.rand(points + test_points, 2, generator=generator, dtype=torch.float64) - 1.5
    turn, shift_x, shift_y = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
    angle = torch.tensor(turn * np.pi)
    axes = torch.stack([angle.cos(), angle.sin(), -angle.sin(), angle.cos()]).reshape(2, 2)
    shift = 0.4 * torch.tensor([shift_x, shift_y]) - 0.2
    z = (x - shift) @ axes.double() * torch.tensor([1.0, 1.4])
    return x, (lp_pool(z, order) > 0.75).long()


def train(toy: Toy, x: Tensor, y: Tensor, start: int) -> tuple[float, MLP]:
    """Training loss and net after L-BFGS from one start."""
    torch.manual_seed(start)
    net = MLP(2, [1], 2, filters=2, order=toy.start_order, dtype=torch.float64)
    optimizer = torch.optim.LBFGS(
        net.parameters(), max_iter=toy.iterations, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = cross_entropy(net(x), y)
        value.backward()
        return value

    optimizer.step(loss)
    return float(loss().detach()), net


def run(toy: Toy, order: float, seed: int) -> Result:
    """The best of several starts on one data set."""
    x, y = data(order, seed, toy.points, toy.test_points)
    runs = [train(toy, x[: toy.points], y[: toy.points], start) for start in range(toy.starts)]
    _, net = min((run for run in runs if np.isfinite(run[0])), key=lambda run: run[0])
    wrong = net(x).argmax(1) != y
    return Result(
        true_order=order,
        seed=seed,
        learned_order=next(m for m in net if isinstance(m, LpLinear)).order.item(),
        train_errors=int(wrong[: toy.points].sum()),
        test_error=float(wrong[toy.points :].double().mean()),
        net=net,
    )


def figure(toy: Toy, results: list[Result]) -> Figure:
    """One panel per order: the data, and the boundary that the unit found."""
    fig = Figure(figsize=(11, 3.2), layout="constrained")
    grid = torch.linspace(-1.5, 1.5, 301, dtype=torch.float64)
    xy = torch.cartesian_prod(grid, grid)
    for axes, order in zip(fig.subplots(1, len(toy.orders)), toy.orders, strict=True):
        result = next(r for r in results if r.true_order == order)
        x, y = data(order, result.seed, toy.points, toy.test_points)
        for label, color, marker in ((0, "#ee8519", "o"), (1, "#00478c", "x")):
            shown = x[:600][y[:600] == label].numpy().T
            axes.scatter(*shown, s=7, color=color, marker=marker, lw=0.7, alpha=0.7)
        score = (result.net(xy) @ torch.tensor([-1.0, 1.0]).double()).detach().reshape(301, 301)
        axes.contour(grid.numpy(), grid.numpy(), score.T.numpy(), [0], colors="#808080")
        axes.set(aspect="equal", xticks=[], yticks=[])
        axes.set_title(f"made with p = {order:g}, learned {result.learned_order:.2f}", fontsize=10)
    return fig
