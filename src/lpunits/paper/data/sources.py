"""The files behind the datasets: where they lie, how they arrive, how a parsed one is kept.

A file is looked for in the folder that the environment variable ``LPUNITS_DATA`` names, then in the
user's cache folder. It is downloaded only by :func:`fetch`. What is slow to parse is kept in the
cache folder by :func:`cached`, bound to the checksum of the file that it came from.
"""

import hashlib
import os
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpunits.paper.files import StorageError, write_atomically

Arrays = dict[str, npt.NDArray[Any]]


class DataError(ValueError):
    """A data file is missing, damaged or not what it should be; the message is one sentence."""


def cache_folder() -> Path:
    """Where downloads and parsed files are kept: ``LPUNITS_CACHE``, or the user's cache folder."""
    if folder := os.environ.get("LPUNITS_CACHE"):
        return Path(folder)
    import platformdirs

    return Path(platformdirs.user_cache_dir("lpunits", appauthor=False))


@dataclass(frozen=True)
class Source:
    """One file that a dataset is read from.

    Args:
        dataset: The dataset's name, for messages.
        folder: The subfolder that it lies in; directly in the data folder will do too.
        names: The file names that are accepted, the preferred one first.
        read: Reads such a file and checks it in full; raises :class:`DataError`.
        url: The official source, if anybody may download it; it is saved under the first name.
        known_hash: The checksum of that download, as ``sha256:...`` or ``md5:...``.
        manual: How to get the file by hand, the end of a sentence.
    """

    dataset: str
    folder: str
    names: tuple[str, ...]
    read: Callable[[Path], Any]
    manual: str
    url: str | None = None
    known_hash: str | None = None

    def present(self) -> list[Path]:
        """Every file of one of the names that is there, in the order of preference."""
        places = [cache_folder()]
        if folder := os.environ.get("LPUNITS_DATA"):
            places.insert(0, Path(folder))
        paths = [p / d / name for p in places for d in (self.folder, "") for name in self.names]
        return [path for path in paths if path.is_file()]

    def find(self) -> Path:
        """The file to read."""
        if present := self.present():
            return present[0]
        folder = os.environ.get("LPUNITS_DATA")
        where = f"LPUNITS_DATA ({folder})" if folder else "LPUNITS_DATA (not set)"
        fetch = f"run `lpunits data fetch {self.dataset}`, or " if self.url else ""
        raise DataError(
            f"{self.dataset}: {' or '.join(self.names)} is neither in {where} nor in the cache "
            f"({cache_folder()}): {fetch}{self.manual} and put it into the folder that the "
            f"environment variable LPUNITS_DATA names"
        )


def fetch(source: Source) -> Path:
    """The file, downloaded from its official source unless it is there already, and checked."""
    place = "put it into the folder that the environment variable LPUNITS_DATA names"
    target = cache_folder() / source.folder / source.names[0]
    for path in source.present()[:1]:
        try:
            source.read(path)
            return path
        except DataError:
            if path != target:  # what is damaged is the user's own file: it is not ours to replace
                raise
            path.unlink()
    if source.url is None:
        raise DataError(
            f"{source.dataset}: {source.names[0]} cannot be downloaded freely: {source.manual} and "
            f"{place}"
        )
    import pooch

    pooch.get_logger().setLevel("ERROR")
    try:
        pooch.retrieve(
            source.url,
            source.known_hash,
            fname=target.name,
            path=target.parent,
            downloader=pooch.HTTPDownloader(progressbar=_Progress(target.name)),
        )
    except (OSError, ValueError) as error:  # no network, a broken transfer, a wrong checksum
        lost = type(error).__name__ in ("ConnectionError", "ConnectTimeout")
        reason = "there is no connection to it" if lost else _one_line(error)
        raise DataError(
            f"{source.dataset}: {source.url} could not be downloaded ({reason}): try again with a "
            f"network, or {source.manual} and {place}"
        ) from error
    source.read(target)
    return target


class _Progress:
    """The progress bar of rich, in the form that pooch asks for."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

        columns = "{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn()
        self.bar = Progress(*columns, console=Console(stderr=True))
        self.task = self.bar.add_task(name, total=None)
        self.total = 0.0

    def update(self, size: float) -> None:
        self.bar.start()
        self.bar.update(self.task, advance=size, total=self.total or None)

    def reset(self) -> None:
        """Pooch resets the bar once the download is complete, to set it to 100 % by itself."""
        self.bar.update(self.task, completed=0)

    def close(self) -> None:
        self.bar.stop()


def sha256(data: bytes) -> str:
    """The checksum of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_sha256(path: Path, data: bytes, expected: str | None) -> None:
    """Compares the content of a file with the checksum that is known for it, if one is."""
    if expected is not None and (found := sha256(data)) != expected:
        raise DataError(
            f"{path}: the content has the sha256 {found}, expected {expected}: the file is damaged "
            f"or another one"
        )


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of a file, unpacked if it is gzip, and never more than ``limit`` bytes of it."""
    too_long = DataError(f"{path}: the file holds more than the {limit} bytes that are expected")
    # What does not compress grows a little, hence the room for a packed file.
    if path.stat().st_size > limit + limit // 100 + 1024:
        raise too_long
    data = path.read_bytes()
    if data[:2] != b"\x1f\x8b":
        if len(data) > limit:
            raise too_long
        return data
    parts, room = [], limit
    try:
        while data:  # a gzip file may have several members
            member = zlib.decompressobj(wbits=31)
            part = member.decompress(data, room + 1)
            room -= len(part)
            if room < 0:
                raise too_long
            if not member.eof:
                raise DataError(f"{path}: the gzip file ends too early")
            parts.append(part)
            data = member.unused_data
    except zlib.error as error:
        raise DataError(f"{path}: the gzip file is damaged ({error})") from error
    return b"".join(parts)


def cached(name: str, key: str, build: Callable[[], Arrays]) -> Arrays:
    """The arrays that ``build`` makes, kept in the cache folder until ``key`` changes.

    The key holds all that the arrays depend on: the checksum of the source, the options, a version
    of the code. A file that is damaged, or was made for another key, is built again. A cache folder
    that cannot be written to costs time, not the data.
    """
    from safetensors import SafetensorError, safe_open
    from safetensors.numpy import save

    path = cache_folder() / "parsed" / f"{name}.safetensors"
    try:
        with safe_open(path, "np") as file:
            facts = file.metadata() or {}
            if facts.get("key") == key:
                kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                if facts.get("sha256") == arrays_sha256(kept):
                    return kept
    except (OSError, SafetensorError):
        pass
    arrays = build()
    try:
        write_atomically(path, save(arrays, {"key": key, "sha256": arrays_sha256(arrays)}))
    except StorageError as error:
        warnings.warn(str(error), stacklevel=2)
    return arrays


def arrays_sha256(arrays: Arrays) -> str:
    """A checksum of names, types, shapes and values; the same on every platform."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        values = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        digest.update(values.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
