"""Fitting the networks of Fig. 4c: natural conjugate gradient against its alternatives.

All optimisers have the same starts, full batches and the same budget of CPU seconds per run. A run
succeeds if it reaches zero training errors. CPU time, not wall time, so that other work on the
machine does not matter.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from lpunits.optim import NaturalConjugateGradient
from lpunits.paper.data import load
from lpunits.paper.experiments.plane import Plane
from report import print_table
from timing import Settings, threads

CASES = (("lp", 4), ("lp", 6), ("relu", 16), ("sigmoid", 4))
Step = Callable[[], object]


@dataclass(frozen=True)
class Outcome:
    """The runs of one optimiser on one kind of net."""

    case: str
    optimizer: str
    errors: list[int]
    losses: list[float]
    seconds: list[float]  # of runs that succeeded

    @property
    def cell(self) -> str:
        """Successes, and the median time of a success."""
        taken = f" {statistics.median(self.seconds):.2f} s" if self.seconds else ""
        return f"{len(self.seconds)}/{len(self.errors)}{taken}"


def run(settings: Settings) -> list[Outcome]:
    """Every optimiser on every case, at one thread: the nets are too small for more."""
    train = load("curve").train
    x, y = train.features, train.targets.float().unsqueeze(1)
    budget = 2.0 / settings.shrink
    seeds = 10 if settings.shrink == 1 else 1
    found = []
    with threads(1):
        for kind, projections in CASES:
            case = f"{kind}, {projections} projections"
            for name, make in _optimizers(x, y).items():
                runs = [_fit(kind, projections, seed, make, x, y, budget) for seed in range(seeds)]
                errors, losses, seconds = map(list, zip(*runs, strict=True))
                done = [s for s, e in zip(seconds, errors, strict=True) if e == 0]
                found.append(Outcome(case, name, errors, losses, done))
    cases = list(dict.fromkeys(outcome.case for outcome in found))
    cells = {(o.optimizer, o.case): o.cell for o in found}
    print_table(
        f"Fitting the curve: zero errors within {budget:g} s of one core",
        ["", *cases],
        [
            [name, *(cells[name, case] for case in cases)]
            for name in dict.fromkeys(o.optimizer for o in found)
        ],
        "runs that succeed, and the median time in which they do",
    )
    return found


def _optimizers(x: Tensor, y: Tensor) -> dict[str, Callable[[nn.Module], Step]]:
    """Name -> what makes the step of a net."""

    def loss(net: nn.Module) -> Tensor:
        return binary_cross_entropy_with_logits(net(x), y)

    def natural(beta: str) -> Callable[[nn.Module], Step]:
        def make(net: nn.Module) -> Step:
            optimizer = NaturalConjugateGradient(net, loss="logistic", beta=beta)
            return lambda: optimizer.step(x, y)

        return make

    def lbfgs(net: nn.Module) -> Step:
        optimizer = torch.optim.LBFGS(
            net.parameters(), max_iter=5, history_size=50, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            value = loss(net)
            value.backward()
            return value

        return lambda: optimizer.step(closure)

    def adam(rate: float) -> Callable[[nn.Module], Step]:
        def make(net: nn.Module) -> Step:
            optimizer = torch.optim.Adam(net.parameters(), lr=rate)

            def steps() -> None:
                for _ in range(5):
                    optimizer.zero_grad()
                    loss(net).backward()
                    optimizer.step()

            return steps

        return make

    return {
        "natural conjugate gradient": natural("search"),
        "... Polak-Ribiere": natural("polak-ribiere"),
        "natural gradient (beta = 0)": natural("zero"),
        "L-BFGS": lbfgs,
        "Adam, rate 0.01": adam(0.01),
        "Adam, rate 0.1": adam(0.1),
    }


def _fit(
    kind: str,
    projections: int,
    seed: int,
    make: Callable[[nn.Module], Step],
    x: Tensor,
    y: Tensor,
    budget: float,
) -> tuple[int, float, float]:
    """Errors, loss, and processor seconds until success or until the budget is spent."""
    torch.manual_seed(seed)
    net = Plane("curve", kind, projections).net()
    step = make(net)
    start = time.process_time()
    while True:
        step()
        with torch.no_grad():
            scores = net(x)
        errors = int(((scores > 0) != (y > 0.5)).sum())
        taken = time.process_time() - start
        if errors == 0 or not scores.isfinite().all() or taken >= budget:
            value = binary_cross_entropy_with_logits(scores, y)
            return errors, float(value), taken
