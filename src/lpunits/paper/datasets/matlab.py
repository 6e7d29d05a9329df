"""MATLAB files, which hold no code but may come from anywhere: each failure is one clear error."""

import struct
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpunits.paper.datasets.files import DataError


def read_mat(path: Path, keys: tuple[str, ...], limit: int) -> dict[str, npt.NDArray[Any]]:
    """The arrays of these names in a MATLAB file that unpacks to at most ``limit`` bytes."""
    from scipy.io import loadmat

    if path.stat().st_size > limit:
        raise DataError(f"{path}: a file of at most {limit} bytes is expected")
    data = path.read_bytes()
    if data.startswith(b"MATLAB 7.3"):
        raise DataError(f"{path}: MATLAB files of version 7.3 are not supported, save it with -v7")
    try:
        _check_elements(data, limit)
        found = loadmat(BytesIO(data), variable_names=keys)  # type: ignore[arg-type, unused-ignore]
    except Exception as error:  # scipy's parser fails in as many ways as files can be damaged
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: not a sound MATLAB file ({reason})") from error
    missing = [key for key in keys if not isinstance(found.get(key), np.ndarray)]
    if missing:
        raise DataError(f"{path}: the MATLAB file has no array named {', '.join(missing)}")
    return {key: found[key] for key in keys}


def _check_elements(data: bytes, limit: int) -> None:
    """Unpacks every element of the file once, for scipy checks neither their size nor their sum.

    After 128 bytes of header, the last two of which tell the byte order, come the elements: a type
    and a size of 32 bits each, then the content. Type 15 is zlib, with a checksum at its end.
    """
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None:
        raise ValueError("it has no header of version 5 to 7")
    at, room = 128, limit
    while at < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        at += 8
        if at + size > len(data):
            raise ValueError(f"it ends at byte {len(data)}, an element goes on to {at + size}")
        if kind == 15:
            element, rest = zlib.decompressobj(), data[at : at + size]
            while rest and not element.eof and room >= 0:
                room -= len(element.decompress(rest, 2**20))
                rest = element.unconsumed_tail
            if not element.eof and room >= 0:
                raise ValueError("a packed element ends too early")
        if room < 0:
            raise ValueError(f"it unpacks to more than {limit} bytes")
        at += size
