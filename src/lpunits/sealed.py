"""Files of tensors and facts with a checksum over every byte: checkpoints and trained models.

A sealed file is a safetensors file whose header holds the facts as JSON, the sha256 of the whole
file among them. The checksum is that of the file with 64 zeros in its place.

>>> import tempfile, torch
>>> path = Path(tempfile.mkdtemp()) / "model.safetensors"
>>> write(path, {"weight": torch.ones(2)}, {"kind": "Music"})
>>> read(path)
({'weight': tensor([1., 1.])}, {'kind': 'Music'})
>>> flipped = bytearray(path.read_bytes()); flipped[-1] ^= 1
>>> _ = path.write_bytes(flipped)
>>> read(path)
Traceback (most recent call last):
lpunits.sealed.DamagedError: ...model.safetensors: damaged: its checksum is wrong
"""

import json
import textwrap
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from safetensors import SafetensorError
from safetensors.torch import load
from safetensors.torch import save as to_bytes
from torch import Tensor

from lpunits.files import write_atomically

T = TypeVar("T")
NAME, BLANK = b'\\"sha256\\": \\"', b"0" * 64  # the name as JSON within JSON has it


class DamagedError(ValueError):
    """A sealed file is damaged or something else; the message is one sentence with its path."""


def write(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors, and facts that JSON can hold, with a checksum over all of it."""
    # safetensors refuses tensors that share memory, as tied weights do.
    copies = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items()}
    data = to_bytes(copies, {"json": json.dumps({"sha256": BLANK.decode(), **facts})})
    write_atomically(path, data.replace(BLANK, sha256(data).hexdigest().encode(), 1))


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the facts of a file; DamagedError if a single bit of it has changed."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DamagedError(f"{path}: there is no such file") from error
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror or error}") from error
    before, name, rest = data.partition(NAME)
    found, after = rest[: len(BLANK)], rest[len(BLANK) :]
    if not name:
        raise DamagedError(f"{path}: damaged: it is not a file that lpunits has written")
    if sha256(before + name + BLANK + after).hexdigest().encode() != found:
        raise DamagedError(f"{path}: damaged: its checksum is wrong")
    try:  # a file made by hand may have a right checksum and any content
        tensors = load(data)
        size = int.from_bytes(data[:8], "little")
        facts = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["json"])
        facts.pop("sha256")
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise DamagedError(f"{path}: damaged: it is not a file that lpunits has written") from e
    return tensors, facts


def made(kind: type[T], values: Mapping[str, Any]) -> T:
    """A dataclass of facts from a file. Facts of other types than its fields are a ValueError.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Unit:
    ...     name: str
    ...     orders: tuple[float, ...]
    >>> made(Unit, {"name": "first", "orders": [1, 2.5]})
    Unit(name='first', orders=(1, 2.5))
    >>> made(Unit, {"name": "first", "orders": "many"})
    Traceback (most recent call last):
    ValueError: orders must be tuple[float, ...], got 'many'
    """
    hints, found = get_type_hints(kind), {}
    for name, value in dict(values).items():
        if name not in hints or not _is_a(value, hints[name]):
            kind_of = hints.get(name, "left out")
            wanted = kind_of.__name__ if isinstance(kind_of, type) else kind_of
            raise ValueError(f"{name} must be {wanted}, got {value!r:.50}")
        found[name] = tuple(value) if get_origin(hints[name]) is tuple else value
    return kind(**found)


def reason(error: BaseException) -> str:
    r"""The message of an error as one short line: a file may have chosen the words.

    >>> reason(ValueError("two\nlines")), reason(KeyError())
    ('two lines', 'KeyError')
    """
    plain = "".join(c if c.isprintable() else " " for c in str(error))
    return textwrap.shorten(plain, 300, placeholder=" ...") or type(error).__name__


def _is_a(value: Any, hint: Any) -> bool:
    """Whether a value of JSON has a type; a list is a tuple, too."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (tuple, list):
        return isinstance(value, list) and all(_is_a(v, get_args(hint)[0]) for v in value)
    if isinstance(hint, UnionType):
        return any(_is_a(value, each) for each in get_args(hint))
    return type(value) in ((int, float) if hint is float else (hint,))
