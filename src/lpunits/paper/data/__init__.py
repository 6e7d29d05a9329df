"""Every dataset of the paper behind one function, :func:`load`.

>>> from lpunits.paper.data import load
>>> digits = load("digits")
>>> digits.train.features.shape, digits.train.targets.shape
(torch.Size([1197, 64]), torch.Size([1197]))
"""

import difflib
import importlib
import inspect
from pathlib import Path
from typing import Any, cast

from lpunits.paper.data import sources
from lpunits.paper.data.dataset import Dataset, Info, Split
from lpunits.paper.data.sources import DataError

__all__ = [
    "DATASETS",
    "DataError",
    "Dataset",
    "Info",
    "Split",
    "fetch",
    "info",
    "load",
    "load_music",
    "verify",
]

# Name -> where its Info stands. A dataset is imported when it is first asked for.
DATASETS = {
    "mnist": "mnist:MNIST",
    "digits": "digits:DIGITS",
    "covertype": "covertype:COVERTYPE",
    "pentomino": "pentomino:PENTOMINO",
    "tfd": "tfd:TFD",
    "fer2013": "fer2013:FER2013",
    "nottingham": "music:NOTTINGHAM",
    "jsb": "music:JSB",
    "musedata": "music:MUSEDATA",
    "chords": "chords:CHORDS",
    "two-gaussians": "toy2d:TWO_GAUSSIANS",
    "three-gaussians": "toy2d:THREE_GAUSSIANS",
    "curve": "toy2d:CURVE",
    "teacher": "toy2d:TEACHER_SET",
}


def info(name: str) -> Info:
    """What is known of a dataset without loading it."""
    if name not in DATASETS:
        close = difflib.get_close_matches(str(name).lower(), DATASETS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(DATASETS)}"
        raise ValueError(f"unknown dataset {name!r}: {hint}")
    module, constant = DATASETS[name].split(":")
    return cast(Info, getattr(importlib.import_module(f"{__name__}.{module}"), constant))


def load(name: str, **options: Any) -> Dataset[Any]:
    """A dataset of the paper, in memory: tensors in train, valid and test.

    It comes from ``LPUNITS_DATA``, the user's cache folder, or thin air (the generated ones);
    nothing is ever downloaded here, see :func:`fetch`.

    >>> load("curve", points=100).train.features.shape
    torch.Size([100, 2])

    Args:
        name: One of :data:`DATASETS`.
        options: The options of that dataset, see ``load`` in its module.
    """
    entry = info(name)
    known = inspect.signature(entry.load).parameters
    for option in options:
        if option not in known:
            have = f"it has {', '.join(known)}" if known else "it has none"
            raise ValueError(f"{name} has no option {option!r}: {have}")
    return entry.load(**options)


def load_music(path: str | Path) -> Dataset[Any]:
    """Piano rolls from any ``.mat`` or pickle of the form of the paper's music files.

    See :func:`lpunits.paper.data.music.load_music`.
    """
    from lpunits.paper.data import music

    return music.load_music(path)


def fetch(name: str) -> list[Path]:
    """Downloads what a dataset lacks from its official source, and checks it; returns its files."""
    return [sources.fetch(source) for source in info(name).files]


def verify(name: str) -> dict[Path, str | None]:
    """Reads every present file of a dataset in full; for each, what is wrong with it, or None."""
    found: dict[Path, str | None] = {}
    for source in info(name).files:
        for path in source.present():
            try:
                source.read(path)
                found[path] = None
            except (DataError, OSError) as error:
                found[path] = str(error)
    return found
