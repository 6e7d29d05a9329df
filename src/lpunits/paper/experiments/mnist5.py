"""Five seeds on MNIST: how much the average order depends on the start."""

import statistics
from collections.abc import Sequence

from lpunits.paper.report.outcomes import moved, orders, test_error, title
from lpunits.paper.report.section import Experiment, Headline, Section, Table
from lpunits.paper.statistics import spread
from lpunits.paper.training.recipes import table2_mnist
from lpunits.paper.training.trial import Result, Scale, Trial


def trials(scale: Scale) -> list[Trial]:
    """The two-layer net of Table 2, five times."""
    return [Trial(table2_mnist(scale), seed) for seed in range(5 if scale != "smoke" else 2)]


def section(results: Sequence[Result]) -> Section:
    """The average orders of the nets, their mean and standard deviation."""
    rows = [
        [
            str(result.trial.seed),
            f"{orders(result).mean():.3f}",
            f"{orders(result).std(correction=0):.3f}",
            f"{moved(result):.3f}",
            f"{test_error(result):.2%}",
        ]
        for result in results
    ]
    means = [orders(result).mean().item() for result in results]
    config = results[0].config
    name = title(config)
    if len(means) == 1:
        verdict = "One net so far: its spread over seeds cannot be told."
    else:
        deviation = statistics.stdev(means)
        same = "as small as in the paper" if deviation <= 0.028 else "larger than in the paper"
        within = statistics.fmean(orders(r).std(correction=0).item() for r in results)
        verdict = (
            f"On {name} the average orders of {len(means)} nets have the mean "
            f"{statistics.fmean(means):.3f} and the standard deviation {deviation:.3f}, {same} "
            f"(2.16 and 0.028 on MNIST); within a net the orders have one of {within:.3f}. They "
            f"started at {config.order:g}."
        )
    errors = spread([test_error(r) for r in results], ".2%")
    return Section(
        verdict,
        [Table(["seed", "mean order", "std over units", "mean movement", "test error"], rows)],
        notes=[f"Test error over the seeds: {errors}."],
        headlines=[
            Headline(
                f"mean order of two layers on {name}, mean ± std over seeds",
                "2.16 ± 0.028 on MNIST (n = 5)",
                f"{spread(means, '.3f')}, from {config.order:g}",
            )
        ],
    )


EXPERIMENT = Experiment(
    name="mnist5",
    title="Five seeds on MNIST",
    about="The two-layer net of Table 2 from five random starts: the paper finds the same average "
    "order each time, 2.16 with a standard deviation of 0.028.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 0.2, "paper": 40},
)
