"""Ways to spoil a file, and to see what comes of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from lpunits.paper.data.sources import DataError

T = TypeVar("T")


def truncations(data: bytes, count: int = 25) -> Iterator[bytes]:
    """The beginning of the data, ending at places spread over it."""
    step = max(1, len(data) // count)
    yield from (data[:end] for end in range(0, len(data), step))


def bit_flips(data: bytes, count: int = 100) -> Iterator[bytes]:
    """The data with one bit turned, at places spread over it."""
    step = max(1, 8 * len(data) // count)
    for bit in range(0, 8 * len(data), step):
        spoiled = bytearray(data)
        spoiled[bit // 8] ^= 1 << bit % 8
        yield bytes(spoiled)


def outcome(read: Callable[[Path], T], path: Path) -> T | str:
    """What a reader returns, or the message of its error, which must be a DataError."""
    try:
        return read(path)
    except DataError as error:
        return str(error)
