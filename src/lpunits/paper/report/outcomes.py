"""How the results of feed-forward nets are read: errors, orders, names, and the paper's numbers.

A stand-in for the paper's data (digits for MNIST, FER2013 for TFD, a small Pentomino for the full
one) has numbers of its own: they stand beside the paper's, and are never compared with them.
"""

import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from torch import Tensor

from lpunits.paper.report.figures import COLORS, NAMES, QUIET, panels
from lpunits.paper.report.section import Picture, grouped
from lpunits.paper.report.summary import Headline, Verdict, judge
from lpunits.paper.statistics import compare, spread, versus
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
STANDS_FOR = {"digits": "mnist", "fer2013": "tfd", "chords": "jsb"}
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
    columns += ", TabR's sizes" if options.get("tabr") else ""
    disturbed = {
        "noise": getattr(config, "noise", 0),
        "adversarial examples": config.adversarial,
        "virtual adversarial training": config.virtual,
    }
    disturbances = " and ".join(name for name, amount in disturbed.items() if amount)
    inputs = f" with {disturbances}" if disturbances else ""
    return f"{TITLES.get(config.data, config.data)}{size}{columns}{inputs}"


def paper_value(numbers: Mapping[str, str], data: str) -> str:
    """The paper's number for a dataset, or for the one that it stands in for."""
    if data in numbers:
        return numbers[data]
    other = STANDS_FOR.get(data, "")
    return f"{numbers[other]} on {TITLES[other]}" if other in numbers else "none"


def paper_error(data: str, unit: str) -> str:
    """The paper's test error of a kind of unit on a dataset."""
    return paper_value({name: e[unit] for name, e in PAPER_ERROR.items() if unit in e}, data)


def stand_in(config: Any) -> str:
    """For data that stand in for the paper's: what they replace, and why; empty for all others."""
    name = getattr(config, "data", "")
    if name in STANDS_FOR:
        other = TITLES[STANDS_FOR[name]]
        reason = "not public" if other == "TFD" else "a download"
        return f"{other} is {reason}; {TITLES.get(name, name)} stands in, nothing is compared"
    if "train" in dict(getattr(config, "data_options", ())):
        return f"{title(config)} stand in for all of them, nothing is compared"
    return ""


def judged(
    what: str, config: Any, paper: str, ours: str, verdict: Verdict, why: str = ""
) -> Headline:
    """A row of the summary; stand-ins are never judged."""
    if reason := stand_in(config):
        return Headline(what, paper, ours, "stand-in", reason)
    return Headline(what, paper, ours, verdict, why)


def headline(
    what: str,
    config: Any,
    paper: str,
    ours: float,
    shown: str,
    why: str = "",
    *,
    error: bool = True,
) -> list[Headline]:
    """The row of the summary for a number, if the paper has one.

    Args:
        what: What was measured.
        config: The net, with the name of its data.
        paper: What the paper writes.
        ours: Our number, in the paper's unit.
        shown: Our number, as it is shown.
        why: What else the verdict rests on.
        error: Whether lower is better.
    """
    if not (number := re.match(r"[\d.]+", paper)):
        return []
    claimed = float(number[0])
    distance = ours / claimed - 1
    way = f"{abs(distance):.1%} {'above' if distance > 0 else 'below'} the paper's number"
    verdict = judge(ours, claimed, lower_is_better=error)
    return [judged(what, config, paper, shown, verdict, f"{way}{why and '; '}{why}")]


def test_error(result: Result) -> float:
    """The number that is reported: after the last stage, if there was one."""
    error: float = result.config.score(result.outcome, "test")
    return error


def errors(results: Sequence[Result]) -> list[str]:
    """Test and validation error of several seeds, for a table."""
    valid = [r.outcome["metrics"]["valid"]["error"] for r in results]
    return [spread([test_error(r) for r in results], ".2%"), spread(valid, ".2%")]


def orders(result: Result, when: str = "final") -> Tensor:
    """The orders of all units, ``initial`` or ``final``."""
    values = [float(p) for layer in result.outcome["orders"] for p in layer[when]]
    return torch.tensor(values, dtype=torch.float64)


def order_mean(result: Result) -> float:
    """The mean order of a net."""
    return orders(result).mean().item()


def order_std(result: Result) -> float:
    """The standard deviation of the orders over the units of a net."""
    return orders(result).std(correction=0).item()


def movement(result: Result) -> float:
    """How far the orders of a net moved from their initial values, as a mean over the units."""
    return (orders(result) - orders(result, "initial")).abs().mean().item()


