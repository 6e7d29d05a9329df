"""Reads MATLAB files and pickles, which may come from anyone, in a child process.

One flipped bit can crash ``scipy.io.loadmat``, and a hostile file can exhaust the memory or the
stack of either reader. Here only the child ends, and :func:`read` reports why in one sentence.
A pickle is a program. The unpickler finds two names, both stubs of this file; every other is
refused, so nothing but the stubs can be called.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import numpy as safetensors

Arrays = dict[str, npt.NDArray[Any]]

LOWEST, HIGHEST = 21, 108  # the MIDI notes of a piano's 88 keys
SECONDS = 5  # of processor time, and one more for each MB of the file


def read(path: Path, keys: tuple[str, ...], limit: int) -> Arrays:
    """The arrays of these names, by name; array number i of a cell array is ``name/i``.

    A pickle holds a dict of piano rolls, see :func:`lpunits.paper.data.music.load_music`; a roll
    is named as an array of a cell array. File and arrays may have ``limit`` bytes each.
    """
    # The child does not import the package: torch would take longer than the file.
    from lpunits.paper.data.sources import DataError

    if path.stat().st_size > limit:
        raise DataError(f"{path}: a file of at most {limit} bytes is expected")
    command = [sys.executable, "-P", __file__, str(path.absolute()), str(limit), *keys]
    single = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # every thread reserves memory
    child = subprocess.run(command, capture_output=True, env=single, check=False)
    if child.returncode:
        lines = child.stderr.decode(errors="replace").strip().splitlines()
        crashed = child.returncode != 1 or not lines
        reason = "the file is damaged and crashes its reader" if crashed else lines[-1]
        if child.returncode == -getattr(signal, "SIGXCPU", 0):  # Windows has none
            reason = "reading it takes longer than a file of its size may"
        raise DataError(f"{path}: {reason}")
    return safetensors.load(child.stdout)


def matlab_arrays(path: Path, keys: tuple[str, ...]) -> Arrays:
    """The named arrays and cell arrays of a MATLAB file of version 5 to 7."""
    from scipy.io import loadmat

    with path.open("rb") as file:
        version = file.read(10)
    if version == b"MATLAB 7.3":
        raise ValueError("MATLAB files of version 7.3 are not supported, save it with -v7")
    try:
        with warnings.catch_warnings(action="error"):  # the only sign of a wrong checksum
            found = loadmat(path, variable_names=keys)
    except Exception as error:  # the parser fails in many ways on damaged files
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"not a MATLAB file, or a damaged one ({reason})") from error
    if missing := [key for key in keys if key not in found]:
        raise ValueError(f"the MATLAB file has no array named {', '.join(missing)}")
    arrays: Arrays = {}
    for key in keys:
        cells = {key: found[key]}
        if getattr(found[key], "dtype", None) == np.dtype(object):
            cells = {f"{key}/{i}": cell for i, cell in enumerate(found[key].flat)}
        for name, array in cells.items():
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
                raise ValueError(f"{name} must be an array of real numbers")
        arrays |= cells
    return arrays


class IntegerType:
    """Stands for ``numpy.dtype``."""

    order = "<"

    def __init__(self, code: str, *_: object) -> None:
        if code[:1] not in ("i", "u") or code[1:] not in ("1", "2", "4", "8"):
            raise ValueError(f"the number type {code[:20]!r} is refused")
        self.size = int(code[1:])

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]


def integer(kind: IntegerType, raw: str) -> int:
    """Stands for ``numpy.core.multiarray.scalar``. No note is negative, so the sign is ignored."""
    if type(kind) is not IntegerType or len(raw) != kind.size:
        raise ValueError("a number that does not have the length of its type is refused")
    return int.from_bytes(raw.encode("latin-1"), "big" if kind.order == ">" else "little")


class Unpickler(pickle.Unpickler):
    """Builds dicts, lists, tuples, texts and integers, numpy's among them."""

    names = {("numpy", "dtype"): IntegerType, ("numpy.core.multiarray", "scalar"): integer}  # noqa: RUF012

    def find_class(self, module: str, name: str) -> Any:
        """One of the two stubs."""
        if (module, name) not in self.names:
            raise ValueError(f"the name '{module} {name}' is refused")
        return self.names[module, name]


def pickled_rolls(path: Path, keys: tuple[str, ...]) -> Arrays:
    """The piano rolls of a pickle: a dict of lists of pieces, which are lists of chords."""
    try:
        with path.open("rb") as file:
            found = Unpickler(file, encoding="latin-1").load()
    except Exception as error:  # a damaged program fails in many ways
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"not a pickle of piano rolls, or a damaged one ({reason})") from error
    if type(found) is not dict or any(type(found.get(key)) is not list for key in keys):
        raise ValueError(f"the pickle must be a dict of lists, {', '.join(keys)}")
    return {
        f"{key}/{i}": _roll(f"piece {i} of {key}", piece)
        for key in keys
        for i, piece in enumerate(found[key])
    }


def _roll(where: str, piece: Any) -> npt.NDArray[np.uint8]:
    if type(piece) is not list:
        raise ValueError(f"{where} must be a list of steps, got {type(piece).__name__}")
    roll = np.zeros((len(piece), HIGHEST - LOWEST + 1), np.uint8)
    for step, notes in enumerate(piece):
        if type(notes) is not tuple:
            kind = type(notes).__name__
            raise ValueError(f"{where}, step {step} must be a tuple of notes, got {kind}")
        for note in notes:
            if type(note) is not int or not LOWEST <= note <= HIGHEST:
                got = note if type(note) is int and abs(note) < 10**6 else type(note).__name__
                raise ValueError(
                    f"{where}, step {step}: a note must be from {LOWEST} to {HIGHEST}, got {got}"
                )
            roll[step, note - LOWEST] = 1
    return roll


def main(name: str, limit: str, *keys: str) -> None:
    """The child: writes the arrays to its standard output."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # Windows has no such limits
        import resource

        memory = 2**30 + 4 * int(limit)
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        # Sixty nested pairs of one tuple with itself fit into 200 bytes, and take years to hash.
        seconds = SECONDS + os.path.getsize(name) // 2**20
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    try:
        read_arrays = matlab_arrays if name.endswith(".mat") else pickled_rolls
        arrays = read_arrays(Path(name), keys)
        if sum(array.nbytes for array in arrays.values()) > int(limit):
            raise ValueError(f"it unpacks to more than the {limit} bytes that are expected")
        native = {n: np.asarray(a, a.dtype.newbyteorder("="), "C") for n, a in arrays.items()}
        sys.stdout.buffer.write(safetensors.save(native))
    except MemoryError:
        sys.exit("it needs more memory than a file of this kind may use")
    except Exception as error:
        sys.exit(" ".join(str(error).split())[:400])


if __name__ == "__main__":
    main(*sys.argv[1:])
