"""Results to tables on the terminal, to one JSON file, and to a picture."""

import json
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import torch
from matplotlib.figure import Figure

import lpunits
from lpunits.files import write_atomically
from lpunits.paper.report.page import svg
from lpunits.paper.training.records import commit, cpu, versions
from timing import BOTH, OURS, Result, compiled


def print_table(
    title: str, head: Sequence[str], rows: Iterable[Sequence[str]], note: str = "", left: int = 1
) -> None:
    """A title, aligned columns (the first ``left`` are words, the others numbers), and a note."""
    lines = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    print(f"\n{title}")
    for line in lines:
        words = map(str.ljust, line[:left], widths)
        numbers = map(str.rjust, line[left:], widths[left:])
        print("  ".join([*words, *numbers]).rstrip())
    if note:
        print(note)


def print_comparison(results: Sequence[Result], title: str) -> None:
    """A table per group and mode: contestants down, cases across, with ratios to ours."""
    for group, mode in dict.fromkeys((r.group, r.mode) for r in results):
        chosen = [r for r in results if (r.group, r.mode) == (group, mode)]
        cases = list(dict.fromkeys(r.case for r in chosen))
        found = {(r.contestant, r.case): r for r in chosen}
        rows = [
            [name, *(_cell(found.get((name, case)), found[OURS, case]) for case in cases)]
            for name in dict.fromkeys(r.contestant for r in chosen)
        ]
        unit = "microseconds" if chosen[0].values is None else "ns per value"
        print_table(
            f"{title} {group}: {mode}", ["", *cases], rows, f"{unit}, and how many times ours"
        )


def _cell(theirs: Result | None, ours: Result) -> str:
    if theirs is None:
        return ""
    time = f"{theirs.shown:.3g}" if theirs.shown < 1000 else f"{theirs.shown:,.0f}"
    return f"{time} {theirs.timing.best / ours.timing.best:5.2f}x"


def print_saved(results: Sequence[Result]) -> None:
    """What a forward keeps for its backward, in values of float32 per value of the input."""
    for group in dict.fromkeys(r.group for r in results):
        kept = [r for r in results if r.group == group and r.values and r.saved_bytes is not None]
        if not kept:
            continue
        cases = list(dict.fromkeys(r.case for r in kept))
        found = {(r.contestant, r.case): f"{r.saved_bytes / 4 / r.values:.2f}" for r in kept}
        rows = [
            [name, *(found.get((name, case), "") for case in cases)]
            for name in dict.fromkeys(r.contestant for r in kept)
        ]
        title = f"Pooling {group}: saved for the backward"
        print_table(title, ["", *cases], rows, "float32 values per value of the input")


def print_sweep(results: Sequence[Result]) -> None:
    """The cost of a value at growing sizes, and the power of the size by which our time grows."""
    names = list(dict.fromkeys(r.contestant for r in results))
    sizes = list(dict.fromkeys(r.values for r in results))
    found = {(r.contestant, r.values): r for r in results}
    rows = [
        [f"{size:,}", *(f"{found[name, size].ns_per_value:,.3g}" for name in names)]
        for size in sizes
    ]
    ours = [found[OURS, size] for size in sizes if size >= 100_000]
    note = "ns per value"
    if len(ours) > 1:
        points = torch.tensor([[r.values, r.timing.best] for r in ours], dtype=torch.float64)
        covariance = torch.cov(points.log().t())
        slope = (covariance[0, 1] / covariance[0, 0]).item()
        note += f"; from 100,000 values on, our time grows as size^{slope:.2f}"
    print_table(f"Growing batches: {BOTH}", ["values", *names], rows, note)


def print_quietness(results: Sequence[Result]) -> None:
    """How far typical repeats lay above the best: on a quiet machine, a few percent."""
    ratios = [r.timing.median / r.timing.best for r in results]
    above = 100 * (statistics.median(ratios) - 1)
    print(f"\nThe median repeat lay {above:.0f} % above the best (median over all timings).")


def warn_if_busy() -> None:
    """Say so if something else is running."""
    if hasattr(os, "getloadavg") and (load := os.getloadavg()[0]) > 0.5:
        print(f"warning: the machine has a load of {load:.1f}; the times will be too long")


def environment() -> dict[str, object]:
    """What the numbers depend on."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "versions": versions(),
        "platform": platform.platform(),
        "cpu": cpu(),
        "operator": lpunits.ops.status(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def machine() -> str:
    """The same on one line: processor, instruction set, threads."""
    count = torch.get_num_threads()
    return f"{cpu()}, operator {lpunits.ops.status()}, {count} thread{'s' * (count > 1)}"


def write_json(path: Path, results: Sequence[Result], **more: object) -> None:
    """Everything that was measured, in one step: a reader never sees half of it."""
    rows = [asdict(r) for r in results]
    document = {"environment": environment(), **more, "results": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())


def write_plot(path: Path, results: Sequence[Result]) -> None:
    """The picture for the README."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, svg(figure(results)).encode())


def figure(results: Sequence[Result]) -> Figure:
    """A panel per shape, a bar per contestant: the cost of a value, forward + backward.

    One colour stands out and the rest is grey, so no meaning hangs on telling hues apart; the
    background is white, whatever the page's.
    """
    cases = list(dict.fromkeys(r.case for r in results))
    names = [n for n in _PLOTTED if any(r.contestant == n for r in results)]
    fig = Figure(figsize=(10, 0.9 + 0.36 * len(names)), layout="constrained")
    panels = fig.subplots(1, len(cases), sharey=True, squeeze=False)[0]
    for panel, case in zip(panels, cases, strict=True):
        cost = {r.contestant: r.ns_per_value for r in results if r.case == case}
        shown = [name for name in names if name in cost]
        colors = ["#0072b2" if name in (OURS, compiled(OURS)) else "#b3b3b3" for name in shown]
        bars = panel.barh([names.index(n) for n in shown], [cost[n] for n in shown], color=colors)
        labels = panel.bar_label(bars, [_two_digits(cost[n]) for n in shown], padding=3)
        for name, label in zip(shown, labels, strict=True):
            label.set_fontweight("bold" if name == OURS else "normal")
        panel.set_title(f"(batch, filters, units) =\n{case}", fontsize=10)
        panel.set_xlim(right=1.18 * max(cost.values()))
        panel.xaxis.set_visible(False)
        panel.spines[:].set_visible(False)
        panel.tick_params(axis="y", length=0)
    panels[0].set_yticks(range(len(names)), [_PLOTTED[name] for name in names])
    panels[0].invert_yaxis()  # the axes are shared: this turns all of them
    panels[0].get_yticklabels()[0].set_fontweight("bold")
    fig.supxlabel(f"nanoseconds per projected value, {BOTH}\n{machine()}", fontsize=10)
    return fig


def _two_digits(x: float) -> str:
    return f"{x:.0f}" if x >= 10 else f"{x:.1f}" if x >= 1 else f"{x:.2f}"


_PLOTTED = {
    OURS: "lpunits.lp_pool",
    compiled(OURS): "… with torch.compile",
    "naive": "the formula in torch",
    compiled("naive"): "… with torch.compile",
    "maxout, amax": "maxout (amax)",
    "maxout, max": "maxout (max)",
    compiled("maxout, max"): "… with torch.compile",  # of the two, what torch compiles better
    "ReLU": "ReLU",
    "copy": "copying the tensor",
}
