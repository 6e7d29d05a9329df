"""Beyond the paper: bags of instances, pooled with a mask by a learned order or by its rivals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from lpunits import LpPool, orders, param_groups
from lpunits.paper.report.section import Experiment, Section, Table, grouped
from lpunits.paper.statistics import compare, spread, versus
from lpunits.paper.training.job import Job
from lpunits.paper.training.trial import Result, Scale, Trial, check_choice

RULES = {"max": "the largest", "few": "the mean of the 3 largest", "mean": "the mean"}
POOLS = {
    "learned": "learned p",
    "mean": "mean (p = 1)",
    "max": "max (p = ∞)",
    "attention": "attention",
}
ORDERS = {"learned": 3.0, "mean": 1.0, "max": math.inf}
INPUTS, HIDDEN, CHANNELS, MOST = 8, 32, 16, 30


class Attention(nn.Module):
    """A weighted mean, with weights from a small net on each instance (Ilse et al., 2018)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(channels, channels), nn.Tanh(), nn.Linear(channels, 1))

    def forward(self, z: Tensor, *, mask: Tensor) -> Tensor:
        """``(bags, instances, channels)`` to ``(bags, channels)``."""
        weight = self.score(z).masked_fill(~mask, -math.inf).softmax(1)
        return (weight * z).sum(1)  # type: ignore[no-any-return]


class BagNet(nn.Module):
    """A net on each instance, a pooling of the instances of a bag, a linear output."""

    def __init__(self, pool: str) -> None:
        super().__init__()
        self.instance = nn.Sequential(
            nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CHANNELS), nn.ReLU()
        )
        if pool == "attention":
            self.pool: nn.Module = Attention(CHANNELS)
        else:
            learned = pool == "learned"
            self.pool = LpPool(CHANNELS, dim=1, order=ORDERS[pool], learn_order=learned)
        self.output = nn.Linear(CHANNELS, 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """The score of each bag."""
        pooled = self.pool(self.instance(x), mask=mask.unsqueeze(-1))
        return self.output(pooled).squeeze(-1)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Bags:
    """Generated bags of 5 to 30 instances, padded, whose label one rule decides.

    An instance has eight Gaussian features; its score is their projection on a direction that the
    seed draws. A bag is positive if ``rule`` of its scores is above what half of the bags of its
    size have.

    Args:
        rule: What decides: the max of the scores, the mean of the three largest, or the mean.
        pool: How the net pools instances.
        bags: How many there are to train on.
        tested: How many there are to test with.
        epochs: Passes over the bags.
    """

    rule: str
    pool: str
    bags: int = 1000
    tested: int = 4000
    epochs: int = 20

    datasets = ()
    multiplications = 0  # the net is so small that one thread is fastest

    def __post_init__(self) -> None:
        check_choice(self, rule=RULES, pool=POOLS)

    @property
    def label(self) -> str:
        """The rule, the pooling and the size."""
        return f"bags by {self.rule}, {self.pool}, {self.bags} bags, {self.epochs} epochs"

    def run(self, seed: int, job: Job) -> dict[str, Any]:
        """The error on new bags, and the orders."""
        generator = torch.Generator().manual_seed(seed)  # the same bags for every pooling
        x, mask, y = drawn(self.rule, self.bags + self.tested, generator)
        torch.manual_seed(seed)
        net = BagNet(self.pool)
        optimizer = torch.optim.Adam(param_groups(net, 5e-3))
        steps = self.epochs * math.ceil(self.bags / 100)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        loss = torch.zeros(())
        for epoch in range(self.epochs):
            for rows in torch.randperm(self.bags, generator=generator).split(100):
                optimizer.zero_grad()
                loss = binary_cross_entropy_with_logits(net(x[rows], mask[rows]), y[rows])
                loss.backward()
                optimizer.step()
                schedule.step()
            if not loss.isfinite():
                return {"diverged": f"the loss was {loss.item()} in epoch {epoch + 1}"}
            job.epoch(epoch + 1, self.epochs, {"loss": loss.item()}, {})
        with torch.no_grad():
            wrong = (net(x, mask) > 0) != (y > 0.5)
        return {
            "train_error": wrong[: self.bags].double().mean().item(),
            "test_error": wrong[self.bags :].double().mean().item(),
            "loss": loss.item(),
            "orders": orders(net)["pool"].tolist() if self.pool == "learned" else [],
        }


def drawn(rule: str, bags: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Instances ``(bags, 30, 8)``, which of them are real, and the labels."""
    direction = torch.randn(INPUTS, generator=generator)
    x = torch.randn(bags, MOST, INPUTS, generator=generator)
    sizes = torch.randint(5, MOST + 1, (bags, 1), generator=generator)
    mask = torch.arange(MOST) < sizes
    x = x * mask.unsqueeze(-1)
    scores = x @ (direction / direction.norm())
    sorted_scores = scores.masked_fill(~mask, -math.inf).sort(1, descending=True).values
    decides = {
        "max": sorted_scores[:, 0],
        "few": sorted_scores[:, :3].mean(1),
        "mean": scores.sum(1) / sizes[:, 0],
    }[rule]
    y = torch.zeros(bags)
    for size in range(5, MOST + 1):  # so that the size of a bag says nothing about its label
        same = sizes[:, 0] == size
        y[same] = (decides[same] > decides[same].median()).float()
    return x, mask, y


def trials(scale: Scale) -> list[Trial]:
    """Every rule with every pooling, from several seeds."""
    sizes: dict[Scale, tuple[dict[str, int], int]] = {
        "smoke": ({"bags": 100, "tested": 100, "epochs": 2}, 1),
        "quick": ({}, 3),
        "paper": ({"bags": 4000, "epochs": 30}, 5),
    }
    size, seeds = sizes[scale]
    return [
        Trial(Bags(rule, pool, **size), seed)
        for rule in RULES
        for pool in POOLS
        for seed in range(seeds)
    ]


def section(results: Sequence[Result]) -> Section:
    """Test errors by rule and pooling, and the learned orders."""
    rows, sentences = [], []
    for rule, found in grouped(results, lambda config: config.rule).items():
        decides, errors = RULES[rule], {}
        for pool, some in grouped(found, lambda config: config.pool).items():
            errors[pool] = [r.outcome["test_error"] for r in some]
            train = [r.outcome["train_error"] for r in some]
            every = torch.tensor([p for r in some for p in r.outcome["orders"]])
            shown = ""
            if len(every):
                low, median, high = every.quantile(torch.tensor([0.25, 0.5, 0.75])).tolist()
                shown = f"{median:.2f} ({low:.2f} to {high:.2f})"
            both = (spread(values, ".2%") for values in (errors[pool], train))
            rows.append([decides, POOLS[pool], *both, shown])
        if ours := errors.pop("learned", []):
            text = ", ".join(versus(compare(ours, e), POOLS[k]) for k, e in errors.items())
            mean = sum(ours) / len(ours)
            sentences.append(
                f"Where {decides} decides, the error of the learned order is {mean:.2%}"
                f"{': ' * bool(text)}{text}."
            )
    head = ["what decides", "pooling", "test error", "training error", "orders: median (quartiles)"]
    verdict = " ".join(sentences) or "The learned order has not been run."
    return Section(verdict, [Table(head, rows)])


EXPERIMENT = Experiment(
    name="bags",
    title="Beyond the paper: bags of instances",
    about="Multiple-instance learning on generated bags of 5 to 30 instances, padded and masked: a "
    "learned order per channel against mean, max and attention pooling, where the largest instance "
    "decides the label, a few, or all.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 4},
)
