"""Table 1 and Fig. 5: where the orders of single-layer nets go, on different data."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter
from scipy.stats import ks_2samp

from lpunits.paper.experiment import (
    Experiment,
    Picture,
    Result,
    Scale,
    Section,
    Table,
    Trial,
    spread,
)
from lpunits.paper.experiments.recipes import (
    PAPER_ORDERS,
    by_data,
    moved,
    one_layer,
    orders,
    papers,
    test_error,
)
from lpunits.paper.figures import COLORS, QUIET

SEEDS = {"smoke": 2, "quick": 3, "paper": 3}


def trials(scale: Scale) -> list[Trial]:
    """Nets of one layer of Lp units, on each dataset."""
    return [Trial(c, seed) for c in one_layer(scale) for seed in range(SEEDS[scale])]


def section(results: Sequence[Result]) -> Section:
    """Mean and spread of the orders on each dataset, and whether they differ."""
    groups = by_data(results)
    rows = []
    for name, found in groups:
        means = [orders(r).mean().item() for r in found]
        stds = [orders(r).std(correction=0).item() for r in found]
        start = orders(found[0], "initial").mean().item()
        rows.append(
            [
                name,
                papers(PAPER_ORDERS, found[0].config.data),
                f"{start:.2f}",
                spread(means),
                spread(stds),
                spread([moved(r) for r in found]),
                spread([test_error(r) for r in found], ".2%"),
            ]
        )
    head = [
        "data",
        "paper: mean ± std over units",
        "start",
        "mean order",
        "std over units",
        "mean movement",
        "test error",
    ]
    alt = (
        "Histograms of the learned orders on a logarithmic axis, beside the start of all units; "
        f"one panel for each of {', '.join(name for name, _ in groups)}"
    )
    return Section(
        f"{_claim_1(groups)} {_claim_2(groups)}",
        [Table(head, rows, "± is the standard deviation over seeds, n their number")],
        [Picture("fig5", figure(groups), alt, "All units of all seeds (the paper's Fig. 5).")],
    )


def _claim_1(groups: Sequence[tuple[str, Sequence[Result]]]) -> str:
    """Orders differ between datasets: Kolmogorov and Smirnov's distance, the closest two nets."""
    if len(groups) == 1:
        return f"Claim 1, that orders differ between data sets, needs more than {groups[0][0]}."
    tests = [
        ks_2samp(orders(a).numpy(), orders(b).numpy())
        for (_, first), (_, second) in combinations(groups, 2)
        for a in first
        for b in second
    ]
    told = sum(test.pvalue < 0.01 for test in tests)
    nearest = min(test.statistic for test in tests)
    judged = "holds" if told == len(tests) else "does not hold for every pair"
    return (
        f"Claim 1, that orders differ between data sets, {judged}: of {len(tests)} pairs of nets "
        f"trained on different data, {told} have distributions that a Kolmogorov-Smirnov test "
        f"tells apart (p < .01); the smallest distance is {nearest:.2f}."
    )


def _claim_2(groups: Sequence[tuple[str, Sequence[Result]]]) -> str:
    """Orders of one net differ: every unit starts from the same, so any spread is learned."""
    low, high = {}, {}
    for name, found in groups:
        stds = [orders(r).std(correction=0).item() for r in found]
        low[name], high[name] = min(stds), max(stds)
    narrow = [name for name in low if low[name] < 0.05]
    text = "Claim 2, that the units of one net take different orders, "
    text += f"does not hold on {', '.join(narrow)}: " if narrow else "holds: "
    ranges = (f"{low[n]:.2f} to {high[n]:.2f} on {n}" for n in low)
    return f"{text}from one common start the standard deviation went to {', '.join(ranges)}."


def figure(groups: Sequence[tuple[str, Sequence[Result]]]) -> Figure:
    """A histogram for each dataset, all on one logarithmic axis."""
    learned = {name: torch.cat([orders(r) for r in found]).numpy() for name, found in groups}
    starts = {name: orders(found[0], "initial").mean().item() for name, found in groups}
    every = np.concatenate([*learned.values(), list(starts.values())])
    low, high = every.min() / 1.05, every.max() * 1.05
    edges = np.geomspace(low, high, 61)
    fig = Figure(figsize=(8, 1.1 + 1.5 * len(groups)), layout="constrained")
    panels = fig.subplots(len(groups), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, values) in zip(panels, learned.items(), strict=True):
        axes.hist(values, edges, color=COLORS["lp"], label="learned")
        axes.axvline(starts[name], color=QUIET, lw=2, ls="--", label="start of every unit")
        axes.set_title(name, loc="left", fontsize=10)
        axes.set(xscale="log", xlim=(low, high), ylabel="units")
        axes.spines[["top", "right"]].set_visible(False)
    ticks = [t for t in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15, 20, 40) if low <= t <= high]
    panels[-1].set_xticks(ticks)
    panels[-1].xaxis.set_major_formatter(ScalarFormatter())
    panels[-1].xaxis.set_minor_formatter(NullFormatter())
    panels[-1].set_xlabel("order p")
    panels[0].legend(frameon=False, fontsize=9)
    return fig


EXPERIMENT = Experiment(
    name="table1",
    title="Table 1 and Fig. 5: the orders of single-layer nets",
    about="Nets with one layer of Lp units learn the orders of their units. The paper claims that "
    "the best orders differ from one data set to another (claim 1), and from unit to unit within "
    "one net (claim 2).",
    trials=trials,
    section=section,
    minutes={"smoke": 0.2, "quick": 0.5, "paper": 60},
)