def activation(config: Any) -> str:
    """The kind of its hidden units."""
    kind: str = config.activation
    return kind


def unit_rows(
    results: Sequence[Result], paper: Callable[[Any], str]
) -> Iterator[tuple[list[str], Sequence[Result]]]:
    """For each dataset and kind of unit: a row of a table, with the paper's number; its results."""
    for name, found in grouped(results, title).items():
        for kind, ours in grouped(found, activation).items():
            size = f"{ours[0].outcome['parameters']:,}"
            yield [name, NAMES[kind], paper(ours[0].config), *errors(ours), size], ours


def error_headline(
    what: str, row: Sequence[str], ours: Sequence[Result], why: str
) -> list[Headline]:
    """The row of the summary for one of :func:`unit_rows`, if the paper has its number."""
    mean = 100 * statistics.fmean(map(test_error, ours))
    return headline(what, ours[0].config, row[2], mean, row[3], why)


def against_others(
    results: Sequence[Result],
    kind: Callable[[Any], str] = activation,
    net: str = "the Lp net",
    ours: str = "lp",
) -> str:
    """How the test errors of one kind of net compare with the others, a sentence per dataset."""
    sentences = []
    for name, some in grouped(results, title).items():
        found = {k: [test_error(r) for r in same] for k, same in grouped(some, kind).items()}
        if not (errors := found.pop(ours, [])):
            sentences.append(f"On {name} {net} has not been run.")
            continue
        against: dict[str, list[str]] = {}
        for other, theirs in found.items():
            against.setdefault(compare(errors, theirs), []).append(NAMES.get(other, other))
        clauses = [f", {versus(how, ' and '.join(others))}" for how, others in against.items()]
        mean = statistics.fmean(errors)
        sentences.append(f"On {name} the error of {net} is {mean:.2%}{''.join(clauses)}.")
    return " ".join(sentences)


def orders_figure(groups: Mapping[str, Sequence[Result]]) -> Figure:
    """A panel for each name: the initial and the learned orders of all units of all nets.

    As in the paper, the number of units is on a logarithmic axis, too: rare orders stay visible.
    """
    starts, learned = (
        {name: torch.cat([orders(r, when) for r in found]) for name, found in groups.items()}
        for when in ("initial", "final")
    )
    every = torch.cat([*learned.values(), *starts.values()]).numpy()
    low, high = every.min() / 1.05, every.max() * 1.05
    fig, drawn = panels(len(learned), 1, 8, 1.8, share="x")
    for axes, (name, values) in zip(drawn, learned.items(), strict=True):
        edges, start = np.geomspace(low, high, 61).tolist(), starts[name]
        axes.hist(values.numpy(), edges, color=COLORS["lp"], label="learned")
        if start.min() == start.max():
            axes.axvline(start[0].item(), color=QUIET, lw=2, ls="--", label="initial")
        else:
            axes.hist(start.numpy(), edges, color="black", histtype="step", label="initial")
        axes.set_title(name, loc="left", fontsize=10)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(0.7, None), ylabel="units")
        axes.yaxis.set_major_formatter("{x:g}")
    ticks = [t for t in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15, 20, 40) if low <= t <= high]
    drawn[-1].set(xticks=ticks, xlabel="order p")
    drawn[-1].xaxis.set_major_formatter("{x:g}")
    drawn[-1].xaxis.set_minor_formatter(NullFormatter())
    legend = drawn[0].get_legend_handles_labels()
    fig.legend(*legend, loc="outside upper right", ncols=2, frameon=False, fontsize=9)
    return fig


def errors_picture(name: str, results: Sequence[Result], alt: str) -> Picture:
    """A panel for each dataset: every run's test error."""
    groups = grouped(results, title)
    fig, drawn = panels(1, len(groups), 2.8, 3)
    for axes, (data, found) in zip(drawn, groups.items(), strict=True):
        units = grouped(found, activation)
        for place, (unit, some) in enumerate(units.items()):
            values = [100 * test_error(r) for r in some]
            axes.plot([place] * len(values), values, "o", color=COLORS[unit], alpha=0.7)
            mean = statistics.fmean(values)
            axes.plot([place - 0.25, place + 0.25], [mean, mean], color=COLORS[unit], lw=2.5)
        axes.set_xticks(range(len(units)), [NAMES[unit].split(" ")[0] for unit in units])
        axes.set_xlim(-0.6, len(units) - 0.4)
        axes.set_title(data.replace(" and ", "\nand "), fontsize=10)
        axes.set_ylabel("test error, %")
    return Picture(name, fig, alt, "A dot for each run, a bar for the mean.")
