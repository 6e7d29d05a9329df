"""Fig. 4c: how many projections each kind of unit needs to draw a boundary of changing curvature.

A run fails if it does not reach zero training errors. The paper trains ten nets for each setting
and does not define its curve; ours is ``curve`` of ``lpunits data``. A second dataset, ``teacher``,
shows whether the findings depend on one curve.
"""

import statistics
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import binomtest

from lpunits.paper.experiments.plane import curve_net
from lpunits.paper.report.figures import COLORS, NAMES, panels
from lpunits.paper.report.section import Experiment, Picture, Section, Table
from lpunits.paper.report.summary import Headline, holds
from lpunits.paper.training.trial import Result, Scale, Trial

KINDS = ("lp", "l2", "maxout", "relu", "sigmoid")
SIZES = (2, 4, 6, 8, 10, 12, 14, 16)
TEACHER_SIZES = (4, 6)  # at the scale quick
SETS = {"curve": "the curve", "teacher": "the teacher"}


def trials(scale: Scale) -> list[Trial]:
    """Every kind and number of projections, with several seeds; at ``paper`` on two draws."""
    if scale == "smoke":
        small = [curve_net(kind, size, scale) for kind in ("lp", "relu") for size in (4, 6)]
        return [Trial(config, seed) for config in small for seed in range(2)]
    seeds, draws = {"quick": (10, 1), "paper": (10, 2)}[scale]
    return [
        Trial(curve_net(kind, size, scale, data, draw), seed)
        for data in SETS
        for kind in KINDS
        for size in (SIZES if (data, scale) != ("teacher", "quick") else TEACHER_SIZES)
        for draw in range(draws)
        for seed in range(seeds)
    ]


Runs = dict[tuple[str, str, int], list[int]]  # set, kind and projections: the errors of each run


def section(results: Sequence[Result]) -> Section:
    """Failure rates, and the paper's statements about them one by one."""
    runs: Runs = {}
    for r in results:
        key = (r.config.data, r.config.activation, r.config.projections)
        runs.setdefault(key, []).append(r.outcome["train_errors"])
    sets = [name for name in SETS if any(key[0] == name for key in runs)]
    picture = Picture(
        "fig4c",
        figure(runs, sets),
        "Failure rate against the number of projections, a line for each kind of unit",
        "Bands are 95 % confidence intervals (Wilson) of the failure rate.",
    )
    note = (
        "The paper: with 6 projections Lp units reach zero training errors in all ten runs, with 4 "
        "in at least one, where L2 units do in none; all others, sigmoid units included, are not "
        "as efficient. All nets are trained by natural conjugate gradient."
    )
    verdict = " ".join(f"On {SETS[name]}: {_verdict(runs, name)}" for name in sets)
    tables = [_table(runs, name) for name in sets]
    return Section(verdict, tables, [picture], [note], _headlines(runs))


def _headlines(runs: Runs) -> list[Headline]:
    paper = {("lp", 6): "0 of 10", ("lp", 4): "fewer than 10 of 10", ("l2", 4): "10 of 10"}
    rows = []
    for (kind, size), claimed in paper.items():
        if errors := runs.get(("curve", kind, size)):
            failed, count = failures(errors), len(errors)
            agrees = {"0": failed == 0, "f": failed < count, "1": failed == count}[claimed[0]]
            what = f"Fig. 4c: runs that fail with {size} {NAMES[kind]} projections"
            why = f"median of {statistics.median(errors):g} training errors"
            rows.append(Headline(what, claimed, f"{failed} of {count}", holds(agrees), why))
    if both := _sigmoid_and_lp(runs, "curve"):
        other = _sigmoid_and_lp(runs, "teacher")
        why = f"over all sizes; on a second dataset {other[0]} and {other[1]}" if other else ""
        ours = f"{both[0]} and {both[1]} failures"
        what = "Fig. 4c: sigmoid units fail more often than Lp units"
        rows.append(Headline(what, "they do", ours, holds(both[0] > both[1]), why))
    return rows


def _sigmoid_and_lp(runs: Runs, data: str) -> tuple[int, int] | None:
    """How often sigmoid and Lp units fail, over the sizes of Lp units."""
    sizes = [size for d, kind, size in runs if (d, kind) == (data, "lp")]
    found = [
        [failures(runs[data, kind, size]) for size in sizes if (data, kind, size) in runs]
        for kind in ("sigmoid", "lp")
    ]
    return (sum(found[0]), sum(found[1])) if all(found) else None


