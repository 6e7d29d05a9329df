"""Fig. 4c: how many projections each kind of unit needs to draw a boundary of changing curvature.

A run fails if it does not reach zero training errors. The paper trains ten nets for each setting
and does not define its curve; ours is ``curve`` of ``lpunits data``. A second dataset, ``teacher``,
shows whether the findings depend on one curve.
"""

import statistics
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from scipy.stats import binomtest

from lpunits.paper.experiments.plane import curve_net
from lpunits.paper.report.figures import COLORS, NAMES, panels
from lpunits.paper.report.section import Experiment, Picture, Section, Table, grouped
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


Runs = dict[str, dict[int, list[int]]]  # kind and projections: the training errors of each run


def _runs(results: Sequence[Result]) -> Runs:
    kinds = grouped(results, lambda config: config.activation)
    return {
        kind: {
            size: [r.outcome["train_errors"] for r in found]
            for size, found in grouped(kinds[kind], lambda config: config.projections).items()
        }
        for kind in KINDS
        if kind in kinds
    }


def section(results: Sequence[Result]) -> Section:
    """Failure rates, and the paper's statements about them one by one."""
    sets = {name: _runs(found) for name, found in grouped(results, lambda c: c.data).items()}
    picture = Picture(
        "fig4c",
        figure(sets),
        "Failure rate against the number of projections, a line for each kind of unit",
        "Bands are 95 % confidence intervals (Wilson) of the failure rate.",
    )
    note = (
        "The paper: with 6 projections Lp units reach zero training errors in all ten runs, with 4 "
        "in at least one, where L2 units do in none; all others, sigmoid units included, are not "
        "as efficient. All nets are trained by natural conjugate gradient."
    )
    verdict = " ".join(f"On {SETS[name]}: {_verdict(runs)}" for name, runs in sets.items())
    tables = [_table(runs, SETS[name]) for name, runs in sets.items()]
    summary = _headlines(sets.get("curve", {}), sets.get("teacher", {}))
    return Section(verdict, tables, [picture], [note], summary)


def _headlines(runs: Runs, second: Runs) -> list[Headline]:
    paper = {("lp", 6): "0 of 10", ("lp", 4): "fewer than 10 of 10", ("l2", 4): "10 of 10"}
    rows = []
    for (kind, size), claimed in paper.items():
        if errors := runs.get(kind, {}).get(size):
            failed, count = failures(errors), len(errors)
            agrees = {"0": failed == 0, "f": failed < count, "1": failed == count}[claimed[0]]
            what = f"Fig. 4c: runs that fail with {size} {NAMES[kind]} projections"
            why = f"median of {statistics.median(errors):g} training errors"
            rows.append(Headline(what, claimed, f"{failed} of {count}", holds(agrees), why))
    if both := _sigmoid_and_lp(runs):
        other = _sigmoid_and_lp(second)
        why = f"over all sizes; on a second dataset {other[0]} and {other[1]}" if other else ""
        ours = f"{both[0]} and {both[1]} failures"
        what = "Fig. 4c: sigmoid units fail more often than Lp units"
        rows.append(Headline(what, "they do", ours, holds(both[0] > both[1]), why))
    return rows


def _sigmoid_and_lp(runs: Runs) -> tuple[int, int] | None:
    """How often sigmoid and Lp units fail, over the sizes of Lp units."""
    lp = runs.get("lp", {})
    sigmoid = {size: errors for size, errors in runs.get("sigmoid", {}).items() if size in lp}
    if not sigmoid:
        return None
    return sum(map(failures, sigmoid.values())), sum(map(failures, lp.values()))


def failures(errors: Sequence[int]) -> int:
    """How many runs did not reach zero."""
    return sum(e > 0 for e in errors)


def _verdict(runs: Runs) -> str:
    """What was found, in sentences."""
    clauses = [
        f"{failures(errors)} of {len(errors)} runs fail with {size} {NAMES[kind]} projections"
        for kind, size in [("lp", 6), ("lp", 4), ("l2", 4)]
        if (errors := runs.get(kind, {}).get(size))
    ]
    enough = []
    for kind, sizes in runs.items():
        fail = max((size for size, errors in sizes.items() if failures(errors)), default=0)
        least = min((size for size in sizes if size > fail), default=f"none up to {fail}")
        enough.append(f"{NAMES[kind]} {least}")
    sentences = [f"{'; '.join(clauses)}."] if clauses else []
    sentences.append(f"The fewest projections from which on no run fails: {', '.join(enough)}.")
    if both := _sigmoid_and_lp(runs):
        agrees = "more often than Lp units, as" if both[0] > both[1] else "no more often, unlike"
        counts = f"{both[0]} and {both[1]} failures"
        sentences.append(f"Sigmoid units fail {agrees} in the paper ({counts} over all sizes).")
    return " ".join(sentences)


def _table(runs: Runs, title: str) -> Table:
    sizes = sorted({size for found in runs.values() for size in found})
    rows = [
        [
            NAMES[kind],
            *(
                f"{failures(e)}/{len(e)} ({statistics.median(e):g})" if (e := found.get(s)) else ""
                for s in sizes
            ),
        ]
        for kind, found in runs.items()
    ]
    caption = f"{title.capitalize()}: runs that fail (median training errors), by projections."
    return Table(["", *map(str, sizes)], rows, caption)


MARKERS = {"lp": "o", "l2": "D", "maxout": "*", "relu": ">", "sigmoid": "<"}  # the paper's


def figure(sets: Mapping[str, Runs]) -> Figure:
    """A panel per dataset, a line with its band per kind."""
    fig, drawn = panels(1, len(sets), 5.2, 4.1, share="y")
    for axes, (name, runs) in zip(drawn, sets.items(), strict=True):
        for kind, found in runs.items():
            counts = [(failures(errors), len(errors)) for errors in found.values()]
            rates = [failed / total for failed, total in counts]
            bands = [binomtest(*count).proportion_ci(method="wilson") for count in counts]
            low, high = [band.low for band in bands], [band.high for band in bands]
            sizes, color = list(found), COLORS[kind]
            axes.fill_between(sizes, low, high, color=color, alpha=0.13, lw=0)
            axes.plot(sizes, rates, color=color, marker=MARKERS[kind], lw=2, label=NAMES[kind])
        axes.set_xticks(sorted({size for found in runs.values() for size in found}))
        axes.set(title=SETS[name], xlabel="projections", ylim=(-0.03, 1.03))
    drawn[0].set_ylabel("runs that fail")
    drawn[0].yaxis.set_major_formatter("{x:.0%}")
    legend = dict(zip(*reversed(drawn[0].get_legend_handles_labels()), strict=True))
    fig.legend(legend.values(), legend, loc="outside upper center", ncols=5, frameon=False)
    return fig


EXPERIMENT = Experiment(
    name="fig4c",
    title="Fig. 4c: projections needed for a boundary of changing curvature",
    about="Nets of each kind of unit, with 2 to 16 projections, separate 5000 points inside and "
    "outside a closed curve; a run fails if it ends with training errors.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 4, "paper": 10},
)
