"""Fig. 4c: how many projections each kind of unit needs to draw a boundary of changing curvature.

A run fails if it does not reach zero training errors. The paper trains ten nets for each setting
and does not define its curve; ours is ``curve`` of ``lpunits data``. A second set, ``teacher``, is
there to see whether what is found hangs on one curve.
"""

import math
import statistics
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lpunits.paper.experiments.plane import curve_net
from lpunits.paper.report.figures import COLORS, NAMES
from lpunits.paper.report.section import Experiment, Headline, Picture, Section, Table
from lpunits.paper.training.trial import Result, Scale, Trial

KINDS = ("lp", "l2", "maxout", "relu", "sigmoid")
SIZES = (2, 4, 6, 8, 10, 12, 14, 16)
FEW_SIZES = (4, 6)  # of the teacher at the scale quick, which is to stay quick
SETS = {"curve": "the curve", "teacher": "the teacher"}


def trials(scale: Scale) -> list[Trial]:
    """Every kind and number of projections, from several starts; at ``paper`` on several draws."""
    if scale == "smoke":
        small = [curve_net(kind, size, scale) for kind in ("lp", "relu") for size in (4, 6)]
        return [Trial(config, seed) for config in small for seed in range(2)]
    starts, draws = {"quick": (10, 1), "paper": (10, 2)}[scale]
    return [
        Trial(curve_net(kind, size, scale, data, draw), seed)
        for data in SETS
        for kind in KINDS
        for size in (SIZES if (data, scale) != ("teacher", "quick") else FEW_SIZES)
        for draw in range(draws)
        for seed in range(starts)
    ]


Runs = dict[tuple[str, str, int], list[int]]  # set, kind and projections: the errors of each run


def section(results: Sequence[Result]) -> Section:
    """Failure rates, and the paper's statements about them one by one."""
    runs: Runs = {}
    for r in results:
        key = (r.config.data, r.config.activation, r.config.projections)
        runs.setdefault(key, []).append(r.outcome["train_errors"])
    sets = [name for name in SETS if any(key[0] == name for key in runs)]
    verdict = " ".join(f"On {SETS[name]}: {_verdict(runs, name)}" for name in sets)
    tables = [_table(runs, name) for name in sets]
    picture = Picture(
        "fig4c",
        figure(runs, sets),
        "Failure rate against the number of projections, a line for each kind of unit",
        "Bands are 95 % confidence intervals (Wilson) of the failure rate.",
    )
    note = (
        "The paper: Lp units reach zero training errors in all ten runs with 6 projections, and in "
        "at least one with 4, where L2 units reach it in none; all others, the sigmoid included, "
        "are said not to be as efficient. Training is natural conjugate gradient in all cases."
    )
    return Section(verdict, tables, [picture], [note], _headlines(runs))


def _headlines(runs: Runs) -> list[Headline]:
    paper = {("lp", 6): "0 of 10", ("l2", 4): "10 of 10"}
    return [
        Headline(
            f"runs that fail on the curve with {size} {NAMES[kind]} projections",
            claimed,
            f"{failures(errors)} of {len(errors)}",
        )
        for (kind, size), claimed in paper.items()
        if (errors := runs.get(("curve", kind, size)))
    ]


def failures(errors: Sequence[int]) -> int:
    """How many runs did not reach zero."""
    return sum(e > 0 for e in errors)


def wilson(failed: int, runs: int) -> tuple[float, float]:
    """The 95 % confidence interval of a rate, by Wilson's formula.

    >>> [round(end, 3) for end in wilson(0, 10)], [round(end, 3) for end in wilson(5, 10)]
    ([0.0, 0.278], [0.237, 0.763])
    """
    z = statistics.NormalDist().inv_cdf(0.975)
    middle = (failed + z * z / 2) / (runs + z * z)
    half = z * math.sqrt(failed * (runs - failed) / runs + z * z / 4) / (runs + z * z)
    return max(0.0, middle - half), min(1.0, middle + half)


def needed(runs: Runs, data: str, kind: str) -> int | None:
    """The number of projections from which on no run fails; None: there is none."""
    sizes = sorted(size for d, k, size in runs if (d, k) == (data, kind))
    enough = None
    for size in reversed(sizes):
        if failures(runs[data, kind, size]):
            break
        enough = size
    return enough