def failures(errors: Sequence[int]) -> int:
    """How many runs did not reach zero."""
    return sum(e > 0 for e in errors)


def needed(runs: Runs, data: str, kind: str) -> int | None:
    """The number of projections from which on no run fails, if there is one."""
    sizes = sorted(size for d, k, size in runs if (d, k) == (data, kind))
    enough = None
    for size in reversed(sizes):
        if failures(runs[data, kind, size]):
            break
        enough = size
    return enough


def _verdict(runs: Runs, data: str) -> str:
    """What was found, in sentences."""
    wanted = [("lp", 6), ("lp", 4), ("l2", 4)]
    clauses = [
        f"{failures(errors)} of {len(errors)} runs fail with {size} {NAMES[kind]} projections"
        for kind, size in wanted
        if (errors := runs.get((data, kind, size)))
    ]
    enough = []
    for kind in KINDS:
        if sizes := [size for d, k, size in runs if (d, k) == (data, kind)]:
            least = needed(runs, data, kind) or f"none up to {max(sizes)}"
            enough.append(f"{NAMES[kind]} {least}")
    sentences = [f"{'; '.join(clauses)}."] if clauses else []
    sentences.append(f"The fewest projections from which on no run fails: {', '.join(enough)}.")
    if both := _sigmoid_and_lp(runs, data):
        agrees = "more often than Lp units, as" if both[0] > both[1] else "no more often, unlike"
        counts = f"{both[0]} and {both[1]} failures"
        sentences.append(f"Sigmoid units fail {agrees} in the paper ({counts} over all sizes).")
    return " ".join(sentences)


def _table(runs: Runs, data: str) -> Table:
    sizes = sorted({size for d, _, size in runs if d == data})
    rows = []
    for kind in KINDS:
        cells = [NAMES[kind]]
        for size in sizes:
            errors = runs.get((data, kind, size), [])
            median = f"{statistics.median(errors):g}" if errors else ""
            cells.append(f"{failures(errors)}/{len(errors)} ({median})" if errors else "")
        if any(cells[1:]):
            rows.append(cells)
    caption = f"{SETS[data].capitalize()}: runs that fail (median training errors), by projections."
    return Table(["", *map(str, sizes)], rows, caption)


MARKERS = {"lp": "o", "l2": "D", "maxout": "*", "relu": ">", "sigmoid": "<"}  # the paper's


def figure(runs: Runs, sets: Sequence[str]) -> Figure:
    """A panel per dataset, a line with its band per kind."""
    fig, drawn = panels(1, len(sets), 5.2, 4.1, share="y")
    for axes, name in zip(drawn, sets, strict=True):
        _draw(axes, runs, name)
        axes.set(title=SETS[name], xlabel="projections", ylim=(-0.03, 1.03))
    drawn[0].set_ylabel("runs that fail")
    drawn[0].yaxis.set_major_formatter("{x:.0%}")
    legend = dict(zip(*reversed(drawn[0].get_legend_handles_labels()), strict=True))
    fig.legend(legend.values(), legend, loc="outside upper center", ncols=5, frameon=False)
    return fig


def _draw(axes: Axes, runs: Runs, data: str) -> None:
    for kind in KINDS:
        sizes = sorted(size for d, k, size in runs if (d, k) == (data, kind))
        if not sizes:
            continue
        counts = [(failures(runs[data, kind, s]), len(runs[data, kind, s])) for s in sizes]
        rates = [failed / total for failed, total in counts]
        bands = [binomtest(*count).proportion_ci(method="wilson") for count in counts]
        low, high = [band.low for band in bands], [band.high for band in bands]
        color = COLORS[kind]
        axes.fill_between(sizes, low, high, color=color, alpha=0.13, lw=0)
        axes.plot(sizes, rates, color=color, marker=MARKERS[kind], lw=2, label=NAMES[kind])
    axes.set_xticks(sorted({size for d, _, size in runs if d == data}))


EXPERIMENT = Experiment(
    name="fig4c",
    title="Fig. 4c: projections needed for a boundary of changing curvature",
    about="Nets of each kind of unit, with 2 to 16 projections, separate 5000 points inside and "
    "outside a closed curve; a run fails if it ends with training errors.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 4, "paper": 10},
)
