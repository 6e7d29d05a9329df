"""Figures and tables to one HTML page that needs nothing else: no network, no other file."""

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from lpunits.paper.datasets.files import write_atomically

STYLE = """
:root { color-scheme: light dark; --line: #8884; --quiet: #777; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: auto; padding: 1rem; }
h1 { font-size: 1.7rem; } h2 { margin-top: 2.5rem; font-size: 1.25rem; }
figure { margin: 1rem 0; overflow-x: auto; } figcaption, .quiet { color: var(--quiet); }
figure svg { width: 100%; height: auto; min-width: 30rem; background: #fff; border-radius: 6px; }
table { border-collapse: collapse; } div.table { overflow-x: auto; }
th, td { padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
code { background: #8882; padding: .1rem .3rem; border-radius: 4px; }
"""


@dataclass(frozen=True)
class Section:
    """One result: what it shows, in a sentence, with its picture or its numbers."""

    title: str
    text: str
    figure: Figure | None = None
    alt: str = ""
    table: Sequence[Sequence[str]] = ()  # the first row is the head


def write(path: Path, title: str, sections: Sequence[Section], footer: str) -> None:
    """Write the page in one step: a reader never sees half of it."""
    body = "\n".join(_section(section) for section in sections)
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><h1>{html.escape(title)}</h1>\n{body}\n"
        f'<p class="quiet">{html.escape(footer)}</p></body></html>\n'
    )
    write_atomically(path, page.encode())


def svg(figure: Figure) -> str:
    """The figure as SVG text, the same bytes for the same figure."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "lpunits", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), flags=re.DOTALL)


def _section(section: Section) -> str:
    parts = [f"<h2>{html.escape(section.title)}</h2>", f"<p>{html.escape(section.text)}</p>"]
    if section.figure is not None:
        label = f'<svg role="img" aria-label="{html.escape(section.alt)}"'
        parts.append(f"<figure>{svg(section.figure).replace('<svg', label, 1)}</figure>")
    if section.table:
        head, *rows = (
            "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
            for row, tag in zip(section.table, ["th"] + ["td"] * len(section.table), strict=False)
        )
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        parts.append(f'<div class="table"><table><tr>{head}</tr>{body}</table></div>')
    return "\n".join(parts)
