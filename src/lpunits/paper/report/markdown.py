"""Records of the scale paper to a page of the documentation: Markdown, and figures as SVG.

The same sections as the HTML page has, with a link to every record that a number was made from.
Never trains; all that the page says comes from records, from the findings that lie beside them and
from the experiments themselves.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from lpunits.paper.files import write_atomically
from lpunits.paper.report.page import ABOUT, Part, circumstances, headlines, svg
from lpunits.paper.report.section import Experiment, Table
from lpunits.paper.training.records import Records

MOST_LINKS = 30


def write(
    page: Path, parts: Sequence[Part], store: Records, missing: Sequence[Experiment] = ()
) -> Path:
    """Write the page, and its figures to ``images/<name of the page>`` beside it.

    Args:
        page: The Markdown file.
        parts: What to show.
        store: All records of the parts.
        missing: Experiments that have no record yet: the page says how long they take.
    """
    parts = [part for part in parts if part.results]  # a drawing has no record
    images = page.parent / "images" / page.stem
    written = set()
    body = []
    for part in parts:
        section, out = part.section, [f"## {_plain(part.experiment.title)}"]
        out += [_plain(part.experiment.about), f"> {_plain(section.verdict)}"]
        out += map(_table, section.tables)
        for picture in section.pictures:
            image = images / f"{picture.name}.svg"
            write_atomically(image, svg(picture.figure).encode())
            written.add(image)
            out.append(f"![{_plain(picture.alt)}]({_link(image, page)})")
            out += [f"*{_plain(picture.caption)}*"] * bool(picture.caption)
        out += map(_plain, section.notes)
        out.append(f"{_plain(circumstances(part))} Repeat: `{part.command}`")
        out.append(f"Records: {_records(part, store, page)}.")
        body.append("\n\n".join(out))
    for stale in set(images.glob("*.svg")) - written:
        stale.unlink()
    head = [
        "# Results",
        f"{ABOUT} What was tried on the way: [reproduction](reproduction.md).",
        f"This page is the output of `lpunits report --markdown {page.parent.name}/{page.name}`. "
        "`lpunits run all --scale paper --jobs 2` repeats all experiments from nothing, and each "
        "search has its own commands.",
        *map(_table, headlines(parts)),
        *(f"## {heading}\n\n{text}" for heading, text in store.findings().items()),
        "## What was run",
        _table(_times(parts, missing)),
    ]
    write_atomically(page, ("\n\n".join([*head, *body]) + "\n").encode())
    return page


def _records(part: Part, store: Records, page: Path) -> str:
    """Links to the records; to their folders, if there are very many."""
    trials = {result.trial.key: result.trial for result in part.results}.values()
    paths = [next(path for path in store.paths(t) if path.exists()) for t in trials]
    if len(paths) > MOST_LINKS:
        folders = sorted({_link(path.parent, page) for path in paths})
        return f"{len(paths):,} in " + ", ".join(f"[{Path(f).name}]({f})" for f in folders)
    links = zip(trials, paths, strict=True)
    return "; ".join(f"[{_plain(trial.label)}]({_link(path, page)})" for trial, path in links)


def _times(parts: Sequence[Part], missing: Sequence[Experiment]) -> Table:
    """What has been run of each experiment, and how long it takes."""
    rows = []
    for part in parts:
        records = {result.trial.key: result.record for result in part.results}
        wanted = {trial.key for trial in part.wanted}
        hours = sum(r["seconds"] * r["threads"] for r in records.values()) / 2 / 3600
        rows.append(
            [
                part.experiment.title,
                f"{len(records)} of {len(wanted)}",
                f"{hours:.2f}",
                _hours(part.experiment),
            ]
        )
    rows += [[e.title, "not run", "", _hours(e)] for e in missing]
    caption = "Hours on two cores; experiments share trials, which are counted in each of them"
    return Table(["experiment", "trials", "hours so far", "hours for all trials"], rows, caption)


def _hours(experiment: Experiment) -> str:
    """The estimate; a search has none."""
    minutes = experiment.minutes.get("paper")
    return "" if minutes is None else f"{minutes / 60:.2f}"


def _table(table: Table) -> str:
    rows = [table.head, ["---"] * len(table.head), *table.rows]
    text = "\n".join(f"| {' | '.join(map(_plain, row))} |" for row in rows)
    return f"*{_plain(table.caption)}*\n\n{text}" if table.caption else text


def _link(file: Path, page: Path) -> str:
    """The way from the page to a file."""
    return Path(os.path.relpath(file, page.parent)).as_posix()


def _plain(text: str) -> str:
    """The text without meaning to Markdown."""
    return re.sub(r"([\\`*_<>|$\[\]])", r"\\\1", text)
