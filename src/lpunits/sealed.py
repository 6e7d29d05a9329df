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
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from safetensors.torch import save as to_bytes
from torch import Tensor

from lpunits.files import write_atomically

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
    try:  # whoever wrote a right checksum by hand may have written anything beside it
        tensors = load(data)
        size = int.from_bytes(data[:8], "little")
        facts = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["json"])
        facts.pop("sha256")
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise DamagedError(f"{path}: damaged: it is not a file that lpunits has written") from e
    return tensors, facts
