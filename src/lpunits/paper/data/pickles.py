"""The music pickles, read without trust: a pickle is a program, which an unpickler runs.

The original files hold a dict, lists, tuples and numpy integers. So this reads the few instructions
that such data consists of, and refuses all others. Two names may be looked up, ``numpy.dtype`` and
``numpy.core.multiarray.scalar``, and both mean stubs of our own. A tuple holds no containers and a
dict's key is a text, so nothing that is built can be deep enough to overflow the stack; sizes are
limited to several times those of the largest original file.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lpunits.paper.data.sources import DataError

MAX_BYTES = 2**26
MAX_OBJECTS = 5_000_000  # containers, and what is remembered
INTEGERS = {"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"}


def read_pickle(path: Path) -> Any:
    """The dict, lists, tuples, texts and integers of a pickle, of protocol 2 or later.

    numpy's integers come out as Python's, byte strings as texts.
    """
    if path.stat().st_size > MAX_BYTES:
        raise DataError(f"{path}: a pickle of at most {MAX_BYTES} bytes is expected")
    return _Machine(path).run()


class _DType:
    """Stands for numpy.dtype: an integer type by its code; BUILD sets its byte order."""

    def __init__(self, code: object, align: object = 0, copy: object = 0) -> None:
        if code not in INTEGERS:
            raise ValueError(f"the number type {str(code)[:20]!r} is refused")
        self.size = int(str(code)[1])
        self.order = "<"

    def build(self, state: object) -> None:
        if not isinstance(state, tuple) or state[1] not in ("<", ">", "|"):
            raise ValueError("the state of a number type is refused")
        self.order = state[1]


def _scalar(dtype: object, raw: object) -> int:
    """Stands for numpy.core.multiarray.scalar: the integer that the bytes are."""
    if not isinstance(dtype, _DType) or not isinstance(raw, str) or len(raw) != dtype.size:
        raise ValueError("a number that is not as long as its type is refused")
    # Notes are positive: the sign bit of a signed type makes a number too large, hence wrong.
    return int.from_bytes(raw.encode("latin-1"), "big" if dtype.order == ">" else "little")


NAMES = {("numpy", "dtype"): _DType, ("numpy.core.multiarray", "scalar"): _scalar}


class _Machine:
    """The stack machine of pickles, cut down to data: one method for each kind of instruction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path.read_bytes()
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.made = 0

    def run(self) -> Any:
        start, data, steps = 0, self.data, INSTRUCTIONS
        try:
            while True:
                start = self.at
                code = data[start]
                self.at = start + 1
                if code == STOP:
                    (result,) = self.stack
                    return result
                if code not in steps:
                    raise ValueError("it is none of those that plain data needs, and is refused")
                step, size = steps[code]
                step(self, size)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            reason = error.args[0] if type(error) is ValueError else "it finds nothing to work on"
            if start >= len(data):
                reason = "the file ends too early"
            raise DataError(
                f"{self.path}: not a sound pickle of piano rolls (instruction at byte {start}: "
                f"{reason})"
            ) from error

    def number(self, size: int) -> int:
        """The next bytes as a number."""
        if size == 1:
            self.at += 1
            return self.data[self.at - 1]
        return int.from_bytes(self.take(size), "little")

    def take(self, size: int) -> bytes:
        """The next bytes."""
        part = self.data[self.at : self.at + size]
        if len(part) < size:
            raise ValueError("the file ends too early")
        self.at += size
        return part

    def cut(self, start: int) -> list[Any]:
        """Takes what is above a place off the stack."""
        if not 0 <= start <= len(self.stack):
            raise IndexError(start)
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def push(self, container: Any) -> None:
        """Puts a new container onto the stack, if there are not too many yet."""
        self.made += 1
        if self.made > MAX_OBJECTS:
            raise ValueError(f"more than {MAX_OBJECTS} objects are refused")
        self.stack.append(container)

    def get(self, size: int) -> None:
        self.stack.append(self.memo[self.number(size)])

    def put(self, size: int) -> None:
        self.memo[self.number(size) if size else len(self.memo)] = self.stack[-1]
        if len(self.memo) > MAX_OBJECTS:
            raise ValueError(f"more than {MAX_OBJECTS} objects are refused")

    def text(self, size: int) -> None:
        self.stack.append(self.take(self.number(size)).decode("latin-1"))

    def integer(self, size: int) -> None:
        self.stack.append(int.from_bytes(self.take(size), "little", signed=size == 4))

    def none(self, _: int) -> None:
        self.stack.append(None)

    def mark(self, _: int) -> None:
        self.marks.append(len(self.stack))

    def tuple(self, size: int) -> None:
        items = self.cut(len(self.stack) - size if size < UP_TO_MARK else self.marks.pop())
        for item in items:
            if type(item) in CONTAINERS:
                raise ValueError("a container in a tuple is refused")
        self.push((*items,))

    def empty_list(self, _: int) -> None:
        self.push([])

    def append(self, size: int) -> None:
        items = self.cut(len(self.stack) - size if size < UP_TO_MARK else self.marks.pop())
        if type(self.stack[-1]) is not list:
            raise ValueError("only a list can be appended to")
        self.stack[-1].extend(items)

    def empty_dict(self, _: int) -> None:
        self.push({})

    def set(self, size: int) -> None:
        items = self.cut(len(self.stack) - size if size < UP_TO_MARK else self.marks.pop())
        keys, values = items[::2], items[1::2]
        if type(self.stack[-1]) is not dict or any(type(key) is not str for key in keys):
            raise ValueError("a dict must have texts for keys")
        self.stack[-1].update(zip(keys, values, strict=True))

    def name(self, _: int) -> None:
        module, name, _rest = self.data[self.at : self.at + 200].decode("latin-1").split("\n", 2)
        if (module, name) not in NAMES:
            raise ValueError(f"the name '{module} {name}' is refused")
        self.at += len(module) + len(name) + 2
        self.stack.append(NAMES[module, name])

    def reduce(self, _: int) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if type(arguments) is not tuple or (function is not _scalar and function is not _DType):
            raise ValueError("a call is refused")
        self.stack.append(function(*arguments))

    def build(self, _: int) -> None:
        state = self.stack.pop()
        if type(self.stack[-1]) is not _DType:
            raise ValueError("only a number type has a state")
        self.stack[-1].build(state)

    def skip(self, size: int) -> None:
        self.take(size)


