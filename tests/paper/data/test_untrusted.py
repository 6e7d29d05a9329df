"""No file may run code, crash the process, exhaust its memory, or raise anything but DataError."""

import collections
import os
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.io import savemat

from lpunits.paper.data import untrusted
from lpunits.paper.data.music import SPLITS, load_music
from lpunits.paper.data.sources import DataError
from lpunits.paper.data.untrusted import matlab_arrays, pickled_rolls, read
from paper.data.damage import bit_flips, truncations

LIMIT = 10**6


def mat(path: Path, compressed: bool = True, **arrays: object) -> Path:
    savemat(path, arrays, do_compression=compressed)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.mat"


@pytest.mark.parametrize("compressed", [False, True])
def test_matlab_arrays_and_cells(path: Path, compressed: bool) -> None:
    cells = np.empty((1, 3), object)
    cells[0, :] = [np.eye(5), np.ones((3, 4), np.uint8), np.zeros((0, 2))]
    numbers = {code: np.arange(24).reshape(2, 3, 4).astype(code) for code in "bBhHiIqQfd?"}
    named = {f"x{i}": x for i, x in enumerate(numbers.values())}
    found = read(mat(path, compressed, c=cells, other="text", **named), ("c", *named), LIMIT)
    assert found.keys() == {"c/0", "c/1", "c/2", *named}
    for i, cell in enumerate(cells[0]):
        np.testing.assert_array_equal(found[f"c/{i}"], cell)
    for name, x in named.items():
        np.testing.assert_array_equal(found[name], x)


@pytest.mark.parametrize("thing", ["text", {"a": 1}, np.eye(3) * 1j, sparse.coo_array(np.eye(3))])
def test_what_is_no_array_of_real_numbers(path: Path, thing: object) -> None:
    mat(path, x=thing, y=np.eye(2))
    assert matlab_arrays(path, ("y",)).keys() == {"y"}
    with pytest.raises(ValueError, match="x must be an array of real numbers"):
        matlab_arrays(path, ("x", "y"))


def test_missing_arrays_are_named(path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.mat: the MATLAB file has no array named y, z"):
        read(mat(path, x=np.zeros(3)), ("x", "y", "z"), LIMIT)


@pytest.mark.parametrize(("byte", "bit"), [(144, 2), (221, 0), (224, 5)])
def test_a_damaged_file_that_crashes_loadmat_is_an_error(path: Path, byte: int, bit: int) -> None:
    """These flips of one bit end a process that calls loadmat by signal 11, with scipy 1.17."""
    cells = np.empty((1, 1), object)
    cells[0, 0] = np.eye(5, 88)
    spoiled = bytearray(mat(path, False, x=cells).read_bytes())
    spoiled[byte] ^= 1 << bit
    path.write_bytes(spoiled)
    with pytest.raises(DataError, match=r"a\.mat: (the file is|not a MATLAB file, or a) damaged"):
        read(path, ("x",), LIMIT)


def test_a_flipped_bit_in_a_compressed_file_is_noticed(path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (60, 48, 48), np.uint8)
    good = mat(path, x=x).read_bytes()
    for spoiled in [*bit_flips(good, 200), *truncations(good, 20)]:
        path.write_bytes(spoiled)
        try:
            found = matlab_arrays(path, ("x",))["x"]
        except ValueError:
            continue
        np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a MATLAB file, or a damaged one"),
        (b"not a MATLAB file" * 20, "not a MATLAB file, or a damaged one"),
        (b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(512), "save it with -v7"),
        (bytes(LIMIT + 1), "a file of at most 1000000 bytes is expected"),
    ],
)
def test_other_files(path: Path, data: bytes, reason: str) -> None:
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"a\.mat: .*{reason}"):
        read(path, ("x",), LIMIT)


def test_bombs_of_zeros(path: Path) -> None:
    with pytest.raises(DataError, match="it unpacks to more than the 1000000 bytes"):
        read(mat(path, x=np.zeros(10**7, np.uint8)), ("x",), LIMIT)
    # An array that claims 8 GB, compressed: the child's memory is limited.
    values = struct.pack("<II", 9, 2**32 - 8) + bytes(1000)
    body = struct.pack("<IIIIIIiiII", 6, 8, 6, 0, 5, 8, 2**15, 2**14, 0x10001, ord("x")) + values
    packed = zlib.compress(struct.pack("<II", 14, 2**32 - 1) + body)
    path.write_bytes(
        mat(path, x=1).read_bytes()[:128] + struct.pack("<II", 15, len(packed)) + packed
    )
    with pytest.raises(DataError, match=r"a\.mat: "):
        read(path, ("x",), LIMIT)


# Pickles

PIECES = {part: [[(60, 64, 67), (), (21,)], [(108,)]] for part in SPLITS}

