"""Table 1 and Fig. 5: where the orders of single-layer nets go, on different data."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb

import numpy as np
import torch
from scipy.signal import find_peaks
from scipy.stats import gaussian_kde, ks_2samp

from lpunits.paper.report.outcomes import (
    PAPER_ORDERS,
    by_data,
    drawn_orders,
    moved,
    orders,
    papers,
    test_error,
)
from lpunits.paper.report.section import Experiment, Headline, Picture, Section, Table
from lpunits.paper.statistics import spread
from lpunits.paper.training.recipes import table1
from lpunits.paper.training.trial import Result, Scale, Trial

# With three nets of each, no exchange of nets could tell two data sets apart.
SEEDS = {"smoke": 2, "quick": 4, "paper": 5}
SLOW = {"pentomino": 3}  # at the scale paper, where a net takes ten minutes
TOLD_APART = 0.05


def trials(scale: Scale) -> list[Trial]:
    """Nets of one layer of Lp units, on each dataset."""
    fewer = SLOW if scale == "paper" else {}
    return [
        Trial(net, seed)
        for net in table1(scale)
        for seed in range(fewer.get(net.data, SEEDS[scale]))
    ]


def section(results: Sequence[Result]) -> Section:
    """Mean and spread of the orders on each dataset, and whether they differ."""
    groups = by_data(results)
    rows, short = [], []
    for name, found in groups:
        means = [orders(r).mean().item() for r in found]
        stds = [orders(r).std(correction=0).item() for r in found]
        start = orders(found[0], "initial").mean().item()
        claimed = papers(PAPER_ORDERS, found[0].config.data)
        ours = f"{np.mean(means):.2f} ± {np.mean(stds):.2f} (n = {len(found)}), from {start:g}"
        what = f"orders of one layer on {name}, mean ± std over its units"
        short.append(Headline(what, claimed, ours))
        rows.append(
            [
                name,
                claimed,
                f"{start:.2f}",
                spread(means),
                spread(stds),
                spread([moved(r) for r in found]),
                ", ".join(str(modes(r)) for r in found),
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
        "modes, net by net",
        "test error",
    ]
    alt = (
        "Histograms of the learned orders on a logarithmic axis, beside the start of all units; "
        f"one panel for each of {', '.join(name for name, _ in groups)}"
    )
    pairs = [Pair(*a, *b) for a, b in combinations(groups, 2)]
    tables = [Table(head, rows, "± is the standard deviation over seeds, n their number")]
    if pairs:
        tables.append(_distances(pairs))
    return Section(
        f"{_claim_1(groups, pairs)} {_claim_2(groups)} {_modes(groups)}",
        tables,
        [Picture("fig5", drawn_orders(groups), alt, "All units of all seeds (Fig. 5).")],
        [
            "The units of one net learn together, so they are no independent sample, and a "
            "Kolmogorov-Smirnov test over units would be far too sure. Here whole nets are "
            "exchanged between two data sets, in every possible way: p is the fraction of ways "
            "that bring the distance to what it is or beyond.",
            "Modes are the maxima of a Gaussian kernel density of the logarithms of a net's "
            "orders (Silverman's bandwidth) that stand out by at least a twentieth of the highest.",
        ],
        short,
    )


@dataclass(frozen=True)
class Pair:
    """The nets of two data sets, and how far apart the distributions of their orders are."""

    name: str
    nets: Sequence[Result]
    other_name: str
    other_nets: Sequence[Result]

    @cached_property
    def distance(self) -> float:
        """Kolmogorov and Smirnov's, between all units of the one and all of the other."""
        return _distance(self.nets, self.other_nets)

    @property
    def between_seeds(self) -> list[float]:
        """The distances of every two nets of one data set."""
        pairs = (*combinations(self.nets, 2), *combinations(self.other_nets, 2))
        return [_distance([a], [b]) for a, b in pairs]

    @cached_property
    def p(self) -> float:
        """How likely so large a distance is if the data set does not matter."""
        every, first = [*self.nets, *self.other_nets], len(self.nets)
        exchanges = [
            _distance([every[i] for i in ours], [r for i, r in enumerate(every) if i not in ours])
            for ours in combinations(range(len(every)), first)
        ]
        return sum(d >= self.distance for d in exchanges) / len(exchanges)

    @property
    def least_p(self) -> float:
        """The smallest p that so many nets can give: with equal numbers, two exchanges are one."""
        first, second = len(self.nets), len(self.other_nets)
        return (1 + (first == second)) / comb(first + second, first)


