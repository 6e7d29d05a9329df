"""Tables on the terminal: the summary of results, with the paper's numbers beside ours."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from lpunits.paper.report import summary
from lpunits.paper.report.parts import Part
from lpunits.paper.report.section import Experiment
from lpunits.paper.report.summary import Headline

COLORS = {"reproduced": "green", "better": "green", "not reproduced": "red", "stand-in": "dim"}
console = Console(highlight=False)


def print_rows(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    shrinks: str = "",
    *,
    wraps: bool = True,
    rule: bool = True,
) -> None:
    """Print a table. If the window is narrow, the column ``shrinks`` is wrapped or cut, or all."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    narrow = sum(widths) + 3 * len(head) > console.width
    lines = box.SIMPLE_HEAD if rule else None
    table = Table(box=lines, expand=narrow, show_edge=False, padding=(0, 1))
    all_wrap = narrow and not shrinks
    for title, width in zip(head, widths, strict=True):
        if title == shrinks and narrow:
            table.add_column(title, ratio=1, no_wrap=not wraps, overflow="ellipsis")
        else:
            table.add_column(title, no_wrap=not all_wrap, min_width=None if all_wrap else width)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_headlines(headlines: Sequence[Headline], title: str = "") -> None:
    """Print rows of the summary."""
    table = _comparison({"": 4, "paper": 2, "ours": 3, "verdict": None}, title)
    for headline in headlines:
        verdict = f"[{COLORS[headline.verdict]}]{headline.verdict}[/]"
        table.add_row(headline.what, headline.paper, headline.ours, verdict)
    console.print(table)
    if any(headline.verdict == "stand-in" for headline in headlines):
        console.print("stand-in: measured on other data than the paper's, so nothing is compared")


def _comparison(ratios: Mapping[str, int | None], title: str = "") -> Table:
    """A table without rows; a column without a ratio is as wide as a verdict."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for name, ratio in ratios.items():
        table.add_column(name, ratio=ratio, min_width=14 if ratio is None else None)
    return table


def print_parts(parts: Sequence[Part]) -> None:
    """Print what experiments have found: the rows of the summary, and verdicts in words."""
    for part in parts:
        if not part.section.headlines:
            console.print(f"{part.experiment.name}: {part.section.verdict}", markup=False)
        if len(parts) == 1 and not part.section.headlines and part.section.tables:
            table = part.section.tables[0]
            print_rows(table.head, table.rows)
    if rows := [h for part in parts for h in part.section.headlines]:
        print_headlines(rows)


def print_agreement(headlines: Sequence[Headline]) -> int:
    """Print rows of the summary beside the committed ones; returns how many differ."""
    committed = {h.what: h for h in summary.read()}
    pairs = [(h, committed[h.what]) for h in headlines if h.what in committed]
    found = [summary.agreement(*pair) for pair in pairs]
    table = _comparison({"": 4, "committed": 3, "here": 3, "agreement": None})
    for (here, there), how in zip(pairs, found, strict=True):
        table.add_row(here.what, there.ours, here.ours, how)
    if pairs:
        console.print(table)
    counts = ", ".join(f"{number} {how}" for how, number in Counter(found).items())
    console.print(f"{len(pairs)} of {len(committed)} committed rows are here: {counts or 'none'}")
    return found.count("differs")


def shipped(experiment: str) -> list[Headline]:
    """The rows of an experiment in the summary that the package contains."""
    return [h for h in summary.read() if experiment in shlex.split(h.command)[2:3]]


def print_shipped(experiments: Sequence[Experiment]) -> None:
    """Print the rows of these experiments in the summary that the package contains."""
    if rows := [h for e in experiments for h in shipped(e.name)]:
        print_headlines(rows, "The project's own results at --scale paper")
