"""Table 1 and Fig. 5: the learned orders of single-layer nets, on different data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb
from statistics import fmean

import numpy as np
import torch
from scipy.signal import find_peaks
from scipy.stats import gaussian_kde, ks_2samp

from lpunits.paper.report import outcomes
from lpunits.paper.report.outcomes import PAPER_ORDERS, judged, order_mean, order_std, orders
from lpunits.paper.report.section import Experiment, Picture, Section, Table, grouped
from lpunits.paper.report.summary import Headline, holds
from lpunits.paper.statistics import spread
from lpunits.paper.training.networks import FeedForward
from lpunits.paper.training.recipes import table1
from lpunits.paper.training.trial import Result, Scale, Trial

# With three nets of each, no exchange of nets can show that two datasets differ.
SEEDS = {"smoke": 2, "quick": 4, "paper": 5}
LEVEL = 0.05  # of significance
HEAD = (
    "data",
    "paper: mean ± std over units",
    "initial order",
    "mean order",
    "std over units",
    "mean movement",
    "modes, net by net",
    "test error",
)


def trials(scale: Scale) -> list[Trial]:
    """Nets of one layer of Lp units, on each dataset."""
    return [Trial(net, seed) for net in table1(scale) for seed in range(SEEDS[scale])]


def section(results: Sequence[Result]) -> Section:
    """Mean and spread of the orders on each dataset, and whether they differ."""
    groups = grouped(results, outcomes.title)
    rows, summary = [], []
    for name, found in groups.items():
        means, stds = [order_mean(r) for r in found], [order_std(r) for r in found]
        start = orders(found[0], "initial").mean().item()
        config = found[0].config
        paper = outcomes.paper_value(PAPER_ORDERS, config.data)
        ours = f"{fmean(means):.2f} ± {fmean(stds):.2f} (n = {len(found)})"
        what = f"Table 1: orders on {name}, mean ± std over the units"
        why = f"all orders start at {start:g}"
        summary += outcomes.headline(what, config, paper, fmean(means), ours, why, error=False)
        modes_found = ", ".join(str(modes(r)) for r in found)
        moved = spread([outcomes.movement(r) for r in found])
        test, _ = outcomes.errors(found)
        rows.append(
            [name, paper, f"{start:.2f}", spread(means), spread(stds), moved, modes_found, test]
        )
    names = ", ".join(groups)
    alt = f"Histograms of the learned orders beside the initial order, a panel for each of {names}"
    pairs = [Pair(*a, *b) for a, b in combinations(groups.items(), 2)]
    tables = [Table(HEAD, rows, "± is the standard deviation over seeds, n their number.")]
    tables += [_distances(pairs)] if pairs else []
    claims = [_claim_1(groups, pairs), _claim_2(groups), _two_modes(groups)]
    return Section(
        " ".join(sentence for sentence, _ in claims),
        tables,
        [Picture("fig5", outcomes.orders_figure(groups), alt, "All units of all seeds (Fig. 5).")],
        [
            "The units of one net learn together, so they are not an independent sample: a "
            "Kolmogorov-Smirnov test over units would be far too confident. The test is a "
            "permutation test that exchanges whole nets between two datasets, in every possible "
            "way: p is the fraction of exchanges with at least the observed distance.",
            "Modes are the maxima of a Gaussian kernel density of the logarithms of a net's "
            "orders (Silverman's bandwidth) with a prominence of at least a twentieth of the "
            "highest.",
        ],
        [*(row for _, row in claims if row), *summary],
    )


@dataclass(frozen=True)
class Pair:
    """The nets of two datasets, and the distance between the distributions of their orders."""

    name: str
    nets: Sequence[Result]
    other_name: str
    other_nets: Sequence[Result]

    @cached_property
    def distance(self) -> float:
        """The Kolmogorov-Smirnov distance between all units of the one and all of the other."""
        return _distance(self.nets, self.other_nets)

    @property
    def between_seeds(self) -> list[float]:
        """The distances of every two nets of one dataset."""
        pairs = (*combinations(self.nets, 2), *combinations(self.other_nets, 2))
        return [_distance([a], [b]) for a, b in pairs]

    @cached_property
    def p(self) -> float:
        """The probability of so large a distance if the dataset does not matter."""
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
    rows = [
        [
            f"{pair.name} and {pair.other_name}",
            f"{pair.distance:.2f}",
            f"{max(seeds):.2f}" if (seeds := pair.between_seeds) else "one net each",
            f"{pair.p:.3f}",
            f"{pair.least_p:.3f}",
        ]
        for pair in pairs
    ]
    head = ["data", "KS distance", "largest between two seeds", "p", "smallest p possible"]
    return Table(head, rows, "Do the orders differ between datasets? A permutation test over nets.")


def modes(result: Result) -> int:
    """How many maxima the density of a net's orders has."""
    logs = orders(result).log().numpy()
    width = np.ptp(logs)
    if width < 1e-5:
        return 1
    grid = np.linspace(logs.min() - width, logs.max() + width, 2048)
    density = gaussian_kde(logs, "silverman")(grid)
    return len(find_peaks(density, prominence=density.max() / 20)[0])


