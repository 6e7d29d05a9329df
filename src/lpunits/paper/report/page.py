"""Records to one HTML page that needs nothing else: no network, no other file. Never trains.

For every experiment and scale that has records: what the experiment shows, the verdict, the tables
and figures that its ``section`` makes, and then, the same for all, the data, the number of trials,
when and on what they ran, and the command that repeats them.
"""

import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import matplotlib as mpl
from matplotlib.figure import Figure

import lpunits
from lpunits.paper import data, playground
from lpunits.paper.files import write_atomically
from lpunits.paper.report.section import Experiment, Picture, Section, Table
from lpunits.paper.training.records import Records
from lpunits.paper.training.settings import with_settings
from lpunits.paper.training.trial import SCALES, Result, Scale, Trial

TITLE = "Learned-norm pooling, reproduced"
ABOUT = (
    "The figures and tables of Learned-Norm Pooling for Deep Feedforward and Recurrent Neural "
    "Networks (Gulcehre, Cho, Pascanu, Bengio, 2014): the paper's numbers beside ours. All "
    "tables, figures and verdicts are computed from records of runs."
)
STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1b1f24; --quiet: #626a73;
  --line: #d5dae0; --card: #f4f6f8; --link: #0b62a8; }
@media (prefers-color-scheme: dark) { :root { --back: #15181c; --text: #e4e7eb; --quiet: #9aa3ad;
  --line: #363c44; --card: #1e2329; --link: #6db8f2; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 66rem; margin: auto; padding: 1rem;
  background: var(--back); color: var(--text); overflow-wrap: break-word; }
a { color: var(--link); } h1 { font-size: 1.7rem; line-height: 1.2; }
h2 { margin: 3rem 0 .5rem; font-size: 1.3rem; padding-top: 1rem;
  border-top: 1px solid var(--line); }
h3 { margin: 1.5rem 0 .3rem; font-size: 1.05rem; }
nav ul { columns: 18rem; padding-left: 1.2rem; }
.verdict { background: var(--card); border-left: 4px solid var(--link); padding: .6rem .9rem;
  border-radius: 0 6px 6px 0; }
.quiet, figcaption, caption { color: var(--quiet); font-size: .9rem; }
figure { margin: 1rem 0; } .scroll { overflow-x: auto; }
figure svg { display: block; width: 100%; height: auto; color: var(--text); fill: currentColor; }
@media (max-width: 40rem) { figure.wide svg { min-width: 40rem; } }
table { border-collapse: collapse; margin: .8rem 0; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .3rem; }
th, td { padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line); text-align: right; }
th { font-weight: 600; vertical-align: bottom; }
td { white-space: nowrap; } .headlines td { white-space: normal; }
th:first-child, td:first-child { text-align: left; }
code { background: var(--card); padding: .1rem .3rem; border-radius: 4px; }
"""


SIZES = r":? [\d,]+ / [\d,]+ / [\d,]+$"  # of the whole dataset, at the end of its description


@dataclass(frozen=True)
class Part:
    """One experiment at one scale: its results, and what they show."""

    experiment: Experiment
    scale: Scale | None  # None: the experiment has no trials, so it is the same at every scale
    command: str  # what repeats it
    wanted: Sequence[Trial]
    results: Sequence[Result]
    section: Section


def collect(
    experiments: Iterable[Experiment],
    store: Records,
    scales: Sequence[Scale] = ("paper", "quick"),
    settings: Sequence[str] = (),
) -> list[Part]:
    """The parts of the report: every experiment at every scale for which there are records."""
    parts = []
    for experiment in experiments:
        if not any(experiment.trials(scale) for scale in SCALES):
            parts.append(Part(experiment, None, "", (), (), experiment.section(())))
            continue
        at = {scale: with_settings(experiment.trials(scale), settings) for scale in scales}
        for scale in scales:
            wanted, results = at[scale], store.results(at[scale])
            found = {result.trial.key for result in results}
            smaller = [other for other in scales if SCALES.index(other) < SCALES.index(scale)]
            borrowed = found <= {trial.key for other in smaller for trial in at[other]}
            # Some trials that a smaller scale has as well do not make it a run of this one.
            if results and not (borrowed and len(found) < len({trial.key for trial in wanted})):
                section = experiment.section(results)
                command = f"lpunits run {experiment.name}" + "".join(
                    [f" --scale {scale}" * (scale != "quick"), *(f" --set {s}" for s in settings)]
                )
                parts.append(Part(experiment, scale, command, wanted, results, section))
    return parts


def headlines(parts: Sequence[Part]) -> list[Table]:
    """The table with which a page begins, if anything has been run of which the paper has a number.

    An experiment that was run at several scales counts with the first of them.
    """
    first = {part.experiment.name: part for part in reversed(parts)}
    rows = [
        [*headline, part.experiment.title.partition(":")[0]]
        for part in parts
        if part is first[part.experiment.name]
        for headline in part.section.headlines
    ]
    return [Table(["", "paper", "ours", "where"], rows)] if rows else []


def write(
    folder: Path,
    parts: Sequence[Part],
    missing: Sequence[Experiment] = (),
    findings: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Write ``index.html``, and each figure as SVG and PNG; returns the page.

    Args:
        folder: Where to.
        parts: What to show.
        missing: Experiments that have no record yet: the page says how to get them.
        findings: Headings and paragraphs that stand before everything else.
    """
    for part in parts:
        for picture in part.section.pictures:
            name = picture.name if part.scale is None else f"{picture.name}-{part.scale}"
            write_atomically(folder / "figures" / f"{name}.svg", svg(picture.figure).encode())
            image = io.BytesIO()
            picture.figure.savefig(image, format="png", dpi=150, metadata={"Software": None})
            write_atomically(folder / "figures" / f"{name}.png", image.getvalue())
    if any(picture.playground for part in parts for picture in part.section.pictures):
        playground.copy_to(folder / "playground")
    page = folder / "index.html"
    write_atomically(page, _page(parts, missing, findings).encode())
    return page


