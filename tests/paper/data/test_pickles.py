"""No file, however it was made, may run anything, hang, crash, or raise anything but DataError."""

import collections
import io
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lpunits.paper.data import pickles
from lpunits.paper.data.music import SPLITS, load_music
from lpunits.paper.data.pickles import INSTRUCTIONS, read_pickle
from lpunits.paper.data.sources import DataError
from paper.data.damage import bit_flips, outcome, truncations

PIECES = {part: [[(60, 64, 67), (), (21,)], [(108,)]] for part in SPLITS}

# A dtype as Python 2 and numpy 1 wrote it, and a scalar of it: what the original files consist of.
DTYPE = (
    b"cnumpy\ndtype\nU\x02i8K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
)


def scalar(value: int) -> bytes:
    raw = struct.pack("<q", value)
    return b"cnumpy.core.multiarray\nscalar\n" + DTYPE + b"U\x08" + raw + b"\x86R"


def file_of(folder: Path, data: bytes) -> Path:
    path = folder / "music.pickle"
    path.write_bytes(data)
    return path


def original(note: bytes) -> bytes:
    """A file of the original form: three splits, each of one piece of one chord of one note."""
    items = b"".join(
        b"U" + bytes([len(part)]) + part.encode() + b"]](" + note + b"taa" for part in SPLITS
    )
    return b"\x80\x02}(" + items + b"u."


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_of_every_protocol(tmp_path: Path, protocol: int) -> None:
    assert read_pickle(file_of(tmp_path, pickle.dumps(PIECES, protocol))) == PIECES


def test_numpy_integers_of_the_original_form(tmp_path: Path) -> None:
    found = read_pickle(file_of(tmp_path, original(scalar(72))))
    assert found == {part: [[(72,)]] for part in SPLITS}
    assert all(type(found[part][0][0][0]) is int for part in SPLITS)
    roll = load_music(tmp_path / "music.pickle").train.features[0]
    assert roll.shape == (1, 88)
    assert roll.nonzero().tolist() == [[0, 72 - 21]]


@pytest.mark.parametrize(
    ("code", "order", "raw", "value"),
    [("u1", "|", b"\x48", 72), ("i2", ">", b"\0\x48", 72), ("u4", "<", b"\x48\0\0\0", 72)],
)
def test_every_integer_type(tmp_path: Path, code: str, order: str, raw: bytes, value: int) -> None:
    dtype = DTYPE.replace(b"i8", code.encode()).replace(b"<", order.encode())
    note = b"cnumpy.core.multiarray\nscalar\n" + dtype + b"U" + bytes([len(raw)]) + raw + b"\x86R"
    assert read_pickle(file_of(tmp_path, original(note)))["train"] == [[(value,)]]