def _verdict(runs: Runs, data: str) -> str:
    """What was found, in sentences."""

    def said(kind: str, size: int) -> str:
        errors = runs[data, kind, size]
        return (
            f"{failures(errors)} of {len(errors)} runs fail with {size} {NAMES[kind]} projections"
        )

    wanted = [("lp", 6), ("lp", 4), ("l2", 4)]
    parts = [said(kind, size) for kind, size in wanted if (data, kind, size) in runs]
    kinds = [kind for kind in KINDS if any(key[:2] == (data, kind) for key in runs)]
    enough = {kind: needed(runs, data, kind) for kind in kinds}
    counts = ", ".join(
        f"{NAMES[kind]} {size if size else f'none up to {_most(runs, data, kind)}'}"
        for kind, size in enough.items()
    )
    sentences = [
        f"{'; '.join(parts)}." if parts else "",
        f"The fewest projections from which on no run fails: {counts}.",
    ]
    if "sigmoid" in enough and "lp" in enough:
        common = [size for d, k, size in runs if (d, k) == (data, "lp")]
        lp, sigmoid = (
            sum(failures(runs[data, kind, size]) for size in common if (data, kind, size) in runs)
            for kind in ("lp", "sigmoid")
        )
        than = "no more often than" if sigmoid <= lp else "more often than"
        agrees = "against the paper's wording" if sigmoid <= lp else "as the paper says"
        sentences.append(
            f"Over all sizes the sigmoid fails {than} Lp, {agrees} ({sigmoid} and {lp} failures)."
        )
    return " ".join(s for s in sentences if s)


def _most(runs: Runs, data: str, kind: str) -> int:
    return max(size for d, k, size in runs if (d, k) == (data, kind))


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


def figure(runs: Runs, sets: Sequence[str]) -> Figure:
    """A panel per set, a line with its band per kind."""
    fig = Figure(figsize=(5.2 * len(sets), 3.9), layout="constrained")
    panels = fig.subplots(1, len(sets), squeeze=False, sharey=True)[0]
    for axes, name in zip(panels, sets, strict=True):
        _draw(axes, runs, name)
        axes.set(title=SETS[name], xlabel="projections", ylim=(-0.03, 1.03))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("runs that fail")
    panels[0].yaxis.set_major_formatter("{x:.0%}")
    return fig


MARKERS = {"lp": "o", "l2": "D", "maxout": "*", "relu": ">", "sigmoid": "<"}


def _draw(axes: Axes, runs: Runs, data: str) -> None:
    lines = []
    for kind in KINDS:
        sizes = sorted(size for d, k, size in runs if (d, k) == (data, kind))
        if not sizes:
            continue
        counts = [(failures(runs[data, kind, s]), len(runs[data, kind, s])) for s in sizes]
        rates = [failed / total for failed, total in counts]
        low, high = zip(*(wilson(*count) for count in counts), strict=True)
        color = COLORS[kind]
        axes.fill_between(sizes, low, high, color=color, alpha=0.13, lw=0)
        axes.plot(sizes, rates, color=color, marker=MARKERS[kind], lw=2)
        lines.append((kind, sizes, rates))
    axes.set_xticks(sorted({size for d, _, size in runs if d == data}))
    taken: list[float] = []
    for kind, sizes, rates in sorted(lines, key=lambda line: sum(line[2])):
        others = [line[1:] for line in lines if line[0] != kind]
        height = max(
            (h for h in HEIGHTS if all(abs(h - t) > 0.06 for t in taken)),
            key=lambda h: (_room(sizes, rates, others, h), -abs(h - 0.5)),
        )
        height = height if _where(sizes, rates, height) else rates[-1]
        taken.append(height)
        x = max(_where(sizes, rates, height), default=sizes[-1]) + 0.25
        axes.text(x, height, NAMES[kind], color=COLORS[kind], weight="bold", va="center")


HEIGHTS = [h / 100 for h in range(6, 96, 3)]
Line = tuple[Sequence[int], Sequence[float]]


def _room(sizes: Sequence[int], rates: Sequence[float], others: Sequence[Line], h: float) -> float:
    """How far it is, at a height, from a line to the next one on its right; 4 is far enough."""
    passed = _where(sizes, rates, h)
    if not passed:
        return 0.0
    here = max(passed)
    right = [x for line in others for x in _where(*line, h) if x > here]
    return min([4.0, *(x - here for x in right)])


def _where(sizes: Sequence[int], rates: Sequence[float], height: float) -> list[float]:
    """Where a line passes a height."""
    found = []
    for k in range(1, len(sizes)):
        first, second = rates[k - 1], rates[k]
        if min(first, second) <= height < max(first, second):
            share = (first - height) / (first - second)
            found.append(sizes[k - 1] + share * (sizes[k] - sizes[k - 1]))
    return found


EXPERIMENT = Experiment(
    name="fig4c",
    title="Fig. 4c: projections needed for a boundary of changing curvature",
    about="5000 points inside and outside a closed curve. Nets of each kind of unit with 2 to 16 "
    "projections are trained by natural conjugate gradient; a run fails if it ends with training "
    "errors.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 4, "paper": 10},
)