def svg(figure: Figure, *, inline: bool = False) -> str:
    """The figure as SVG text, the same bytes for the same figure.

    Inline, black is the colour of the page's text, and the backgrounds are clear.
    """
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "lpunits", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=inline)
    text = re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), flags=re.DOTALL)
    return text.replace("#000000", "currentColor") if inline else text


def _page(parts: Sequence[Part], missing: Sequence[Experiment], findings: Mapping[str, str]) -> str:
    told = "".join(f"<h3>{_escape(h)}</h3>\n<p>{_escape(t)}</p>\n" for h, t in findings.items())
    short = "".join(f'<div class="headlines">{_table(table)}</div>' for table in headlines(parts))
    shown = {part.experiment.name: part.experiment for part in parts}.values()
    links = "".join(f'<li><a href="#{e.name}">{_escape(e.title)}</a></li>' for e in shown)
    body = "\n".join(_experiment(e, [p for p in parts if p.experiment is e]) for e in shown)
    if missing:
        rows = "".join(
            f"<li>{_escape(e.title)}: <code>lpunits run {e.name}</code></li>" for e in missing
        )
        body += f'\n<h2 id="missing">Not run yet</h2>\n<ul>{rows}</ul>'
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{TITLE}</title><style>{STYLE}</style></head>\n'
        f"<body><h1>{TITLE}</h1>\n<p>{_escape(ABOUT)}</p>\n{short}{told}"
        f"<nav><ul>{links}</ul></nav>\n<main>{body}</main>\n"
        f'<p class="quiet">lpunits {lpunits.__version__}</p></body></html>\n'
    )


def _experiment(experiment: Experiment, parts: Sequence[Part]) -> str:
    head = f'<h2 id="{experiment.name}">{_escape(experiment.title)}</h2>'
    about = f"<p>{_escape(experiment.about)}</p>"
    return "\n".join([head, about, *map(_part, parts)])


def _part(part: Part) -> str:
    section = part.section
    out = [] if part.scale is None else [f"<h3>At the scale <em>{part.scale}</em></h3>"]
    out.append(f'<p class="verdict">{_escape(section.verdict)}</p>')
    out += map(_table, section.tables)
    out += (_picture(p, f"{part.experiment.name}-{part.scale}") for p in section.pictures)
    out += (f"<p>{_escape(note)}</p>" for note in section.notes)
    if part.results:
        text, command = _escape(circumstances(part)), _escape(part.command)
        out.append(f'<p class="quiet">{text} Repeat: <code>{command}</code></p>')
    return "\n".join(out)


def circumstances(part: Part) -> str:
    """Data, trials, machine and time, in a few sentences."""
    used = dict.fromkeys(
        f"{name}, {re.sub(SIZES, '', data.info(name).about)}{_sizes(result)}"
        for result in part.results
        for name in result.config.datasets
    )
    first = [f"Data: {'; '.join(used)}." if used else "Data: generated by the trial itself."]
    trials = len({trial.key for trial in part.wanted})
    done = len({result.trial.key for result in part.results})
    seeds = len({result.trial.seed for result in part.results})
    first.append(f"{done} of {trials} trials have finished, {_count(seeds, 'seed')}.")
    records = [result.record for result in part.results]
    minutes = sum(record["seconds"] for record in records) / 60
    processors = ", ".join(dict.fromkeys(record["cpu"] for record in records))
    versions = ", ".join(dict.fromkeys(f"torch {r['versions']['torch']}" for r in records))
    commits = ", ".join(dict.fromkeys((r["commit"] or "unknown")[:8] for r in records))
    days = sorted({record["finished"][:10] for record in records})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    first.append(
        f"{minutes:.1f} minutes of computation on {processors}; {versions}, commit {commits}, "
        f"{when}."
    )
    return " ".join(first)


def _sizes(result: Result) -> str:
    """How many examples there were of each split, if the outcome says so."""
    examples = result.outcome.get("examples", {})
    counts = " / ".join(f"{count:,}" for count in examples.values())
    return f": {counts} examples in {', '.join(examples)}" if counts else ""


def _table(table: Table) -> str:
    caption = f"<caption>{_escape(table.caption)}</caption>" if table.caption else ""
    head = "".join(f'<th scope="col">{_escape(cell)}</th>' for cell in table.head)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    # tabindex: what scrolls must be reachable by keyboard
    return (
        f'<div class="scroll" tabindex="0"><table>{caption}<thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _picture(picture: Picture, where: str) -> str:
    width, height = picture.figure.get_size_inches()
    kind = ' class="wide"' if width > 1.5 * height else ""
    caption = f"<figcaption>{_escape(picture.caption)}</figcaption>" if picture.caption else ""
    links = ", ".join(
        f'<a href="playground/index.html{_escape(link)}">{_escape(label)}</a>'
        for label, link in picture.playground.items()
    )
    caption += f"<p>Open in the playground: {links}</p>" if links else ""
    return (
        f'<figure{kind}><div class="scroll" tabindex="0">'
        f"{_unique(svg(picture.figure, inline=True), f'{where}-{picture.name}', picture.alt)}</div>"
        f"{caption}</figure>"
    )


def _unique(text: str, name: str, alt: str) -> str:
    """The SVG with ids of its own (two figures in one page must not share them) and its name."""
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{_escape(alt)}"', 1)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _escape(text: str) -> str:
    return html.escape(text)
