"""The files that datasets are read from: finding, downloading, checking and caching them.

A file is looked for in the folder named by the environment variable ``LPUNITS_DATA``, then in the
user's cache folder. Only :func:`fetch` downloads. Arrays that are slow to parse or to generate are
kept in the cache folder by :func:`cached`.
"""

import gzip
import hashlib
import os
import tempfile
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpunits.files import StorageError, write_atomically

Arrays = dict[str, npt.NDArray[Any]]

PLACE = "put it into the folder that the environment variable LPUNITS_DATA names"


class DataError(ValueError):
    """A data file is missing, damaged or not the expected one; the message is one sentence."""


def cache_folder() -> Path:
    """The folder of downloads and cached arrays: ``LPUNITS_CACHE``, or the user's cache folder.

    A relative ``XDG_CACHE_HOME`` is ignored, as its specification says. Without a home
    folder, it is a folder among the temporary files.
    """
    if chosen := os.environ.get("LPUNITS_CACHE"):
        return Path(chosen)
    import platformdirs

    try:
        folder = Path(platformdirs.user_cache_dir("lpunits", appauthor=False))
        return folder if folder.is_absolute() else Path.home() / ".cache" / "lpunits"
    except RuntimeError:
        folder = Path(tempfile.gettempdir()) / f"lpunits-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise DataError(f"{folder} is another user's: set HOME or LPUNITS_CACHE") from None
        return folder


@dataclass(frozen=True)
class Source:
    """One file that a dataset is read from.

    Args:
        dataset: The dataset's name, for messages.
        folder: The subfolder to look in; files directly in the data folder are found too.
        names: The accepted file names, the preferred one first.
        read: Reads such a file and checks all of it; raises :class:`DataError`.
        manual: How to get the file by hand, as the end of a sentence.
        url: The official download, if there is one; it is saved under the first name.
        known_hash: The checksum of that download, as ``sha256:...`` or ``md5:...``. A download
            without one is refused.
    """

    dataset: str
    folder: str
    names: tuple[str, ...]
    read: Callable[[Path], Any]
    manual: str
    url: str | None = None
    known_hash: str | None = None

    def __post_init__(self) -> None:
        if self.url is not None and not self.known_hash:
            raise ValueError(f"known_hash must be given where url is, got {self.known_hash!r}")

    def present(self) -> list[Path]:
        """Every existing file with one of the names, the preferred one first."""
        places = [cache_folder()]
        if folder := os.environ.get("LPUNITS_DATA"):
            places.insert(0, Path(folder))
        paths = [p / d / name for p in places for d in (self.folder, "") for name in self.names]
        return [path for path in paths if path.is_file()]

    def find(self) -> Path:
        """The file to read."""
        if present := self.present():
            return present[0]
        data = f"LPUNITS_DATA ({os.environ.get('LPUNITS_DATA') or 'not set'})"
        download = f"run `lpunits data fetch {self.dataset}`, or " if self.url else ""
        raise DataError(
            f"{self.dataset}: {' or '.join(self.names)} is neither in {data} nor in the cache "
            f"({cache_folder()}): {download}{self.manual} and {PLACE}"
        )

    def cached_arrays(self) -> tuple[Arrays, str]:
        """The arrays that ``read`` makes of the file, from the cache, and the file's sha256."""
        path = self.find()
        digest = file_sha256(path)
        return cached(self.dataset, f"1 {digest}", lambda: self.read(path)), digest


def fetch(source: Source) -> Path:
    """The file, checked; it is downloaded from its official source unless it exists."""
    target = cache_folder() / source.folder / source.names[0]
    for path in source.present()[:1]:
        try:
            source.read(path)
            return path
        except DataError:
            if path != target:  # a damaged file of the user is not ours to replace
                raise
            path.unlink()
    if source.url is None:
        raise DataError(
            f"{source.dataset}: {source.names[0]} cannot be downloaded freely: {source.manual} and "
            f"{PLACE}"
        )
    import pooch

    pooch.get_logger().setLevel("ERROR")
    try:
        pooch.retrieve(
            source.url, source.known_hash, fname=target.name, path=target.parent, progressbar=True
        )
    except (OSError, ValueError) as error:  # no network, a broken transfer, a wrong checksum
        offline = type(error).__name__ in ("ConnectionError", "ConnectTimeout")
        reason = "there is no connection to it" if offline else " ".join(str(error).split())
        raise DataError(
            f"{source.dataset}: {source.url} could not be downloaded ({reason}): try again with a "
            f"network, or {source.manual} and {PLACE}"
        ) from error
    source.read(target)
    return target


def sha256(data: bytes) -> str:
    """The checksum of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_sha256(
    path: Path, found: str, expected: str | None, what: str = "content", hint: str = ""
) -> None:
    """Raise an error if the checksum of a file's content is known and is another one."""
    if expected not in (None, found):
        raise DataError(
            f"{path}: the {what} has the sha256 {found}, expected {expected}: the file is damaged "
            f"or a different one{hint}"
        )


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of a plain or gzip file, which may have at most ``limit`` bytes."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            data = file.read(limit + 1)
    except EOFError as error:
        raise DataError(f"{path}: the gzip file ends too early") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: the gzip file is damaged ({error})") from error
    if len(data) > limit:
        raise DataError(f"{path}: the file holds more than the {limit} bytes that are expected")
    return data


def cached(name: str, key: str, build: Callable[[], Arrays]) -> Arrays:
    """The arrays that ``build`` makes, kept in the cache folder until ``key`` changes.

    The key holds everything that the arrays depend on: the checksum of the source, the options, a
    version of the code. A cached file that is damaged or has another key is built again. If the
    cache folder cannot be written to, a warning is given and the arrays are returned all the same.
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
