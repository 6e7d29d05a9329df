"""Table 3: the orders found in the five folds of a cross-validation."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from lpunits.paper.report.outcomes import moved, orders, test_error, title
from lpunits.paper.report.section import Experiment, Section, Table
from lpunits.paper.statistics import spread
from lpunits.paper.training.recipes import table1
from lpunits.paper.training.trial import Result, Scale, Trial

PAPER = ("2.00, 0.24e-4", "2.00, 0.24e-4", "2.01, 0.77e-4", "2.02, 1.50e-4", "2.00, 0.24e-4")


def trials(scale: Scale) -> list[Trial]:
    """The net for the faces, started at p = 2, on each fold; digits have splits for folds."""
    nets = [net for net in table1(scale) if net.data in ("tfd", "fer2013", "digits")]
    return [
        Trial(replace(net, order=2.0, data_options=((option, fold),)), 0)
        for net in nets
        for option in ["seed" if net.data == "digits" else "fold"]
        for fold in range(5)
    ]


def section(results: Sequence[Result]) -> Section:
    """Mean, spread and movement of the orders in each fold."""
    rows, told = [], []
    for data in dict.fromkeys(r.config.data for r in results):
        found = [r for r in results if r.config.data == data]
        means = [orders(r).mean().item() for r in found]
        stds = [orders(r).std(correction=0).item() for r in found]
        for result, mean, std in zip(found, means, stds, strict=True):
            fold = int(result.config.data_options[0][1])
            rows.append(
                [
                    f"{title(result.config)}, fold {fold + 1}",
                    PAPER[fold],
                    f"{mean:.3f}",
                    f"{std:.3f}",
                    f"{moved(result):.3f}",
                    f"{test_error(result):.2%}",
                ]
            )
        name = title(found[0].config)
        if len(found) == 1:
            told.append(f"On {name} there is one fold so far.")
            continue
        across, within = statistics.stdev(means), statistics.fmean(stds)
        agree = "all folds end in the same region" if across < within else "the folds disagree"
        told.append(
            f"On {name} {agree}: the mean order is {spread(means, '.3f')} over the folds, while "
            f"the orders of one net have a standard deviation of {within:.3f}; the units moved by "
            f"{statistics.fmean(moved(r) for r in found):.3f} in the mean."
        )
    return Section(
        " ".join(told),
        [Table(["fold", "paper: mean, std", "mean", "std", "mean movement", "test error"], rows)],
        notes=[
            "The paper's column of standard deviations is very likely one of variances, and of "
            "orders that hardly moved from their start at 2. Hence the column of movements."
        ],
    )


EXPERIMENT = Experiment(
    name="table3",
    title="Table 3: orders in five folds",
    about="Five nets on the five folds of a cross-validation on the faces: the paper finds their "
    "orders in the same region, near two.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.2, "quick": 0.3, "paper": 15},
)
