"""The report as a page of the documentation: Markdown, and figures as SVG. Never trains.

It has the same sections as the HTML page, and a link to every record.
"""

import os
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import jinja2

from lpunits.files import write_atomically
from lpunits.paper.report import summary
from lpunits.paper.report.page import ABOUT, RULE, TEMPLATES, svg
from lpunits.paper.report.parts import Part, headlines, times
from lpunits.paper.report.section import Experiment, Picture
from lpunits.paper.training.records import Records

MOST_LINKS = 30
PACKAGE = Path("src") / "lpunits" / "paper" / "report"


def write(
    page: Path, parts: Sequence[Part], store: Records, missing: Sequence[Experiment] = ()
) -> Path:
    """Write the page, and its figures to ``images/<name of the page>`` beside it.

    If the page is in a folder of a checkout of lpunits, the summary in its package is written, too.

    Args:
        page: The Markdown file.
        parts: What to show.
        store: All records of the parts.
        missing: Experiments without a record: the page says how long they take.
    """
    parts = [part for part in parts if part.results]  # Fig. 1 is drawn, it has no record
    images = page.parent / "images" / page.stem
    written = set()

    def image(picture: Picture) -> str:
        path = images / f"{picture.name}.svg"
        write_atomically(path, svg(picture.figure).encode())
        written.add(path)
        return _link(path, page)

    environment = jinja2.Environment(
        loader=TEMPLATES, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    titles = {part.experiment.name: part.experiment.title for part in parts}
    environment.filters |= {
        "text": _text,
        "cell": lambda text: _text(text).replace("|", "\\|"),
        "image": image,
        "linked": lambda text: _linked(text, titles),
    }
    rows = headlines(parts)
    text = environment.get_template("results.md").render(
        about=ABOUT,
        rule=RULE,
        command=f"lpunits report --markdown {page.parent.name}/{page.name}",
        headlines=rows,
        findings=store.findings(),
        parts=[(part, _records(part, store, page)) for part in parts],
        times=times(parts, missing),
    )
    write_atomically(page, re.sub(r"\n{3,}", "\n\n", text).encode())
    for stale in set(images.glob("*.svg")) - written:
        stale.unlink()
    if (package := page.resolve().parents[1] / PACKAGE).is_dir():
        summary.write(rows, package)
    return page


def _records(part: Part, store: Records, page: Path) -> list[tuple[str, str]]:
    """A row for each config, with a link for each seed; for each folder, if there are too many."""
    trials = {result.trial.key: result.trial for result in part.results}.values()
    paths = {t: next(path for path in store.paths(t) if path.exists()) for t in trials}
    if len(paths) > MOST_LINKS:
        folders = sorted(_link(path.parent, page) for path in paths.values())
        return [
            (f"{len(list(some)):,} records", f"[{Path(folder).name}]({folder})")
            for folder, some in groupby(folders)
        ]
    return [
        (label, " ".join(f"[{t.seed}]({_link(paths[t], page)})" for t in some))
        for label, some in groupby(trials, lambda trial: trial.config.label)
    ]


def _link(file: Path, page: Path) -> str:
    """The path from the page to a file."""
    return Path(os.path.relpath(file, page.parent)).as_posix()


def _linked(text: str, titles: Mapping[str, str]) -> str:
    """Markdown in which ``[[name]]`` is a link to the section of that experiment."""

    def link(match: re.Match[str]) -> str:
        title = titles.get(match[1], match[1])
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        label = title.partition(":")[0]
        return f"[{label}](#{anchor})" if match[1] in titles else label

    return re.sub(r"\[\[([\w-]+)\]\]", link, text)


def _text(text: str) -> str:
    r"""Text in which nothing but ```code``` and emphasis has a meaning to Markdown.

    >>> print(_text("`a_b` is <not> a_b"))
    `a_b` is \<not\> a\_b
    """
    pieces = text.split("`")
    pieces[::2] = [re.sub(r"([\\_<>|$\[\]])", r"\\\1", piece) for piece in pieces[::2]]
    return "`".join(pieces)