# A dtype as Python 2 and numpy 1 wrote it, and a scalar of it: the content of the original files.
DTYPE = (
    b"cnumpy\ndtype\nU\x02i8K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
)


def scalar(value: int) -> bytes:
    raw = struct.pack("<q", value)
    return b"cnumpy.core.multiarray\nscalar\n" + DTYPE + b"U\x08" + raw + b"\x86R"


def pickle_file(folder: Path, data: bytes) -> Path:
    path = folder / "music.pickle"
    path.write_bytes(data)
    return path


def original(note: bytes) -> bytes:
    """A file of the original form: three splits, each of one piece of one chord of one note."""
    items = b"".join(
        b"U" + bytes([len(part)]) + part.encode() + b"]](" + note + b"taa" for part in SPLITS
    )
    return b"\x80\x02}(" + items + b"u."


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_of_every_protocol(tmp_path: Path, protocol: int) -> None:
    found = pickled_rolls(pickle_file(tmp_path, pickle.dumps(PIECES, protocol)), SPLITS)
    assert found.keys() == {f"{part}/{i}" for part in SPLITS for i in range(2)}
    assert [(t, n + 21) for t, n in np.argwhere(found["train/0"]).tolist()] == [
        *((0, 60), (0, 64), (0, 67), (2, 21))
    ]


@pytest.mark.parametrize(
    ("code", "order", "raw"),
    [("i8", "<", b"\x48" + bytes(7)), ("u1", "|", b"\x48"), ("i2", ">", b"\0\x48")],
)
def test_numpy_integers(tmp_path: Path, code: str, order: str, raw: bytes) -> None:
    dtype = DTYPE.replace(b"i8", code.encode()).replace(b"<", order.encode())
    note = b"cnumpy.core.multiarray\nscalar\n" + dtype + b"U" + bytes([len(raw)]) + raw + b"\x86R"
    roll = load_music(pickle_file(tmp_path, original(note))).train.features[0]
    assert roll.shape == (1, 88)
    assert roll.nonzero().tolist() == [[0, 72 - 21]]


class Command:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def commands(command: str) -> dict[str, bytes]:
    line = command.encode()
    text = b"X" + struct.pack("<I", len(line)) + line
    short = b"\x8c\x05posix\x8c\x06system"
    return {
        **{f"reduce, protocol {n}": pickle.dumps(Command(command), n) for n in (0, 2, 5)},
        "inside": pickle.dumps(PIECES | {"a": Command(command)}, 4),
        "inst": b"(" + b"S'" + line + b"'\niposix\nsystem\n.",
        "obj": b"(cposix\nsystem\n" + text + b"o.",
        "newobj": b"\x80\x02cposix\nsystem\n" + text + b"\x85\x81.",
        "stack global": b"\x80\x04" + short + b"\x93" + text + b"\x85R.",
        "eval": b"\x80\x02cbuiltins\neval\n" + text + b"\x85R.",
        "state": b"\x80\x02cnumpy\ndtype\nU\x02i8\x85R}U\x0c__setstate__cposix\nsystem\nsb"
        + text
        + b"b.",
        "extension": b"\x80\x02\x82\x01.",
        "persistent": b"\x80\x02" + text + b"Q.",
        "attribute of a stub": b"\x80\x04\x8c\x05numpy\x8c\x0edtype.__init__\x93"
        + text
        + b"\x85R.",
    }


def test_commands_do_run_in_the_stock_unpickler(tmp_path: Path) -> None:
    """So the test below means something."""
    mark = tmp_path / "ran"
    for name in ("reduce, protocol 2", "inst", "obj", "stack global"):
        pickle.loads(commands(f"touch {mark}")[name])
        assert mark.exists()
        mark.unlink()


@pytest.mark.parametrize("name", commands(""))
def test_commands_are_refused_and_do_not_run(tmp_path: Path, name: str) -> None:
    mark = tmp_path / "ran"
    path = pickle_file(tmp_path, commands(f"touch {mark}")[name])
    with pytest.raises(ValueError, match="not a pickle of piano rolls, or a damaged one"):
        pickled_rolls(path, SPLITS)
    assert not mark.exists()


@pytest.mark.parametrize(
    "thing",
    [np.int64(60), np.arange(3), collections.OrderedDict(), complex(1), Path(), bytearray(3), {1}],
    ids=lambda thing: type(thing).__name__,
)
def test_any_third_name_is_refused(tmp_path: Path, thing: object) -> None:
    path = pickle_file(tmp_path, pickle.dumps(PIECES | {"train": thing}, 2))
    with pytest.raises(ValueError, match=r"the name '[\w. ]+' is refused"):
        pickled_rolls(path, SPLITS)