Groups = Mapping[str, Sequence[Result]]
Claim = tuple[str, Headline | None]  # a sentence, and a row of the summary


def _claim_1(groups: Groups, pairs: Sequence[Pair]) -> Claim:
    """Orders differ between datasets."""
    claim = "Claim 1, that orders differ between datasets,"
    if not pairs:
        return f"{claim} needs more than {', '.join(groups)}.", None
    able = [pair for pair in pairs if pair.least_p <= LEVEL]
    if not able:
        least = min(pair.least_p for pair in pairs)
        return f"{claim} cannot be judged with so few nets: p cannot be below {least:.2g}.", None
    differ = [pair for pair in able if pair.p <= LEVEL]
    every = len(differ) == len(able)
    count = f"{len(differ)} of {len(able)} pairs of datasets"
    largest, least = max(pair.p for pair in able), min(pair.least_p for pair in able)
    distances = [pair.distance for pair in able]
    sentence = (
        f"{claim} {'holds' if every else 'does not hold for every pair'}: {count} differ "
        f"significantly (p ≤ {LEVEL}; the largest is {largest:.2g}, the smallest possible "
        f"{least:.2g}), at distances from {min(distances):.2f} to {max(distances):.2f}."
    )
    what = "Claim 1: orders differ between datasets"
    why = f"permutation test over whole nets, largest p {largest:.2g}"
    return sentence, judged(what, _data(groups), "they do", f"{count} differ", holds(every), why)


def _claim_2(groups: Groups) -> Claim:
    """Orders of one net differ: all units start with the same order, so any spread is learned."""
    spreads = {name: [order_std(r) for r in found] for name, found in groups.items()}
    narrow = [name for name, stds in spreads.items() if min(stds) < 0.05]
    ranges = ", ".join(f"{min(s):.2f} to {max(s):.2f} on {name}" for name, s in spreads.items())
    found_so = f"does not hold on {', '.join(narrow)}" if narrow else "holds"
    sentence = (
        f"Claim 2, that the units of one net learn different orders, {found_so}: from one common "
        f"initial order the standard deviation grew to {ranges}."
    )
    what = "Claim 2: orders differ within a net"
    smallest = f"std at least {min(min(s) for s in spreads.values()):.2f} in every net"
    why = "all units of a net start with the same order"
    return sentence, judged(what, _data(groups), "they do", smallest, holds(not narrow), why)


def _data(groups: Groups) -> FeedForward:
    """The net of a dataset that stands in for no other, if there is one."""
    configs: list[FeedForward] = [found[0].config for found in groups.values()]
    return min(configs, key=lambda config: bool(outcomes.stand_in(config)))


def _two_modes(groups: Groups) -> Claim:
    """One mode or more, by dataset; the paper has two on Pentomino."""
    several = {name: sum(modes(r) > 1 for r in found) for name, found in groups.items()}
    nets = {name: f"{several[name]} of {len(found)} nets" for name, found in groups.items()}
    clauses = ", ".join(f"in {some} on {name}" for name, some in nets.items())
    sentence = f"The orders have more than one mode {clauses} (the paper: two on Pentomino)."
    for name, found in groups.items():
        if found[0].config.data == "pentomino":
            every, why = several[name] == len(found), "modes counted by kernel density"
            if not every:
                why += "; weight decay removes most units, whose orders stay near the start"
            what = f"Fig. 5: the orders on {name} have two modes"
            ours = f"more than one mode in {nets[name]}"
            return sentence, judged(what, found[0].config, "two modes", ours, holds(every), why)
    return sentence, None


EXPERIMENT = Experiment(
    name="table1",
    title="Table 1 and Fig. 5: the orders of single-layer nets",
    about="Nets with one layer of Lp units learn the orders of their units; the paper claims that "
    "orders differ between datasets (claim 1) and within one net (claim 2).",
    trials=trials,
    section=section,
    minutes={"smoke": 0.2, "quick": 0.7, "paper": 60},
)
