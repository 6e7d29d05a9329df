"""What the orders on Pentomino depend on, and whether the error depends on them."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from scipy.stats import spearmanr

from lpunits.paper.experiments.table1 import modes
from lpunits.paper.report import outcomes
from lpunits.paper.report.outcomes import PAPER_ORDERS, judged, order_mean, order_std, test_error
from lpunits.paper.report.section import Experiment, Picture, Section, Table, grouped
from lpunits.paper.report.summary import holds
from lpunits.paper.statistics import spread
from lpunits.paper.training.networks import FeedForward
from lpunits.paper.training.recipes import table1
from lpunits.paper.training.trial import Result, Scale, Trial

SEEDS: dict[Scale, int] = {"smoke": 1, "quick": 1, "paper": 5}
UNITS: dict[Scale, int] = {"smoke": 8, "quick": 20, "paper": 100}


def conditions(scale: Scale) -> dict[str, FeedForward]:
    """The net of Table 1 with fewer units, and with one thing or more that differs."""
    net = replace(table1(scale)[-1], hidden=(UNITS[scale],))
    fast = 3 * net.order_scale
    # Without the decay of the hidden weights it fits its images within 12 epochs.
    stopped = replace(net, weight_decay=0.0, keep_best=True, patience=5)
    return {
        "as in Table 1": net,
        "orders start at 2": replace(net, order=2.0),
        "orders start at 3 ± 1.5": replace(net, order_spread=1.5),
        "orders start at 5": replace(net, order=5.0),
        "orders learn three times as fast": replace(net, order_scale=fast),
        "at 3 ± 1.5, three times as fast": replace(net, order_spread=1.5, order_scale=fast),
        "decay of the output alone": replace(stopped, weight_decay=3e-3, decayed="output"),
        "no decay": stopped,
        "no decay, at 3 ± 1.5, three times as fast": replace(
            stopped, order_spread=1.5, order_scale=fast
        ),
    }


def trials(scale: Scale) -> list[Trial]:
    """Every condition, with every seed."""
    return [Trial(net, s) for net in conditions(scale).values() for s in range(SEEDS[scale])]


def section(results: Sequence[Result]) -> Section:
    """Orders and errors under every condition, and the rank correlation of the two."""
    names = {net: name for scale in SEEDS for name, net in conditions(scale).items()}
    groups = grouped(results, lambda config: names[config])
    rows = []
    for name, found in groups.items():
        spreads = spread([order_std(r) for r in found])
        several = f"{sum(modes(r) > 1 for r in found)} of {len(found)}"
        means = spread([order_mean(r) for r in found])
        rows.append([name, means, spreads, several, *outcomes.errors(found)])
    head = ["condition", "mean order", "std over units", "nets with two modes or more"]
    head += ["test error", "validation error"]
    config, paper = results[0].config, PAPER_ORDERS["pentomino"]
    data = outcomes.title(config)
    verdict, headlines = f"Too few conditions so far on {data} to compare them.", []
    # Those without decay of the hidden weights are another training, with another error.
    decayed = [found for found in groups.values() if _decayed(found[0].config)]
    orders = [fmean(map(order_mean, found)) for found in decayed]
    errors = [fmean(map(test_error, found)) for found in decayed]
    if min(len(set(orders)), len(set(errors))) > 2:
        rank = spearmanr(orders, errors)
        low, high = min(orders), max(orders)
        together = f"{min(errors):.1%} to {max(errors):.1%}"
        verdict = (
            f"Where all weights decay, {len(decayed)} conditions lead to mean orders of {low:.2f} "
            f"to {high:.2f} on {data} (paper: {paper}), and to mean test errors of {together}: the "
            f"orders depend on how they start and how fast they learn. The rank correlation of "
            f"order and error over these conditions is {rank.statistic:+.2f} "
            f"(p = {rank.pvalue:.2f})."
        )
        what = f"Orders on {data}, by how they start and learn: mean over the units"
        why = (
            f"criterion: the paper's mean lies between ours; the errors are {together}, their "
            f"rank correlation with the orders is {rank.statistic:+.2f}"
        )
        reached = holds(low <= float(paper.split()[0]) <= high)
        shown = f"{low:.2f} to {high:.2f} under {len(decayed)} conditions"
        headlines = [judged(what, config, paper, shown, reached, why)]
    alt = "Histograms of the orders, initial and learned, under every condition"
    picture = Picture("pentomino-orders", outcomes.orders_figure(groups), alt, "All nets together.")
    note = (
        "Without decay of the hidden weights, training ends after five epochs without a lower "
        "validation error. The modes are counted as in Table 1."
    )
    return Section(verdict, [Table(head, rows)], [picture], [note], headlines)


def _decayed(config: FeedForward) -> bool:
    return config.weight_decay > 0 and config.decayed == "all"


EXPERIMENT = Experiment(
    name="pentomino-orders",
    title="What the orders on Pentomino depend on",
    about="The paper's net for Pentomino has orders of 5.81 ± 1.56 with two modes, and the paper "
    "does not say how they started or how fast they learned; here a smaller net is trained under "
    "several such conditions.",
    trials=trials,
    section=section,
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 30},
)
