"""Where records and searches are, and arguments that several commands share."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from lpunits.paper.training.records import Records
from lpunits.paper.training.trial import Scale

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

# The records of the scale paper are part of the repository. All others are made again.
RESULTS, OUT = Path("results"), Path("reproduction")
Settings = Annotated[
    list[str], Parameter(name="--set", consume_multiple=False, negative="", show_default=False)
]


def records_of(scale: Scale, folder: Path | None = None) -> Records:
    """The records of a scale. New ones go to the first folder.

    Experiments that take minutes are run by everyone: the repository's records do not count there.
    """
    made = OUT / "records"
    folders = (RESULTS, made) if scale == "paper" else (made,)
    return Records(*(folders if folder is None else (folder,)))


def storage_of(folder: Path, url: str | None) -> "AbstractContextManager[RDBStorage]":
    """The storage of searches: by default a file in a folder beside the records."""
    from lpunits.paper.search.study import open_storage

    return open_storage(url or f"sqlite:///{folder / 'search' / 'studies.db'}")
