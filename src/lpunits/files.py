"""Files and folders that are written completely or not at all."""

import os
import secrets
import time
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

DAY = 86400  # seconds


class StorageError(OSError):
    """A folder or file cannot be written, as on a full disk; the message is one sentence."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically: at any moment the path holds all of the old or the new content."""
    partial = path.with_name(f".{path.name}.{this_process()}.{secrets.token_hex(4)}.tmp")
    try:
        for again in (True, True, False):
            make_folder(path.parent)
            try:
                file = partial.open("xb")
                break
            except FileNotFoundError:  # another process has just removed the folder: it was empty
                if not again:
                    raise
        try:
            with file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            remove_leftovers(path.parent, path.name)
        finally:
            partial.unlink(missing_ok=True)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error


def remove_leftovers(folder: Path, name: str = "") -> None:
    """Remove incomplete files of processes that were killed, and of no others."""
    for path in folder.glob(".*.tmp"):
        with suppress(FileNotFoundError):  # another process removes it, too
            alive = is_alive(path.name.split(".")[-3])
            if alive is None:  # on another machine
                alive = time.time() - path.stat().st_mtime < DAY
            if path.name.startswith(f".{name}") and not alive:
                path.unlink()


def make_folder(path: Path) -> None:
    """Create a folder if it does not exist, and check that files can be written to it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"the folder {path} cannot be made: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise StorageError(f"the folder {path} is read-only: nothing can be written to it")


def this_process() -> str:
    """A name of this process that no other process has had or will have."""
    return f"{_machine()}-{os.getpid()}-{_started(os.getpid())}"


def is_alive(process: str) -> bool | None:
    """Whether the process of this name is running. None: it cannot be seen from here.

    >>> is_alive(this_process()) is not False, is_alive("elsewhere-1-2")
    (True, None)
    """
    machine, _, rest = process.partition("-")
    pid, _, started = rest.partition("-")
    if machine != _machine() or not pid.isdecimal() or not started:
        return None
    try:
        os.kill(int(pid), 0)
    except PermissionError:  # another user's, perhaps hidden from this one
        return None
    except (ProcessLookupError, OverflowError):
        return False
    return _started(int(pid)) == started


@cache
def _machine() -> str:
    """A name of this boot of this machine, or container; empty where there is no /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        return sha256(f"{boot} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:12]
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process started, in ticks of its machine; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
