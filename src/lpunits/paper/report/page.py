"""The report as one HTML page that needs no other file and no network. Never trains."""

import io
import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from types import MappingProxyType

import jinja2
import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.figure import Figure

import lpunits
from lpunits.files import write_atomically
from lpunits.paper import playground
from lpunits.paper.report.parts import Part, headlines, times
from lpunits.paper.report.section import Experiment, Picture

ABOUT = (
    "The figures and tables of *Learned-Norm Pooling for Deep Feedforward and Recurrent Neural "
    "Networks* (Gulcehre, Cho, Pascanu, Bengio, 2014), the paper's numbers beside ours. Tables, "
    "figures and verdicts are computed from the records of runs."
)
RULE = (
    "*reproduced*: within 5 % of the paper's number, or the paper's statement holds; *better*: an "
    "error that is lower by more; *stand-in*: measured on other data than the paper's, so nothing "
    "is compared; ± is the standard deviation over seeds, n their number."
)
TEMPLATES = jinja2.PackageLoader(__package__)


def write(
    folder: Path,
    parts: Sequence[Part],
    missing: Sequence[Experiment] = (),
    findings: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Write ``index.html``, and each figure as SVG and PNG; returns the page.

    Args:
        folder: Where to write.
        parts: What to show.
        missing: Experiments without a record: the page says how to run them.
        findings: Bullet points under headings, in Markdown; they follow the summary.
    """
    for part in parts:
        for picture in [*part.section.pictures, *part.section.details]:
            if isinstance(picture, Picture):
                name = picture.name if part.scale is None else f"{picture.name}-{part.scale}"
                write_atomically(folder / "figures" / f"{name}.svg", svg(picture.figure).encode())
                image = io.BytesIO()
                picture.figure.savefig(image, format="png", dpi=150, metadata={"Software": None})
                write_atomically(folder / "figures" / f"{name}.png", image.getvalue())
    if any(picture.playground for part in parts for picture in part.section.pictures):
        playground.copy_to(folder / "playground")
    titles = {part.experiment.name: part.experiment.title for part in parts}
    environment = jinja2.Environment(
        loader=TEMPLATES, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    numbers = count(1)
    environment.filters |= {
        "text": lambda text: _html(text, titles),
        "inline": lambda picture: inline_svg(picture, f"f{next(numbers)}-"),
    }
    page = folder / "index.html"
    text = environment.get_template("page.html").render(
        about=ABOUT,
        rule=RULE,
        headlines=headlines(parts),
        findings={heading: bullets(text) for heading, text in findings.items()},
        experiments={
            name: [part for part in parts if part.experiment.name == name] for name in titles
        },
        missing=missing,
        times=times([part for part in parts if part.results], ()),
        version=lpunits.__version__,
    )
    write_atomically(page, text.encode())
    return page


def svg(figure: Figure, *, inline: bool = False) -> str:
    """The figure as SVG text, the same bytes for the same figure.

    Inline, black becomes the colour of the page's text, and the background is transparent.
    """
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "lpunits", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=inline)
    text = re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), flags=re.DOTALL)
    # This halves the file: two decimals are enough, and markers share the style of their group.
    text = re.sub(r' (?:d|x|y)="[^"]*"', lambda m: re.sub(r"(\.\d\d)\d+", r"\1", m[0]), text)
    text = re.sub(r"<g clip-path=[^>]*>(?:\s*<use [^>]*/>){2,}\s*</g>", _one_style, text)
    return text.replace("#000000", "currentColor") if inline else text


def _one_style(group: re.Match[str]) -> str:
    """A group of markers with their style moved to the group, if they have the same."""
    styles = set(re.findall(r' style="[^"]*"', group[0]))
    if len(styles) != 1:
        return group[0]
    (style,) = styles
    return re.sub(r"\n\s+", "\n", group[0].replace(style, "")).replace("<g", f"<g{style}", 1)


def bullets(text: str) -> list[str]:
    r"""The bullet points of a Markdown list, without line breaks.

    >>> bullets("- one,\n  two\n- three")
    ['one, two', 'three']
    """
    return [
        " ".join(point.split()) for point in re.split(r"^- ", text, flags=re.M) if point.strip()
    ]


def _html(text: str, titles: Mapping[str, str]) -> Markup:
    """Text with ```code```, *emphasis*, **strong** and [[experiment]] marked.

    A link to a page of the documentation, which may not be here, becomes its text.
    """

    def link(match: re.Match[str]) -> str:
        name = match[1]
        label = escape(titles.get(name, name).partition(":")[0])
        return f'<a href="#{name}">{label}</a>' if name in titles else label

    out = re.sub(r"\[([^\[\]]+)\]\([^)]*\)", r"\1", str(escape(text)))
    out = re.sub(r"`([^`]+)`", r"<code>\1</code>", out)
    out = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", out)
    out = re.sub(r"(?<!\w)\*(\w.*?)\*", r"<em>\1</em>", out)
    return Markup(re.sub(r"\[\[([\w-]+)\]\]", link, out))


def inline_svg(picture: Picture, prefix: str) -> Markup:
    """The figure with ids of its own, since two figures of a page must not share them."""
    text = svg(picture.figure, inline=True)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}", text)
    return Markup(text.replace("<svg", f'<svg role="img" aria-label="{escape(picture.alt)}"', 1))
