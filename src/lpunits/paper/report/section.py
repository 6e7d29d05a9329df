"""What an experiment is, and what it shows in the report.

An :class:`Experiment` lists its trials (:mod:`lpunits.paper.training.trial`) and turns the results
that exist into a :class:`Section`. The guide is ``docs/howto/add_experiment.md``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from lpunits.paper.report.summary import Headline
from lpunits.paper.training.trial import Result, Scale, Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Key = TypeVar("Key")


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


@dataclass(frozen=True)
class Section:
    """What the results of an experiment show. In all texts, ```code``` marks code.

    Args:
        verdict: Two sentences or so: what was reproduced and what was not. Computed from the
            results, never written in advance.
        tables: The paper's numbers, and ours with their spread and the number of seeds.
        pictures: The figures.
        notes: What else a reader has to know, a bullet point each; shown behind a fold.
        headlines: The rows of the summary that opens the report.
        details: Tables and figures that are shown behind a fold.
    """

    verdict: str
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = ()
    headlines: Sequence[Headline] = ()
    details: Sequence[Table | Picture] = ()


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper.

    Args:
        name: What ``lpunits run`` calls it.
        title: Its figure or table in the paper, and the title of its section.
        about: What it shows, in one sentence.
        trials: Its trials at a scale: ``smoke`` takes seconds, ``quick`` takes minutes and needs no
            download, ``paper`` has the paper's sizes and real data.
        section: Its section of the report. It gets the results of finished trials only, in the
            order of the trials: at least one (unless the experiment has no trials), often not all.
            It must make a section from whatever it gets.
        minutes: How long each scale takes on two cores.
    """

    name: str
    title: str
    about: str
    trials: Callable[[Scale], Sequence[Trial]]
    section: Callable[[Sequence[Result]], Section]
    minutes: Mapping[Scale, float]


def grouped(results: Sequence[Result], key: Callable[[Any], Key]) -> dict[Key, list[Result]]:
    """Results by what ``key`` makes of their configs, in the order of first appearance."""
    groups: dict[Key, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result.config), []).append(result)
    return groups
