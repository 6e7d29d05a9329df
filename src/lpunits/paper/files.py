"""Files and folders that are written completely or not at all: :mod:`lpunits.files`."""

from lpunits.files import (
    StorageError,
    is_alive,
    make_folder,
    remove_leftovers,
    this_process,
    write_atomically,
)

__all__ = [
    "StorageError",
    "is_alive",
    "make_folder",
    "remove_leftovers",
    "this_process",
    "write_atomically",
]
