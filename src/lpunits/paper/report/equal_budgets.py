"""Equal budgets: every kind of units on every dataset, each after a search of its own.

Units that share the values which were found with one kind of them are not compared, that kind is.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from lpunits.paper.report.figures import COLORS, NAMES, QUIET
from lpunits.paper.report.section import Picture, Section, Table
from lpunits.paper.statistics import compare, spread


@dataclass(frozen=True)
class Contest:
    """What the winners of searches of the same size have on test.

    Args:
        data: The name of the dataset.
        budget: The size of each search.
        metric: What is compared: ``error`` or ``NLL``, lower is better.
        form: How to write it.
        tests: For each kind of units, ``lp`` among them, the number of every seed.
    """

    data: str
    budget: str
    metric: str
    form: str
    tests: Mapping[str, Sequence[float]]


def section(contests: Sequence[Contest]) -> Section:
    """A table and a panel for each metric, and how Lp units stand against the best of the others.

    >>> contest = Contest("A", "3 trials", "error", ".1%", {"lp": [0.1, 0.2], "relu": [0.4, 0.5]})
    >>> section([contest]).verdict
    'On test Lp units are better than the best of the others on A (ReLU).'
    """
    against: dict[str, list[str]] = {"lower": [], "not significantly different": [], "higher": []}
    for contest in contests:
        ours, others = contest.tests["lp"], {k: t for k, t in contest.tests.items() if k != "lp"}
        best = min(others, key=lambda kind: statistics.fmean(others[kind]))
        name = NAMES[best].partition(" (")[0]
        against[compare(ours, others[best])].append(f"{contest.data} ({name})")
    words = {
        "lower": "better than",
        "not significantly different": "not significantly different from",
        "higher": "worse than",
    }
    told = [
        f"{words[how]} the best of the others on {', '.join(names)}"
        for how, names in against.items()
        if names
    ]
    by_metric = _by_metric(contests)
    alt = "The test numbers of every kind of units, relative to the mean of Lp units"
    caption = "A dot for each seed, a bar for the mean; left of the line is better than Lp units."
    return Section(
        f"On test Lp units are {'; '.join(told)}.",
        [_table(metric, alike) for metric, alike in by_metric.items()],
        [Picture("equal-budgets", figure(by_metric), alt, caption)],
        ["Two standard errors decide. All nets of a data set have about as many weights."],
    )


def _by_metric(contests: Sequence[Contest]) -> dict[str, list[Contest]]:
    found: dict[str, list[Contest]] = {}
    for contest in contests:
        found.setdefault(contest.metric, []).append(contest)
    return found


def _table(metric: str, contests: Sequence[Contest]) -> Table:
    kinds = [kind for kind in NAMES if any(kind in contest.tests for contest in contests)]
    rows = [
        [c.data, c.budget, *(spread(c.tests[k], c.form) if k in c.tests else "" for k in kinds)]
        for c in contests
    ]
    caption = f"Test {metric}: mean ± standard deviation over seeds, n their number"
    return Table(["data", "search", *(NAMES[kind] for kind in kinds)], rows, caption)


def figure(by_metric: Mapping[str, Sequence[Contest]]) -> Figure:
    """A panel for each metric, a line for each dataset: all seeds relative to the mean of Lp's."""
    lines = max(map(len, by_metric.values()))
    fig = Figure(figsize=(10, 1.3 + 0.75 * lines), layout="constrained")
    bars = {}
    panels = fig.subplots(1, len(by_metric), squeeze=False)[0]
    for axes, (metric, contests) in zip(panels, by_metric.items(), strict=True):
        for line, contest in enumerate(contests):
            base = statistics.fmean(contest.tests["lp"])
            kinds = [kind for kind in NAMES if kind in contest.tests]
            for place, kind in enumerate(kinds):
                above = [100 * (value / base - 1) for value in contest.tests[kind]]
                mean, y = statistics.fmean(above), line + 0.6 * ((place + 0.5) / len(kinds) - 0.5)
                color = COLORS[kind]
                axes.plot(above, [y] * len(above), "o", ms=5, color=color, alpha=0.7)
                bars[NAMES[kind]] = axes.plot([mean] * 2, [y - 0.08, y + 0.08], color=color, lw=3)[
                    0
                ]
        axes.axvline(0, color=QUIET, lw=1, ls="--")
        axes.set_yticks(range(len(contests)), [contest.data for contest in contests])
        axes.set_ylim(len(contests) - 0.5, -0.5)
        axes.set_xlabel(f"test {metric}, % above that of Lp units")
        axes.spines[["top", "right"]].set_visible(False)
    fig.legend(bars.values(), bars, loc="outside upper center", ncols=len(bars), frameon=False)
    return fig
