"""Arrays and cells of arrays from MATLAB files of version 5 to 7, which may come from anywhere.

scipy's reader trusts the file: one turned bit can crash the process, and the checksum of packed
elements is not looked at. This one checks every size against the bytes that are there.

The format: 128 bytes of header, the last two of which tell the byte order, then elements. Each is a
type and a size, of 32 bits both, and the content, which ends on a multiple of 8 bytes; or all in 8
bytes, if the content has at most 4. Type 15 is a packed element, type 14 an array: elements for its
class, its shape, its name, and its values in column order or, of a cell, its arrays.
"""

import struct
import zlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpunits.paper.data.sources import DataError

Array = npt.NDArray[Any]

# The types of values. MATLAB stores whole numbers in the smallest that will do, whatever the class
# of their array; they are left in it.
STORED = dict(zip((1, 2, 3, 4, 5, 6, 7, 9, 12, 13), "bBhHiIfdqQ", strict=True))
NUMBERS = range(6, 16)  # the classes from double to uint64
CELL, ARRAY, PACKED, COMPLEX = 1, 14, 15, 0x800


def read_mat(path: Path, keys: tuple[str, ...], limit: int) -> dict[str, Array]:
    """The arrays of these names in a MATLAB file that unpacks to at most ``limit`` bytes.

    A cell array becomes an array of objects, which are arrays of numbers.
    """
    if path.stat().st_size > limit:
        raise DataError(f"{path}: a file of at most {limit} bytes is expected")
    data = path.read_bytes()
    if data.startswith(b"MATLAB 7.3"):
        raise DataError(f"{path}: MATLAB files of version 7.3 are not supported, save it with -v7")
    try:
        found = _Reader(data, limit).arrays(keys)
    except (ValueError, struct.error, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a sound MATLAB file ({error})") from error
    if missing := [key for key in keys if key not in found]:
        raise DataError(f"{path}: the MATLAB file has no array named {', '.join(missing)}")
    return found


class _Reader:
    def __init__(self, data: bytes, limit: int) -> None:
        order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
        if order is None:
            raise ValueError("it has no header of version 5 to 7")
        self.data, self.order, self.room = memoryview(data), order, limit

    def arrays(self, keys: tuple[str, ...]) -> dict[str, Array]:
        """The arrays of these names; others are not looked into."""
        found, at = {}, 128
        while at < len(self.data):
            kind, content, at = self.element(self.data, at)
            if kind == PACKED:
                kind, content, _ = self.element(self.unpacked(content), 0)
            if kind != ARRAY:
                raise ValueError(f"an array is expected, got an element of type {kind}")
            name, values = self.array(content, keys)
            if values is not None:
                found[name] = values
        return found

    def element(self, data: memoryview, at: int) -> tuple[int, memoryview, int]:
        """The type and content of the element at a place, and the place behind it."""
        kind, size = struct.unpack_from(f"{self.order}II", data, at)
        if kind >> 16:  # the short form
            kind, size, start, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        else:
            start = at + 8
            end = start + size + (0 if kind == PACKED else -size % 8)
        if start + size > min(len(data), max(end, start)):
            raise ValueError(f"an element goes on for {size} bytes, {len(data) - start} are there")
        return kind, data[start : start + size], end

    def unpacked(self, content: memoryview) -> memoryview:
        stream = zlib.decompressobj()
        data = stream.decompress(content, self.room + 1)
        self.room -= len(data)
        if self.room < 0:
            raise ValueError("it unpacks to more than expected")
        if not stream.eof:
            raise ValueError("a packed element ends too early")
        return memoryview(data)

    def array(self, data: memoryview, keys: tuple[str, ...]) -> tuple[str, Array | None]:
        """The name of an array and, if it is one of the keys, its values."""
        _, flags, at = self.element(data, 0)
        _, shape, at = self.element(data, at)
        _, text, at = self.element(data, at)
        name = bytes(text).decode("ascii")
        if name not in keys:
            return name, None
        (flag,) = struct.unpack_from(f"{self.order}I", flags)
        sizes = np.frombuffer(shape, f"{self.order}i4").tolist()
        if not 2 <= len(sizes) <= 8 or min(sizes) < 0:
            raise ValueError(f"{name or 'a cell'} has the shape {sizes}")
        if flag & 0xFF == CELL and name:
            return name, self.cells(name, data, at, sizes)
        if flag & 0xFF not in NUMBERS or flag & COMPLEX:
            raise ValueError(f"{name or 'a cell'} is no array of real numbers")
        kind, content, _ = self.element(data, at)
        if kind not in STORED:
            raise ValueError(f"{name or 'a cell'} has values of the type {kind}")
        values = np.frombuffer(content, self.order + STORED[kind])
        if len(values) != prod(sizes):
            raise ValueError(f"{name or 'a cell'} has {len(values)} values of {prod(sizes)}")
        return name, values.reshape(sizes, order="F").astype(STORED[kind], copy=False)

    def cells(self, name: str, data: memoryview, at: int, sizes: list[int]) -> Array:
        """A cell array; what it holds has no name, and no cells of its own."""
        if 8 * prod(sizes) > len(data) - at:
            raise ValueError(f"{name} has {prod(sizes)} cells in {len(data) - at} bytes")
        cells = np.empty(prod(sizes), object)
        for i in range(len(cells)):
            kind, content, at = self.element(data, at)
            inner, values = self.array(content, ("",))
            if kind != ARRAY or values is None:
                raise ValueError(f"cell {i} of {name} is an element of type {kind} named {inner!r}")
            cells[i] = values
        return cells.reshape(sizes, order="F")