STOP = ord(".")
UP_TO_MARK = 99
CONTAINERS = {tuple, list, dict}
# What an instruction does, and the bytes that its argument has, or the values that it takes.
INSTRUCTIONS: dict[int, tuple[Callable[[_Machine, int], None], int]] = {
    ord(code): (step, size)
    for step, codes in {
        _Machine.skip: {"\x80": 1, "\x95": 8},  # the protocol's number, the length of a frame
        _Machine.get: {"h": 1, "j": 4},
        _Machine.put: {"q": 1, "r": 4, "\x94": 0},
        _Machine.text: {"U": 1, "T": 4, "C": 1, "B": 4, "\x8c": 1, "X": 4},
        _Machine.integer: {"K": 1, "M": 2, "J": 4},
        _Machine.none: {"N": 0},
        _Machine.mark: {"(": 0},
        _Machine.tuple: {")": 0, "\x85": 1, "\x86": 2, "\x87": 3, "t": UP_TO_MARK},
        _Machine.empty_list: {"]": 0},
        _Machine.append: {"a": 1, "e": UP_TO_MARK},
        _Machine.empty_dict: {"}": 0},
        _Machine.set: {"s": 2, "u": UP_TO_MARK},
        _Machine.name: {"c": 0},
        _Machine.reduce: {"R": 0},
        _Machine.build: {"b": 0},
    }.items()
    for code, size in codes.items()
}
