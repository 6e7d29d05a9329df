"""Five seeds on MNIST: how much the mean order of a net depends on the seed."""

import statistics
from collections.abc import Sequence

from lpunits.paper.report import outcomes
from lpunits.paper.report.outcomes import movement, order_mean, order_std, test_error
from lpunits.paper.report.section import Experiment, Section, Table
from lpunits.paper.report.summary import holds, judge
from lpunits.paper.statistics import spread
from lpunits.paper.training.recipes import table2_mnist
from lpunits.paper.training.trial import Result, Scale, Trial

PAPER_MEAN, PAPER_STD = 2.16, 0.028


def trials(scale: Scale) -> list[Trial]:
    """The two-layer net of Table 2, five times."""
    return [Trial(table2_mnist(scale), seed) for seed in range(5 if scale != "smoke" else 2)]


def section(results: Sequence[Result]) -> Section:
    """The mean orders of the nets, their mean and standard deviation."""
    config = results[0].config
    name = outcomes.title(config)
    means = [order_mean(r) for r in results]
    rows = [
        [
            str(r.trial.seed),
            *(f"{of(r):.3f}" for of in (order_mean, order_std, movement)),
            f"{test_error(r):.2%}",
        ]
        for r in results
    ]
    tables = [Table(["seed", "mean order", "std over units", "mean movement", "test error"], rows)]
    notes = [f"Test error over the seeds: {outcomes.errors(results)[0]}."]
    if len(means) == 1:
        return Section("One net so far: no spread over seeds.", tables, notes=notes)
    mean, deviation = statistics.fmean(means), statistics.stdev(means)
    small = deviation <= PAPER_STD
    same = "as small as in the paper" if small else "larger than in the paper"
    beside = "" if outcomes.stand_in(config) else f", {same}"
    close = judge(mean, PAPER_MEAN, lower_is_better=False) == "reproduced"
    ours = f"{spread(means, '.3f')}, from {config.order:g}"
    paper = f"{PAPER_MEAN} ± {PAPER_STD} on MNIST (n = 5)"
    what = f"Mean order of two layers on {name}, mean ± std over seeds"
    why = f"mean {mean / PAPER_MEAN - 1:+.1%}; the spread is {same}"
    return Section(
        f"On {name} the mean orders of {len(means)} nets have a mean of {mean:.3f} and a standard "
        f"deviation of {deviation:.3f}{beside} (paper: {PAPER_MEAN} and {PAPER_STD} on MNIST). "
        f"Within a net the standard deviation is {statistics.fmean(map(order_std, results)):.3f}; "
        f"all orders start at {config.order:g}.",
        tables,
        notes=notes,
        headlines=[outcomes.judged(what, config, paper, ours, holds(small and close), why)],
    )


EXPERIMENT = Experiment(
    name="mnist5",
    title="Five seeds on MNIST",
    about="The two-layer net of Table 2 with five seeds: in the paper the mean order is nearly the "
    "same each time, 2.16 with a standard deviation of 0.028.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 0.2, "paper": 40},
)
