"""Beyond the paper: global pooling by a learned norm, beside average and max pooling."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from lpunits.paper.report import outcomes
from lpunits.paper.report.outcomes import title
from lpunits.paper.report.section import Experiment, Picture, Section, Table, grouped
from lpunits.paper.statistics import spread
from lpunits.paper.training.networks import Convolutional
from lpunits.paper.training.trial import Result, Scale, Trial

NET = Convolutional("mnist", optimizer="adamw", lr=3e-3, weight_decay=0.05, epochs=10)
# Whether the order is learned, its initial or fixed value, and whether all channels share it.
POOLS = (
    (True, 3.0, False),
    (True, 3.0, True),
    (False, 1.0, False),
    (False, 3.0, False),
    (False, math.inf, False),
)
LEARNED, SHARED = "learned p", "one learned p"


def trials(scale: Scale) -> list[Trial]:
    """The same net with every kind of pooling, from several seeds."""
    small = replace(NET, data="digits", channels=(16, 32), batch=50, epochs=15)
    tiny = replace(small, channels=(4, 8), epochs=2)
    faces = replace(NET, data="fer2013")
    nets = {"smoke": [tiny], "quick": [small], "paper": [NET, faces]}[scale]
    return [
        Trial(replace(net, learn_order=learned, order=order, shared=shared), seed)
        for net in nets
        for learned, order, shared in POOLS
        for seed in range(1 if scale == "smoke" else 3)
    ]


def pool(config: Convolutional) -> str:
    """The name of its pooling."""
    if config.learn_order:
        return SHARED if config.shared else LEARNED
    names = {1.0: "average (p = 1)", math.inf: "max (p = ∞)"}
    return names.get(config.order, f"p = {config.order:g}")


def section(results: Sequence[Result]) -> Section:
    """Errors by dataset and pooling, and the learned orders."""
    rows = []
    for name, found in grouped(results, title).items():
        for kind, ours in grouped(found, pool).items():
            orders = ["", ""]
            if kind in (LEARNED, SHARED):
                moved = statistics.fmean(map(outcomes.movement, ours))
                orders = [spread([outcomes.order_mean(r) for r in ours]), f"{moved:.2f}"]
            rows.append([name, kind, *outcomes.errors(ours), *orders])
    head = ["data", "pooling", "test error", "validation error", "mean order", "mean movement"]
    pictures = []
    if nets := [r for r in results if pool(r.config) == LEARNED]:
        alt = "Histograms of the learned orders of the channels, one panel for each dataset"
        figure = outcomes.orders_figure(grouped(nets, title))
        pictures = [Picture("gem", figure, alt, "All channels of all seeds.")]
    verdict = outcomes.against_others(results, pool, "a learned norm per channel", LEARNED)
    return Section(verdict, [Table(head, rows)], pictures)


EXPERIMENT = Experiment(
    name="gem",
    title="Beyond the paper: global pooling by a learned norm",
    about="A small convolutional net whose last feature maps are pooled by `GlobalLpPool` with an "
    "order learned for each channel, with one learned order for all channels (as GeM), by the "
    "average, by the maximum, and by p = 3.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 0.4, "paper": 35},
)
