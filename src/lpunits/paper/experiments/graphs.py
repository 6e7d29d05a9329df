"""Beyond the paper: graphs whose targets are power means. Does a learned order find the order?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from lpunits import SegmentLpPool, param_groups, segment_lp_pool
from lpunits.paper.report.figures import COLORS, panels
from lpunits.paper.report.section import Experiment, Picture, Section, Table, grouped
from lpunits.paper.statistics import compare, spread, versus
from lpunits.paper.training.job import Job
from lpunits.paper.training.trial import Result, Scale, Trial, check_choice

POOLS = {"learned": "learned p", "mean": "mean (p = 1)", "max": "max (p = ∞)"}
STEPS = ("over the neighbours", "over the nodes")
CHANNELS, HIDDEN = 4, 32
LOWEST, HIGHEST = -3.0, 6.0  # of the orders that are to be found
NOISE = 0.01  # standard deviation, relative to that of the targets


@dataclass(frozen=True)
class Batch:
    """Several graphs as one: features of nodes, edges, and the graph of each node."""

    x: Tensor
    source: Tensor
    target: Tensor
    graph: Tensor
    graphs: int

    @classmethod
    def drawn(cls, graphs: int, generator: torch.Generator) -> "Batch":
        """Graphs of 5 to 30 nodes, each with an edge to itself and to 3 random nodes."""
        sizes = torch.randint(5, 31, (graphs,), generator=generator)
        graph = torch.repeat_interleave(torch.arange(graphs), sizes)
        first = (sizes.cumsum(0) - sizes)[graph]
        nodes = torch.arange(len(graph))
        x = torch.randn(len(nodes), CHANNELS, generator=generator).mul(0.7).exp()
        random = torch.rand(3, len(nodes), generator=generator) * sizes[graph]
        source = torch.cat([nodes, (first + random.long()).flatten()])
        return cls(x, source, nodes.repeat(4), graph, graphs)

    def pooled(self, near: Any, far: Any, x: Tensor) -> Tensor:
        """Over the neighbours of each node, then over the nodes of each graph."""
        h = near(x[self.source], self.target, num_segments=len(x))
        return far(h, self.graph, num_segments=self.graphs)  # type: ignore[no-any-return]


class GraphNet(nn.Module):
    """Two poolings; those of a fixed order have a net in front and one behind."""

    def __init__(self, pool: str) -> None:
        super().__init__()
        learned = pool == "learned"
        width = CHANNELS if learned else HIDDEN
        order = math.inf if pool == "max" else 1.0
        options = {"order": order, "learn_order": learned, "order_range": (-math.inf, math.inf)}
        self.near, self.far = (SegmentLpPool(width, **options) for _ in STEPS)  # type: ignore[arg-type]
        self.front: nn.Module = nn.Identity()
        self.behind: nn.Module = nn.Identity()
        if not learned:
            self.front = nn.Sequential(nn.Linear(CHANNELS, width), nn.ReLU())
            self.behind = nn.Sequential(
                nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CHANNELS)
            )

    def forward(self, batch: Batch) -> Tensor:
        """A value for each graph and channel."""
        return self.behind(batch.pooled(self.near, self.far, self.front(batch.x)))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Graphs:
    """Regression on generated graphs.

    The target of each of four channels is a power mean over the nodes of a power mean over the
    neighbours. The eight orders are drawn by the seed, from -3 to 6; noise of 1 % is added. The net
    of learned orders has these and nothing else to learn; the others have 32 channels and a net in
    front of the poolings and behind them.

    Args:
        pool: How the net pools.
        graphs: How many there are to train on.
        steps: Of Adam, on all graphs at once.
    """

    pool: str
    graphs: int = 300
    steps: int = 300

    datasets = ()
    multiplications = 0  # the net is so small that one thread is fastest

    def __post_init__(self) -> None:
        check_choice(self, pool=POOLS)

    @property
    def label(self) -> str:
        """The pooling and the size."""
        return f"graphs, {self.pool}, {self.graphs} graphs, {self.steps} steps"

    def run(self, seed: int, job: Job) -> dict[str, Any]:
        """The error on new graphs, and the orders beside those that were to be found."""
        generator = torch.Generator().manual_seed(seed)  # the same graphs for every pooling
        true = LOWEST + (HIGHEST - LOWEST) * torch.rand(2, CHANNELS, generator=generator)
        train, test = (Batch.drawn(self.graphs, generator) for _ in range(2))

        def power_mean(p: Tensor) -> Any:
            return lambda z, index, num_segments: segment_lp_pool(
                z, p, index, num_segments=num_segments
            )

        near, far = map(power_mean, true)
        y, y_test = (b.pooled(near, far, b.x) for b in (train, test))
        scale = y.std(0)
        y = y + NOISE * scale * torch.randn(y.shape, generator=generator)
        torch.manual_seed(seed)
        net = GraphNet(self.pool)
        optimizer = torch.optim.Adam(param_groups(net, 0.02))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        loss = torch.zeros(())
        for step in range(self.steps):
            optimizer.zero_grad()
            loss = ((net(train) - y) / scale).square().mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            if not loss.isfinite():
                return {"diverged": f"the loss was {loss.item()} in step {step + 1}"}
            if step % 50 == 49:
                job.epoch(step + 1, self.steps, {"loss": loss.item()}, {})
        with torch.no_grad():
            error = ((net(test) - y_test) / scale).square().mean().sqrt().item()
        found = torch.stack([net.near.order, net.far.order]).tolist()
        return {
            "test_error": error,
            "loss": loss.item(),
            "true": true.tolist(),
            "found": found if self.pool == "learned" else [],
            "parameters": sum(p.numel() for p in net.parameters()),
        }


def trials(scale: Scale) -> list[Trial]:
    """Every pooling, from several seeds."""
    sizes: dict[Scale, tuple[dict[str, int], int]] = {
        "smoke": ({"graphs": 20, "steps": 3}, 1),
        "quick": ({}, 3),
        "paper": ({"graphs": 500, "steps": 600}, 5),
    }
    size, seeds = sizes[scale]
    return [Trial(Graphs(pool, **size), seed) for pool in POOLS for seed in range(seeds)]


def section(results: Sequence[Result]) -> Section:
    """Errors by pooling, and the orders that were found beside the true ones."""
    kinds = grouped(results, lambda config: config.pool)
    errors = {pool: [r.outcome["test_error"] for r in some] for pool, some in kinds.items()}
    rows = [
        [POOLS[pool], str(kinds[pool][0].outcome["parameters"]), spread(e, ".2%")]
        for pool, e in errors.items()
    ]
    tables = [Table(["pooling", "parameters", "test error, relative"], rows)]
    if not (ours := kinds.get("learned", [])):
        return Section("The learned order has not been run.", tables)
    true, found = (torch.tensor([r.outcome[k] for r in ours]) for k in ("true", "found"))
    away = (found - true).abs()  # runs, steps, channels
    medians = [f"{some.quantile(0.5):.3f} {STEPS[i]}" for i, some in enumerate(away.unbind(1))]
    learned = errors.pop("learned")
    sentences = [
        f"Of {away.numel()} orders, {int((away < 0.1).sum())} are found within 0.1; the median "
        f"distance is {' and '.join(medians)}.",
        *(
            f"Its error is {versus(compare(learned, e), f'that of {POOLS[pool]}')}."
            for pool, e in errors.items()
        ),
    ]
    alt = "Learned orders against true orders, a panel for each of the two poolings"
    picture = Picture("graphs", figure(ours), alt, "All seeds.")
    return Section(" ".join(sentences), tables, [picture])


def figure(results: Sequence[Result]) -> Figure:
    """Found orders against true ones."""
    fig, drawn = panels(1, len(STEPS), 3, 3)
    for step, (axes, where) in enumerate(zip(drawn, STEPS, strict=True)):
        axes.axline((0, 0), slope=1, color="gray", lw=1)
        for r in results:
            axes.plot(r.outcome["true"][step], r.outcome["found"][step], "o", color=COLORS["lp"])
        axes.set(xlabel="true order", ylabel="learned order", title=where)
    return fig


EXPERIMENT = Experiment(
    name="graphs",
    title="Beyond the paper: power means on graphs",
    about="Regression on generated graphs whose targets are power means over neighbours and nodes, "
    "of orders from -3 to 6: whether learned orders find them, and what mean and max reach.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 0.2, "paper": 3},
)