def _distance(nets: Sequence[Result], others: Sequence[Result]) -> float:
    ours, theirs = (torch.cat([orders(r) for r in some]).numpy() for some in (nets, others))
    return float(ks_2samp(ours, theirs, method="asymp").statistic)


def _distances(pairs: Sequence[Pair]) -> Table:
    rows = []
    for pair in pairs:
        seeds = pair.between_seeds
        rows.append(
            [
                f"{pair.name} and {pair.other_name}",
                f"{pair.distance:.2f}",
                f"{max(seeds):.2f}" if seeds else "one net each",
                f"{pair.p:.3f}",
                f"{pair.least_p:.3f}",
            ]
        )
    head = ["data", "KS distance", "largest between two seeds", "p", "smallest p possible"]
    return Table(head, rows, "Do the orders differ between data sets? Whole nets are exchanged")


def modes(result: Result) -> int:
    """How many maxima the density of a net's orders has."""
    logs = orders(result).log().numpy()
    width = np.ptp(logs)
    if width < 1e-5:
        return 1
    grid = np.linspace(logs.min() - width, logs.max() + width, 2048)
    density = gaussian_kde(logs, "silverman")(grid)
    return len(find_peaks(density, prominence=density.max() / 20)[0])


def _claim_1(groups: Sequence[tuple[str, Sequence[Result]]], pairs: Sequence[Pair]) -> str:
    """Orders differ between datasets."""
    claim = "Claim 1, that orders differ between data sets,"
    if not pairs:
        return f"{claim} needs more than {groups[0][0]}."
    able = [pair for pair in pairs if pair.least_p <= TOLD_APART]
    if not able:
        return (
            f"{claim} cannot be judged by so few nets: however much they differ, p cannot be below "
            f"{min(pair.least_p for pair in pairs):.2g}."
        )
    told = [pair for pair in able if pair.p <= TOLD_APART]
    judged = "holds" if len(told) == len(able) else "does not hold for every pair"
    return (
        f"{claim} {judged}: {len(told)} of {len(able)} pairs of data sets are told apart "
        f"(p ≤ {TOLD_APART}; the largest is {max(pair.p for pair in able):.2g}, the smallest "
        f"possible {min(pair.least_p for pair in able):.2g}); the distances are from "
        f"{min(pair.distance for pair in able):.2f} to {max(pair.distance for pair in able):.2f}."
    )


def _modes(groups: Sequence[tuple[str, Sequence[Result]]]) -> str:
    """One mode or more, by data set; the paper has two on Pentomino."""
    told = []
    for name, found in groups:
        counts = [modes(r) for r in found]
        two = sum(count > 1 for count in counts)
        told.append(f"in {two} of {len(counts)} nets on {name}")
    return f"The orders have more than one mode {', '.join(told)} (the paper: two on Pentomino)."


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


EXPERIMENT = Experiment(
    name="table1",
    title="Table 1 and Fig. 5: the orders of single-layer nets",
    about="Nets with one layer of Lp units learn the orders of their units. The paper claims that "
    "the best orders differ from one data set to another (claim 1), and from unit to unit within "
    "one net (claim 2).",
    trials=trials,
    section=section,
    minutes={"smoke": 0.2, "quick": 0.7, "paper": 60},
)
