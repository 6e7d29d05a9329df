"""When learning the orders helps and when not: every net that was trained both ways."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from lpunits.paper.experiments import fixed_p, gem, modern, table2
from lpunits.paper.report.figures import NAMES
from lpunits.paper.report.outcomes import test_error, title
from lpunits.paper.report.section import Experiment, Section, Table, grouped
from lpunits.paper.statistics import paired, spread
from lpunits.paper.training.networks import Convolutional, FeedForward
from lpunits.paper.training.trial import Result, Scale, Trial

# What learning the orders does, if the error is ... than without.
EFFECTS = {
    "lower": "helps",
    "higher": "harms",
    "not significantly different": "makes no significant difference",
}
UNITS = {"lp": gem.LEARNED, "l2": "p = 2", "maxout": NAMES["maxout"]}


def trials(scale: Scale) -> list[Trial]:
    """The nets of other experiments, with learned orders, with fixed ones and with maxima."""
    every = [t for e in (fixed_p, table2, modern, gem) for t in e.trials(scale)]
    return list({t.key: t for t in every if _kind(t.config)}.values())


def section(results: Sequence[Result]) -> Section:
    """The difference that learning makes, seed by seed."""
    rows: list[list[str]] = []
    judgements: dict[str, list[str]] = {}
    for net, found in grouped(results, _net).items():
        name = f"{title(net)}, {_describe(net)}"
        errors = {
            kind: {r.trial.seed: test_error(r) for r in some}
            for kind, some in grouped(found, _kind).items()
        }
        learned = errors.pop(gem.LEARNED, {})
        for kind, fixed in errors.items():
            seeds = sorted(learned.keys() & fixed.keys())
            if not seeds:
                continue
            ours, theirs = ([some[seed] for seed in seeds] for some in (learned, fixed))
            points = [100 * (a - b) for a, b in zip(ours, theirs, strict=True)]
            means = [f"{statistics.fmean(some):.2%}" for some in (ours, theirs)]
            difference = spread(points, "+.2f").replace("± +", "± ")
            tested = paired(ours, theirs)
            verdict = EFFECTS[tested.how] if tested else "cannot be judged by one seed"
            rows.append([name, kind, *means, difference, verdict])
            judgements.setdefault(verdict, []).append(f"{name}, against {kind}")
    if not rows:
        return Section("No net has been trained both with learned orders and without them so far.")
    clauses = [
        f"{verdict} in {len(names)}" + f" ({'; '.join(names)})" * (verdict in ("helps", "harms"))
        for verdict, names in sorted(judgements.items())
    ]
    head = ["net", "instead of learning", "error, learned p", "error without", "difference, points"]
    return Section(
        f"Of {len(rows)} comparisons, learning the orders {', '.join(clauses)}.",
        [Table([*head, "learning p"], rows, "Difference: learned minus fixed, seed by seed.")],
        notes=[
            "Learning helps or harms if the 95 % confidence interval of the mean difference, by "
            "Student's t over the seeds, does not contain zero. One seed is not enough. Where "
            "there is no difference, one comparison in twenty still finds one.",
            "A maxout unit is not just an Lp unit with p = ∞: it takes no absolute value.",
        ],
    )


def _kind(config: FeedForward | Convolutional) -> str:
    """How it pools; empty for units that do not pool."""
    if isinstance(config, Convolutional):
        return gem.pool(config)
    return UNITS.get(config.activation, "")


def _net(config: FeedForward | Convolutional) -> FeedForward | Convolutional:
    """What nets have in common that differ in their pooling, and in the rate chosen for it."""
    if isinstance(config, Convolutional):
        return replace(config, order=3.0, learn_order=True)
    return replace(config, activation="lp", lr=0.0)


def _describe(net: FeedForward | Convolutional) -> str:
    """The kind of net in two or three words."""
    if isinstance(net, Convolutional):
        return "convolutional"
    layers = f"{len(net.hidden)} layer{'s' * (len(net.hidden) > 1)}"
    return f"{layers}, modern training" if net.optimizer != "sgd" else layers


EXPERIMENT = Experiment(
    name="learned-p",
    title="When learning p helps, and when not",
    about="Every net of the other experiments that was trained with learned orders and also with "
    "fixed ones or with maxima, compared seed by seed. It has no trials of its own.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.7, "quick": 3, "paper": 385},
)
