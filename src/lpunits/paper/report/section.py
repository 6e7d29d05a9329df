"""What an experiment shows in the report: a section of tables and pictures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lpunits.paper.training.trial import Result, Scale, Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A figure of the report, also written to a file of that name.

    ``playground`` has a label and a link (``lpunits.paper.playground.link``) for each of its
    networks that the playground can open.
    """

    name: str
    figure: "Figure"
    alt: str
    caption: str = ""
    playground: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table of the report: the titles of its columns, and its rows."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


class Headline(NamedTuple):
    """A number of the paper beside ours, for the table with which the report begins."""

    what: str
    paper: str
    ours: str


@dataclass(frozen=True)
class Section:
    """What the records of an experiment show.

    Args:
        verdict: A plain sentence or two of what was and what was not reproduced; computed from
            the records, never written in advance.
        tables: The paper's numbers, and ours with their spread and the number of seeds.
        pictures: The figures.
        notes: Whatever else a reader has to know, a paragraph each.
        headlines: What of it a reader asks for first.
    """

    verdict: str
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = ()
    headlines: Sequence[Headline] = ()


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper.

    Args:
        name: What ``lpunits run`` calls it.
        title: What it is in the paper, the title of its section.
        about: What it shows, in a sentence or two.
        trials: Its trials at a scale: ``smoke`` takes seconds, ``quick`` minutes and embedded or
            generated data alone, ``paper`` has the paper's sizes and real data.
        section: Its section of the report, from the records that exist.
        minutes: How long each scale takes on two cores.
    """

    name: str
    title: str
    about: str
    trials: Callable[[Scale], Sequence[Trial]]
    section: Callable[[Sequence[Result]], Section]
    minutes: Mapping[Scale, float]
