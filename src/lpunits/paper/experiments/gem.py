"""Beyond the paper: a learned norm over all of space, beside average and max pooling."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from lpunits.paper.report.outcomes import (
    against_others,
    by_data,
    drawn_orders,
    moved,
    orders,
    test_error,
)
from lpunits.paper.report.section import Experiment, Picture, Section, Table
from lpunits.paper.statistics import spread
from lpunits.paper.training.networks import Convolutional
from lpunits.paper.training.trial import Result, Scale, Trial

NET = Convolutional("mnist", optimizer="adamw", lr=3e-3, weight_decay=0.05, epochs=10)
# Whether the order is learned, and where it starts or stays.
POOLS = ((True, 3.0), (False, 1.0), (False, 3.0), (False, math.inf))
LEARNED = "learned p"


def trials(scale: Scale) -> list[Trial]:
    """The same net with every kind of pooling, from several seeds."""
    small = replace(NET, data="digits", channels=(16, 32), batch=50, epochs=15)
    tiny = replace(small, channels=(4, 8), epochs=2)
    net = {"smoke": tiny, "quick": small, "paper": NET}[scale]
    return [
        Trial(replace(net, learn_order=learned, order=order), seed)
        for learned, order in POOLS
        for seed in range(1 if scale == "smoke" else 3)
    ]


def pool(config: Convolutional) -> str:
    """The name of its pooling."""
    if config.learn_order:
        return LEARNED
    names = {1.0: "average (p = 1)", math.inf: "max (p = ∞)"}
    return names.get(config.order, f"p = {config.order:g}")


def section(results: Sequence[Result]) -> Section:
    """Errors by dataset and pooling, and where the orders went."""
    rows, told = [], []
    for name, found in by_data(results):
        errors: dict[str, list[float]] = {}
        for kind in dict.fromkeys(pool(r.config) for r in found):
            ours = [r for r in found if pool(r.config) == kind]
            errors[kind] = [test_error(r) for r in ours]
            learned = [orders(r) for r in ours] if kind == LEARNED else []
            rows.append(
                [
                    name,
                    kind,
                    "beyond the paper",
                    spread(errors[kind], ".2%"),
                    spread([r.outcome["metrics"]["valid"]["error"] for r in ours], ".2%"),
                    spread([p.mean().item() for p in learned]) if learned else "",
                    f"{statistics.fmean(map(moved, ours)):.2f}" if learned else "",
                ]
            )
        told.append(against_others(name, errors, "the learned norm", LEARNED))
    head = ["data", "pooling", "paper", "test error", "validation error"]
    head += ["mean order", "mean movement"]
    nets = [r for r in results if r.config.learn_order]
    alt = "Histograms of the learned orders of the channels, one panel for each data set"
    return Section(
        " ".join(told),
        [Table(head, rows, "Beyond the paper")],
        [Picture("gem", drawn_orders(by_data(nets)), alt, "All channels of all seeds.")]
        if nets
        else [],
    )


EXPERIMENT = Experiment(
    name="gem",
    title="Beyond the paper: global pooling by a learned norm",
    about="A small convolutional net whose last feature maps are pooled by GlobalLpPool with an "
    "order learned for each channel, by the average, by the maximum, and by p = 3.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 10},
)
