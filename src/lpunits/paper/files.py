"""Files and folders that are written completely or not at all, for every room of the paper."""

import os
import secrets
import time
from pathlib import Path


class StorageError(OSError):
    """A folder or file cannot be written, as on a full disk; the message is one sentence."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically: at any moment the path holds all of the old or the new content."""
    make_folder(path.parent)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        for leftover in path.parent.glob(f".{path.name}.*.tmp"):  # of a process that was killed
            if time.time() - leftover.stat().st_mtime > 86400:
                leftover.unlink(missing_ok=True)
        try:
            with partial.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error


def make_folder(path: Path) -> None:
    """Create a folder if it does not exist, and check that files can be written to it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"the folder {path} cannot be made: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise StorageError(f"the folder {path} is read-only: nothing can be written to it")
