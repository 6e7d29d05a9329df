"""Table 3: the orders found in the five folds of a cross-validation."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from lpunits.paper.report import outcomes
from lpunits.paper.report.outcomes import movement, order_mean, order_std, test_error, title
from lpunits.paper.report.section import Experiment, Section, Table, grouped
from lpunits.paper.report.summary import holds, judge
from lpunits.paper.statistics import spread
from lpunits.paper.training.recipes import table1
from lpunits.paper.training.trial import Result, Scale, Trial

PAPER = ("2.00, 0.24e-4", "2.00, 0.24e-4", "2.01, 0.77e-4", "2.02, 1.50e-4", "2.00, 0.24e-4")


def trials(scale: Scale) -> list[Trial]:
    """The net for the faces, with initial orders of 2, on each fold; digits have random splits."""
    nets = [net for net in table1(scale) if net.data in ("tfd", "fer2013", "digits")]
    option = {"digits": "seed"}
    return [
        Trial(replace(net, order=2.0, data_options=((option.get(net.data, "fold"), fold),)), 0)
        for net in nets
        for fold in range(5)
    ]


def section(results: Sequence[Result]) -> Section:
    """Mean, spread and movement of the orders in each fold."""
    rows, sentences, summary = [], [], []
    for name, found in grouped(results, title).items():
        means, stds = [order_mean(r) for r in found], [order_std(r) for r in found]
        for result, mean, std in zip(found, means, stds, strict=True):
            fold = int(result.config.data_options[0][1])
            numbers = [f"{n:.3f}" for n in (mean, std, movement(result))]
            rows.append(
                [f"{name}, fold {fold + 1}", PAPER[fold], *numbers, f"{test_error(result):.2%}"]
            )
        if len(found) == 1:
            sentences.append(f"On {name} only one fold has been run so far.")
            continue
        across, within = statistics.stdev(means), statistics.fmean(stds)
        agree = "all folds end in the same region" if across < within else "the folds disagree"
        moved = statistics.fmean(map(movement, found))
        sentences.append(
            f"On {name} {agree}: the mean order is {spread(means, '.3f')} over the folds, while "
            f"the orders of one net have a standard deviation of {within:.3f}; the units moved by "
            f"{moved:.3f} on average."
        )
        near_two = judge(statistics.fmean(means), 2.006, lower_is_better=False) == "reproduced"
        verdict = holds(across < within and near_two)
        what = f"Table 3: mean order in five folds of {name}"
        ours = f"{min(means):.3f} to {max(means):.3f}"
        paper = "2.00 to 2.02 on TFD"
        summary.append(outcomes.judged(what, found[0].config, paper, ours, verdict, agree))
    return Section(
        " ".join(sentences),
        [Table(["fold", "paper: mean, std", "mean", "std", "mean movement", "test error"], rows)],
        notes=[
            "The paper's standard deviations are very likely variances, of orders that hardly "
            "moved from their initial value of 2. Hence our column of movements."
        ],
        headlines=summary,
    )


EXPERIMENT = Experiment(
    name="table3",
    title="Table 3: orders in five folds",
    about="Five nets on the five folds of a cross-validation on faces: in the paper their orders "
    "end in the same region, near two.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.2, "quick": 0.3, "paper": 15},
)
