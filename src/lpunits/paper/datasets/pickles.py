"""The music pickles, read without trust: a pickle is a program, and next to nothing of it is run.

The original files hold dicts, lists, tuples and numpy integers. So two names may be looked up,
``numpy.dtype`` and ``numpy.core.multiarray.scalar``, and both give stubs of our own; every other
name, and every instruction that plain data does not need, is refused before anything is run.
"""

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

from lpunits.paper.datasets.files import DataError

MAX_BYTES = 2**28
# What the pickles of plain data consist of, from protocol 2 to 5.
INSTRUCTIONS = {
    *("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK"),
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1"),
    *("BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES"),
    *("BINUNICODE", "SHORT_BINUNICODE"),
    *("EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "APPEND", "APPENDS"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET"),
    *("GLOBAL", "REDUCE", "BUILD"),
}
INTEGERS = {"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"}


def read_pickle(path: Path) -> Any:
    """The plain data of a pickle; numpy integers come out as Python's."""
    if path.stat().st_size > MAX_BYTES:
        raise DataError(f"{path}: a pickle of at most {MAX_BYTES} bytes is expected")
    data = path.read_bytes()
    try:
        _check(data)
        return _Unpickler(io.BytesIO(data), encoding="latin-1").load()
    except Exception as error:  # whatever the file makes the unpickler stumble over
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: not a sound pickle of piano rolls ({reason})") from error


def _check(data: bytes) -> None:
    """Goes through the instructions without running them."""
    stored = 0
    for instruction, argument, position in pickletools.genops(data):
        name = instruction.name
        if name not in INSTRUCTIONS:
            raise pickle.UnpicklingError(f"the instruction {name} at byte {position} is refused")
        if name == "GLOBAL" and tuple(str(argument).split(" ")) not in STUBS:
            raise pickle.UnpicklingError(f"the name {argument!r} is refused")
        if name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            stored += 1
            # The unpickler makes room up to the index: the last of 2^32 would take 64 GB.
            if argument is not None and argument > stored:
                raise pickle.UnpicklingError(f"the memo index {argument} is out of order")


class _DType:
    """Stands for numpy.dtype: an integer type by its code, its byte order set by BUILD."""

    __slots__ = ("order", "size")

    def __init__(self, code: object, align: object = 0, copy: object = 0) -> None:
        if code not in INTEGERS:
            raise pickle.UnpicklingError(f"the type {code!r} is refused")
        self.size = int(str(code)[1])
        self.order = "<"

    def __setstate__(self, state: tuple[object, ...]) -> None:
        if len(state) < 2 or state[1] not in ("<", ">", "|"):
            raise pickle.UnpicklingError(f"the type's state {state!r} is refused")
        self.order = str(state[1])


def _scalar(dtype: object, raw: object = b"") -> int:
    """Stands for numpy.core.multiarray.scalar: the integer that the bytes are."""
    data = raw.encode("latin-1") if isinstance(raw, str) else raw
    if not isinstance(dtype, _DType) or not isinstance(data, bytes) or len(data) != dtype.size:
        raise pickle.UnpicklingError(f"the number {raw!r} is refused")
    # Notes are from 21 to 108, so the sign bit of a signed type makes the number wrong either way.
    return int.from_bytes(data, "big" if dtype.order == ">" else "little")


STUBS = {("numpy", "dtype"): _DType, ("numpy.core.multiarray", "scalar"): _scalar}


class _Unpickler(pickle.Unpickler):
    """Looks names up among the stubs and nowhere else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in STUBS:
            raise pickle.UnpicklingError(f"the name '{module} {name}' is refused")
        return STUBS[module, name]

    def persistent_load(self, pid: object) -> Any:
        raise pickle.UnpicklingError(f"the reference {pid!r} to something outside is refused")
