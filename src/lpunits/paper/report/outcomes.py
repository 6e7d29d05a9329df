"""How the results of feed-forward nets are read: errors, orders, names, and the paper's numbers.

A stand-in for the paper's data (digits for MNIST, FER2013 for TFD) has numbers of its own: they
stand beside the paper's, never in their place.
"""

import statistics
from collections.abc import Mapping, Sequence
from itertools import groupby

import torch
from matplotlib.figure import Figure
from torch import Tensor

from lpunits.paper.report.figures import COLORS, NAMES, order_histograms
from lpunits.paper.statistics import compare
from lpunits.paper.training.classification import Training
from lpunits.paper.training.trial import Result

UNITS = ("lp", "l2", "maxout", "relu")

# What the paper writes, by our name of the dataset it was measured on.
PAPER_ERROR = {
    "mnist": {"lp": "0.97%", "maxout": "0.94%"},
    "tfd": {"lp": "20.75%", "l2": "21%", "relu": "21.29%"},
    "pentomino": {"lp": "31.38% (text), 31.85% (table)"},
    "covertype": {"lp": "2.83%", "maxout": "2.78%"},
}
PAPER_ORDERS = {"mnist": "3.44 ± 0.38", "tfd": "2.04 ± 0.22", "pentomino": "5.81 ± 1.56"}
STANDS_FOR = {"digits": "mnist", "fer2013": "tfd"}
TITLES = {
    "mnist": "MNIST",
    "digits": "digits (8 x 8)",
    "tfd": "TFD",
    "fer2013": "FER2013",
    "pentomino": "Pentomino",
    "covertype": "Covertype",
    "nottingham": "Nottingham",
    "jsb": "JSB Chorales",
    "musedata": "MuseData",
}


def title(config: Training) -> str:
    """The name of the data for a table, with its size or columns, and what is done to inputs."""
    options = dict(config.data_options)
    size = f", {options['train']:,} images" if "train" in options else ""
    columns = ", 54 columns" if "components" in options and options["components"] is None else ""
    disturbed = {"noise": getattr(config, "noise", 0), "adversarial examples": config.adversarial}
    disturbances = " and ".join(name for name, amount in disturbed.items() if amount)
    inputs = f" with {disturbances}" if disturbances else ""
    return f"{TITLES.get(config.data, config.data)}{size}{columns}{inputs}"


def papers(numbers: dict[str, str], data: str) -> str:
    """The paper's number for a dataset, or for the one that it stands in for."""
    if data in numbers:
        return numbers[data]
    other = STANDS_FOR.get(data)
    return f"{numbers[other]} on {TITLES[other]}" if other in numbers else "none"


def test_error(result: Result) -> float:
    """The number that is reported: after the last stage, if there was one."""
    outcome = result.outcome
    return float(outcome.get("last_stage", outcome["metrics"])["test"]["error"])


def orders(result: Result, when: str = "final") -> Tensor:
    """The orders of all units, ``initial`` or ``final``."""
    values = [float(p) for layer in result.outcome["orders"] for p in layer[when]]
    return torch.tensor(values, dtype=torch.float64)


def moved(result: Result) -> float:
    """How far the orders of a net went from their start, in the mean over the units."""
    return (orders(result) - orders(result, "initial")).abs().mean().item()


def by_data(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    """Results with the title of their data, in the order in which it first appears."""
    names = list(dict.fromkeys(title(r.config) for r in results))
    ordered = sorted(results, key=lambda r: names.index(title(r.config)))
    return [(name, list(found)) for name, found in groupby(ordered, lambda r: title(r.config))]


def against_others(
    name: str, errors: Mapping[str, Sequence[float]], net: str = "the Lp net", ours: str = "lp"
) -> str:
    """How the errors of one kind of net compare with those of each of the others, in a sentence."""
    if ours not in errors:
        return f"On {name} {net} has not been run."
    against: dict[str, list[str]] = {}
    for kind, found in errors.items():
        if kind != ours:
            against.setdefault(compare(errors[ours], found), []).append(NAMES.get(kind, kind))
    words = {
        "lower": "lower than",
        "higher": "higher than",
        "not significantly different": "not significantly different from",
    }
    parts = [f", {words[how]} {' and '.join(kinds)}" for how, kinds in against.items()]
    mean = statistics.fmean(errors[ours])
    return f"On {name} the error of {net} is {mean:.2%}{''.join(parts)}."


def drawn_orders(groups: Sequence[tuple[str, Sequence[Result]]]) -> Figure:
    """Histograms of the orders of all units of all nets, a panel for each name."""
    return order_histograms(
        {name: torch.cat([orders(r) for r in found]).numpy() for name, found in groups},
        {name: orders(found[0], "initial").mean().item() for name, found in groups},
    )


def drawn_errors(results: Sequence[Result]) -> Figure:
    """A panel for each dataset: every run's test error."""
    groups = by_data(results)
    fig = Figure(figsize=(1 + 2.6 * len(groups), 3), layout="constrained")
    for axes, (name, found) in zip(
        fig.subplots(1, len(groups), squeeze=False)[0], groups, strict=True
    ):
        units = [unit for unit in UNITS if any(r.config.activation == unit for r in found)]
        for place, unit in enumerate(units):
            errors = [100 * test_error(r) for r in found if r.config.activation == unit]
            axes.plot([place] * len(errors), errors, "o", color=COLORS[unit], alpha=0.7)
            mean = statistics.fmean(errors)
            axes.plot([place - 0.25, place + 0.25], [mean, mean], color=COLORS[unit], lw=2.5)
        axes.set_xticks(range(len(units)), [NAMES[unit].split(" ")[0] for unit in units])
        axes.set_xlim(-0.6, len(units) - 0.4)
        axes.set_title(name, fontsize=10)
        axes.set_ylabel("test error, %")
        axes.spines[["top", "right"]].set_visible(False)
    return fig
