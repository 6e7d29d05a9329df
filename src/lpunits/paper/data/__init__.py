"""Every dataset behind one function, :func:`load`.

>>> from lpunits.paper.data import load
>>> digits = load("digits")
>>> digits.train.features.shape, digits.train.targets.shape
(torch.Size([1197, 64]), torch.Size([1197]))
"""

import inspect
from pathlib import Path
from typing import Any

from lpunits.paper.data import sources
from lpunits.paper.data.dataset import Dataset, Info, Split, split
from lpunits.paper.data.sources import DataError, Source
from lpunits.paper.register import Register

__all__ = [
    "DATASETS",
    "DataError",
    "Dataset",
    "Info",
    "Source",
    "Split",
    "fetch",
    "info",
    "load",
    "load_music",
    "register",
    "split",
    "verify",
]

DATASETS = Register(
    "dataset",
    Info,
    {
        name: f"{__name__}.{place}"
        for name, place in {
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
        }.items()
    },
)


def register(info: Info) -> None:
    """Add a dataset of your own, for this process: :func:`load` and the command line find it.

    An installed package adds one to every process by an entry point in the group
    ``lpunits.datasets``, see ``docs/howto/add_dataset.md``.
    """
    DATASETS.add(info)


def info(name: str) -> Info:
    """The description of a dataset, without loading it.

    The absolute path of piano rolls, see :func:`load_music`, is a name, too.
    """
    if Path(name).is_absolute():
        from lpunits.paper.data import music

        return music.own(Path(name))
    return DATASETS.find(name)


def load(name: str, **options: Any) -> Dataset[Any]:
    """A dataset in memory: training, validation and test set, as tensors.

    The files come from ``LPUNITS_DATA`` or the user's cache folder. This function downloads
    nothing, see :func:`fetch`.

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
    """Piano rolls of your own, see :func:`lpunits.paper.data.music.load_music`."""
    from lpunits.paper.data import music

    return music.load_music(path)


def fetch(name: str) -> list[Path]:
    """Download the missing files of a dataset from their official sources; all of them, checked."""
    return [sources.fetch(source) for source in info(name).files]


def verify(name: str) -> dict[Path, str | None]:
    """Check every file of a dataset that exists here: what is wrong with it, or None."""
    errors: dict[Path, str | None] = {}
    for source in info(name).files:
        for path in source.present():
            try:
                source.read(path)
                errors[path] = None
            except (DataError, OSError) as error:
                errors[path] = str(error)
    return errors
