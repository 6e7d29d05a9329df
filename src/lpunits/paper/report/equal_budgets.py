"""Equal budgets: every kind of unit on every dataset, each after a search of its own.

Hyperparameters that were chosen with one kind of unit favour that kind.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from lpunits.paper.report.figures import COLORS, NAMES, QUIET, panels
from lpunits.paper.report.section import Picture, Section, Table
from lpunits.paper.statistics import paired, spread


@dataclass(frozen=True)
class Contest:
    """The test numbers of the winners of searches of the same size.

    Args:
        data: The name of the dataset.
        budget: The size of each search.
        metric: What is compared: ``error`` or ``NLL``, lower is better.
        form: The format of its numbers.
        tests: For each kind of unit, ``lp`` among them, the number of the seeds 0, 1, ...
    """

    data: str
    budget: str
    metric: str
    form: str
    tests: Mapping[str, Sequence[float]]

    @property
    def best_other(self) -> str:
        """The kind of unit with the lowest mean, Lp units aside."""
        others = (kind for kind in self.tests if kind != "lp")
        return min(others, key=lambda kind: statistics.fmean(self.tests[kind]))


def section(contests: Sequence[Contest]) -> Section:
    """A table and a panel for each metric, and how Lp units compare with the best of the others.

    >>> tests = {"lp": [0.10, 0.12, 0.13], "relu": [0.41, 0.44, 0.44]}
    >>> contest = Contest("A", "3 trials", "error", ".1%", tests)
    >>> section([contest]).verdict
    'Lp units against the best other kind on the test set: better on A (ReLU).'
    """
    against: dict[str, list[str]] = {"lower": [], "not significantly different": [], "higher": []}
    for contest in contests:
        best = contest.best_other
        difference = paired(contest.tests["lp"], contest.tests[best])
        how = difference.how if difference else "not significantly different"
        against[how].append(f"{contest.data} ({_short(best)})")
    words = ("better", "no significant difference", "worse")
    found = zip(words, against.values(), strict=True)
    clauses = [f"{word} on {', '.join(names)}" for word, names in found if names]
    metrics = dict.fromkeys(contest.metric for contest in contests)
    by_metric = {metric: [c for c in contests if c.metric == metric] for metric in metrics}
    alt = "The test numbers of every kind of unit, relative to the mean of Lp units"
    caption = "A dot for each seed, a bar for the mean. Left of the line is better than Lp units."
    return Section(
        f"Lp units against the best other kind on the test set: {'; '.join(clauses)}.",
        [*(_table(metric, alike) for metric, alike in by_metric.items()), _differences(contests)],
        [Picture("equal-budgets", figure(by_metric), alt, caption)],
        [
            "A difference is significant if its 95 % interval, by a paired t-test over the seeds, "
            "does not contain 0. Three seeds find large differences only.",
            "All nets on one dataset have about the same number of weights.",
        ],
    )


def _table(metric: str, contests: Sequence[Contest]) -> Table:
    kinds = [kind for kind in NAMES if any(kind in contest.tests for contest in contests)]
    rows = [
        [c.data, c.budget, *(spread(c.tests[k], c.form) if k in c.tests else "" for k in kinds)]
        for c in contests
    ]
    caption = f"Test {metric}: mean ± standard deviation over seeds, n their number"
    return Table(["data", "search", *(NAMES[kind] for kind in kinds)], rows, caption)


def _differences(contests: Sequence[Contest]) -> Table:
    rows = []
    for contest in contests:
        best, points = contest.best_other, contest.form.endswith("%")
        found = paired(contest.tests["lp"], contest.tests[best])
        if found is None:
            rows.append([contest.data, _short(best), "", "", "one seed"])
            continue
        mean, low, high = (f"{100 * x:+.2f}" if points else f"{x:+.3f}" for x in found[:3])
        unit = "points" if points else "nats"
        rows.append(
            [contest.data, _short(best), f"{mean} {unit}", f"{low} to {high}", f"{found.p:.2g}"]
        )
    head = ["data", "the best other kind", "Lp less that", "95 % interval", "p"]
    caption = "Mean difference over seeds, its confidence interval, and p of a paired t-test"
    return Table(head, rows, caption)


def _short(kind: str) -> str:
    return NAMES[kind].partition(" (")[0]


def figure(by_metric: Mapping[str, Sequence[Contest]]) -> Figure:
    """A panel for each metric, a line for each dataset: all seeds relative to the mean of Lp."""
    lines = max(map(len, by_metric.values()))
    fig, drawn = panels(1, len(by_metric), 10 / len(by_metric), 1.3 + 0.75 * lines)
    bars = {}
    for axes, (metric, contests) in zip(drawn, by_metric.items(), strict=True):
        for line, contest in enumerate(contests):
            base = statistics.fmean(contest.tests["lp"])
            kinds = [kind for kind in NAMES if kind in contest.tests]
            for place, kind in enumerate(kinds):
                above = [100 * (value / base - 1) for value in contest.tests[kind]]
                mean, y = statistics.fmean(above), line + 0.6 * ((place + 0.5) / len(kinds) - 0.5)
                color = COLORS[kind]
                axes.plot(above, [y] * len(above), "o", ms=5, color=color, alpha=0.7)
                ends = [y - 0.08, y + 0.08]
                bars[NAMES[kind]] = axes.plot([mean, mean], ends, color=color, lw=3)[0]
        axes.axvline(0, color=QUIET, lw=1, ls="--")
        axes.set_yticks(range(len(contests)), [contest.data for contest in contests])
        axes.set_ylim(len(contests) - 0.5, -0.5)
        axes.set_xlabel(f"test {metric}, % above that of Lp units")
    fig.legend(bars.values(), bars, loc="outside upper center", ncols=len(bars), frameon=False)
    return fig