class Command:
    """What would run a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def commands(command: str) -> dict[str, bytes]:
    line = command.encode()
    text = b"X" + struct.pack("<I", len(line)) + line
    short = b"\x8c\x05posix\x8c\x06system"
    return {
        **{f"reduce, protocol {n}": pickle.dumps(Command(command), n) for n in range(6)},
        **{
            f"inside, protocol {n}": pickle.dumps(PIECES | {"a": Command(command)}, n)
            for n in (2, 4)
        },
        "inst": b"(" + b"S'" + line + b"'\niposix\nsystem\n.",
        "obj": b"(cposix\nsystem\n" + text + b"o.",
        "newobj": b"\x80\x02cposix\nsystem\n" + text + b"\x85\x81.",
        "stack global": b"\x80\x04" + short + b"\x93" + text + b"\x85R.",
        "memo": b"\x80\x02cposix\nsystem\nq\x000h\x00" + text + b"\x85R.",
        "eval": b"\x80\x02cbuiltins\neval\n" + text + b"\x85R.",
        "state": b"\x80\x02cnumpy\ndtype\nU\x02i8\x85R}U\x0c__setstate__cposix\nsystem\nsb"
        + text
        + b"b.",
        "extension": b"\x80\x02\x82\x01.",
        "outside": b"\x80\x02" + text + b"Q.",
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
    path = file_of(tmp_path, commands(f"touch {mark}")[name])
    with pytest.raises(DataError, match=r"music\.pickle: not a sound pickle .*refused|only"):
        load_music(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "thing",
    [np.int64(60), np.arange(3), collections.OrderedDict(), complex(1), Path(), bytearray(3), {1}],
    ids=lambda thing: type(thing).__name__,
)
def test_any_third_name_is_refused(tmp_path: Path, thing: object) -> None:
    path = file_of(tmp_path, pickle.dumps(PIECES | {"train": thing}, 2))
    with pytest.raises(DataError, match=r"the name '[\w. ]+' is refused"):
        load_music(path)


@pytest.mark.parametrize("name", [b"numpy\nndarray", b"numpy.core.multiarray\n_reconstruct"])
def test_other_names_of_numpy_are_refused(tmp_path: Path, name: bytes) -> None:
    with pytest.raises(DataError, match=name.decode().replace("\n", " ")):
        load_music(file_of(tmp_path, b"\x80\x02c" + name + b"\n."))


N = 200_000
BOMBS = {
    "deep list": b"\x80\x02" + b"]" * N + b"a" * (N - 1) + b".",
    "deep tuple": b"\x80\x02)" + b"\x85" * N + b".",
    "deep tuple as a key": b"\x80\x02})" + b"\x85" * N + b"Ns.",
    "deep dict": b"\x80\x02" + b"}U\x01a" * N + b"N" + b"s" * N + b".",
    "marks": b"\x80\x02" + b"(" * N + b".",
    "memo index": b"\x80\x02]r\xff\xff\xff\xff.",
    "text of 4 GB": b"\x80\x02T\xff\xff\xff\xffabc.",
    "bytes of 2^63": b"\x80\x05\x96" + struct.pack("<Q", 2**63 - 1) + b".",
    "frame of 2^63": b"\x80\x04\x95" + struct.pack("<Q", 2**63 - 1) + b".",
    "number of 2 GB": b"\x80\x02\x8b\xff\xff\xff\x7f1.",
    "number with a billion digits": b"I" + b"9" * N + b"\n.",
    "doubling tuples": b"\x80\x02)" + b"q\x00h\x00\x86" * 100 + b".",
    "doubling lists": b"\x80\x02]q\x00" + b"](h\x00h\x00eq\x00" * 100 + b".",
    "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "one piece a million times": b"\x80\x02}("
    + b"".join(
        b"U\x05%b](](" % p + b")" * N + b"eq\x00" + b"h\x00" * N + b"e"
        for p in (b"train", b"valid")
    )
    + b"U\x04test]u.",
    "a long step": original(b"K\x3c" * N),
    "a long dtype": b"\x80\x02cnumpy\ndtype\nT" + struct.pack("<I", N) + b"i" * N + b"\x85R.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_without_harm(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError) as caught:
        load_music(file_of(tmp_path, BOMBS[name]))
    message = str(caught.value)
    assert "music.pickle" in message
    assert len(message) < 500


@pytest.mark.parametrize("many", [b"]" * 2000, b")" * 2000, b"}" * 2000, b"N" + b"\x94" * 2000])
def test_many_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bytes) -> None:
    """A container of 64 bytes takes one byte of the file, so they are counted."""
    monkeypatch.setattr(pickles, "MAX_OBJECTS", 1000)
    with pytest.raises(DataError, match="more than 1000 objects are refused"):
        load_music(file_of(tmp_path, b"\x80\x04" + many + b"."))


def test_the_sources_know_no_stock_unpickler() -> None:
    for path in Path(pickles.__file__).parent.rglob("*.py"):
        text = path.read_text()
        for word in ("import pickle", "pickle.load", "torch.load", "joblib", "allow_pickle=True"):
            assert word not in text, f"{path} uses {word}"


def test_a_file_that_is_too_large_is_not_even_read(tmp_path: Path) -> None:
    path = tmp_path / "music.pickle"
    with path.open("wb") as file:
        file.truncate(2**26 + 1)  # sparse: takes no room
    with pytest.raises(DataError, match="at most 67108864 bytes"):
        load_music(path)


@pytest.mark.parametrize(
    "note",
    [
        scalar(72).replace(b"i8", b"f8"),
        scalar(72).replace(b"i8", b"O8"),
        scalar(72).replace(b"U\x08", b"U\x07", 1),
        scalar(72).replace(DTYPE, b"N"),
        scalar(72).replace(DTYPE, b"cnumpy\ndtype\n"),
        DTYPE.replace(b"<", b"!"),
        DTYPE.replace(b"tb", b"t0Nb"),
        b"cnumpy\ndtype\n)R",
        b"cnumpy\ndtype\nNR",
        b"NNR",
    ],
)
def test_stubs_take_integers_only(tmp_path: Path, note: bytes) -> None:
    with pytest.raises(DataError, match="not a sound pickle"):
        read_pickle(file_of(tmp_path, original(note)))


@pytest.mark.parametrize("note", [20, 109, 0, -1, 2**62])
def test_notes_out_of_range(tmp_path: Path, note: int) -> None:
    with pytest.raises(DataError, match=r"piece 0 of train, step 0: a note must be from 21 to 108"):
        load_music(file_of(tmp_path, original(scalar(note))))
    plain = pickle.dumps({part: [[(note,)]] for part in SPLITS}, 4)
    with pytest.raises(DataError, match=r"music\.pickle: .*(a note must be|is refused)"):
        load_music(file_of(tmp_path, plain))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([], "must be a dict of lists"),
        ({"train": [], "valid": []}, "must be a dict of lists"),
        (PIECES | {"train": ()}, "must be a dict of lists"),
        (PIECES | {"train": []}, "train has no piece"),
        (PIECES | {"valid": [[]]}, "piece 0 of valid must be a list of steps"),
        (PIECES | {"valid": [(60, 61)]}, "piece 0 of valid must be a list of steps, got tuple"),
        (PIECES | {"test": [[(60,)], [60]]}, "piece 1 of test, step 0 must be a tuple"),
        (PIECES | {"test": [[("60",)]]}, "a note must be from 21 to 108, got str"),
        (PIECES | {"test": [[(None,)]]}, "a note must be from 21 to 108, got NoneType"),
    ],
)
def test_wrong_structure(tmp_path: Path, content: object, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        load_music(file_of(tmp_path, pickle.dumps(content, 2)))


GOOD = original(scalar(72))


def test_truncated(tmp_path: Path) -> None:
    for spoiled in truncations(GOOD, 100):
        with pytest.raises(DataError, match=r"music\.pickle"):
            load_music(file_of(tmp_path, spoiled))


def test_bit_flips_give_music_or_a_clear_error(tmp_path: Path) -> None:
    for spoiled in bit_flips(GOOD, 600):
        found = outcome(load_music, file_of(tmp_path, spoiled))
        if isinstance(found, str):
            assert "music.pickle: " in found
        else:
            assert {len(part) for part in (found.train, found.valid, found.test)} == {1}


@given(
    st.lists(
        st.one_of(
            st.sampled_from([bytes([code]) for code in (*INSTRUCTIONS, ord("."))]),
            st.sampled_from([DTYPE, scalar(60), b"U\x05train", b"U\x04test", b"K\x3c"]),
            st.binary(max_size=3),
        ),
        max_size=30,
    )
)
@example([b"}", b"."])
def test_any_program_gives_data_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.pickle"
    path.write_bytes(b"".join(parts))
    outcome(read_pickle, path)


def test_the_two_machines_agree(tmp_path: Path) -> None:
    """Ours and Python's, on data that both can read."""
    rng = np.random.default_rng(0)
    pieces = {
        part: [[tuple(rng.integers(21, 109, rng.integers(0, 5)).tolist()) for _ in range(50)]]
        for part in SPLITS
    }
    for protocol in (2, 3, 4, 5):
        data = pickle.dumps(pieces, protocol)
        assert read_pickle(file_of(tmp_path, data)) == pickle.load(io.BytesIO(data)) == pieces