def test_no_other_unpickler_is_used() -> None:
    for path in Path(untrusted.__file__).parent.glob("*.py"):
        text = path.read_text()
        assert path.name == "untrusted.py" or "import pickle" not in text
        for word in ("pickle.load", "torch.load", "joblib", "allow_pickle=True"):
            assert word not in text, f"{path} uses {word}"


N = 200_000
BOMBS = {
    "deep tuple as a key": b"\x80\x02})" + b"\x85" * N + b"Ns.",  # overflows the stack
    "deep list": b"\x80\x02" + b"]" * N + b"a" * (N - 1) + b".",
    "memo index": b"\x80\x02]r\xff\xff\xff\xff.",
    "text of 4 GB": b"\x80\x02T\xff\xff\xff\xffabc.",
    "bytes of 2^63": b"\x80\x05\x96" + struct.pack("<Q", 2**63 - 1) + b".",
    "frame of 2^63": b"\x80\x04\x95" + struct.pack("<Q", 2**63 - 1) + b".",
    "number with many digits": b"I" + b"9" * N + b"\n.",
    "doubling lists": b"\x80\x02]q\x00" + b"](h\x00h\x00eq\x00" * 100 + b".",
    "one piece many times": b"\x80\x02}U\x05train](]("
    + b")" * N
    + b"eq\x00"
    + b"h\x00" * N
    + b"es.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_without_harm(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError) as caught:
        load_music(pickle_file(tmp_path, BOMBS[name]))
    message = str(caught.value)
    assert "music.pickle: " in message
    assert len(message) < 500
    assert "\n" not in message


@pytest.mark.parametrize(
    "note",
    [
        scalar(72).replace(b"i8", b"f8"),
        scalar(72).replace(b"i8", b"O8"),
        scalar(72).replace(b"U\x08", b"U\x07", 1),
        scalar(72).replace(DTYPE, b"N"),
        scalar(72).replace(DTYPE, b"cnumpy\ndtype\n"),
        DTYPE.replace(b"tb", b"t0Nb"),
        b"cnumpy\ndtype\n)R",
        b"cnumpy\ndtype\nNR",
        b"NNR",
    ],
)
def test_stubs_take_integers_only(tmp_path: Path, note: bytes) -> None:
    with pytest.raises(ValueError, match="not a pickle of piano rolls, or a damaged one"):
        pickled_rolls(pickle_file(tmp_path, original(note)), SPLITS)


@pytest.mark.parametrize("note", [20, 109, -1, 2**62])
def test_notes_out_of_range(tmp_path: Path, note: int) -> None:
    plain = pickle.dumps({part: [[(note,)]] for part in SPLITS}, 4)
    for data in (original(scalar(note)), plain):
        with pytest.raises(ValueError, match="piece 0 of train, step 0: a note must be from 21 to"):
            pickled_rolls(pickle_file(tmp_path, data), SPLITS)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([], "must be a dict of lists"),
        ({"train": [], "valid": []}, "must be a dict of lists"),
        (PIECES | {"train": ()}, "must be a dict of lists"),
        (PIECES | {"valid": [(60, 61)]}, "piece 0 of valid must be a list of steps, got tuple"),
        (PIECES | {"test": [[(60,)], [60]]}, "piece 1 of test, step 0 must be a tuple"),
        (PIECES | {"test": [[("60",)]]}, "a note must be from 21 to 108, got str"),
    ],
)
def test_wrong_structure(tmp_path: Path, content: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        pickled_rolls(pickle_file(tmp_path, pickle.dumps(content, 2)), SPLITS)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (PIECES | {"train": []}, "train must be a list of at least one piano roll"),
        (PIECES | {"valid": [[]]}, r"piece 0 of valid must have the shape \(steps, 88\)"),
        (PIECES | {"valid": [3]}, "piece 0 of valid must be a list of steps, got int"),
    ],
)
def test_wrong_pieces_are_errors_of_load_music(
    tmp_path: Path, content: object, reason: str
) -> None:
    with pytest.raises(DataError, match=rf"music\.pickle: {reason}"):
        load_music(pickle_file(tmp_path, pickle.dumps(content, 2)))


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "music.pickle"
    with path.open("wb") as file:
        file.truncate(2**26 + 1)  # sparse: takes no space
    with pytest.raises(DataError, match="at most 67108864 bytes"):
        load_music(path)


def test_damaged_pickles_give_rolls_or_an_error(tmp_path: Path) -> None:
    good = original(scalar(72))
    for spoiled in truncations(good, 100):
        with pytest.raises(ValueError, match="damaged one"):
            pickled_rolls(pickle_file(tmp_path, spoiled), SPLITS)
    flips = 0
    for spoiled in bit_flips(good, 600):
        try:
            found = pickled_rolls(pickle_file(tmp_path, spoiled), SPLITS)
            assert all(roll.shape[1] == 88 for roll in found.values())
        except ValueError:
            flips += 1
    assert flips > 100
