import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from lpunits.paper.data import load, load_music, music, verify
from lpunits.paper.data.midi import write_midi
from lpunits.paper.data.sources import DataError
from paper.data.damage import bit_flips

ROLL = np.eye(88, dtype=np.uint8)[[0, 40, 87]]


def write(path: Path, **changes: object) -> Path:
    """A file of one piece in each split."""
    cells = {}
    for part in music.SPLITS:
        pieces = changes.get(part, [ROLL])
        if isinstance(pieces, list):
            cells[f"{part}data"] = np.empty((1, len(pieces)), object)
            cells[f"{part}data"][0, :] = pieces
        else:
            cells[f"{part}data"] = pieces
    savemat(path, cells)
    return path


def test_load_music(tmp_path: Path) -> None:
    found = load_music(write(tmp_path / "mine.mat", train=[ROLL, ROLL[:2]]))
    assert found.name == "mine"
    assert [len(roll) for roll in found.train.features] == [3, 2]
    assert found.train.features is found.train.targets
    roll = found.train.features[0]
    assert roll.dtype == torch.float32
    np.testing.assert_array_equal(roll.numpy(), ROLL)
    with pytest.raises(DataError, match=r"none\.mat: there is no such file"):
        load_music(tmp_path / "none.mat")


def test_a_folder_of_midi_files(tmp_path: Path) -> None:
    rolls = [torch.eye(88)[[note, note + 4]] for note in range(20)]
    for i, roll in enumerate(rolls):
        write_midi(tmp_path / f"{i:02}.mid", roll)
    (tmp_path / "notes.txt").write_text("no music")
    found = load_music(tmp_path)
    assert [len(part) for part in (found.train, found.valid, found.test)] == [14, 3, 3]
    pieces = [roll for part in (found.train, found.valid, found.test) for roll in part.features]
    firsts = sorted(int(roll[0].argmax()) for roll in pieces)
    assert firsts == list(range(20)), "every piece is in one part"
    assert load_music(tmp_path).checksum == found.checksum
    for part, numbers in {"train": (3, 5), "valid": (1,), "test": (2,)}.items():
        (tmp_path / part).mkdir()
        for i in numbers:
            write_midi(tmp_path / part / f"{i}.midi", rolls[i])
    chosen = load_music(tmp_path)
    assert [int(roll[0].argmax()) for roll in chosen.train.features] == [3, 5]
    (tmp_path / "test" / "2.midi").unlink()
    with pytest.raises(DataError, match=r"at least 3 in the folder itself, got none for test"):
        load_music(tmp_path)


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([ROLL[:, :87]], r"piece 0 of train must have the shape \(steps, 88\), got \(3, 87\)"),
        ([ROLL, ROLL[:0]], r"piece 1 of train must have the shape \(steps, 88\), got \(0, "),
        ([ROLL * 2], "piece 0 of train must hold 0 and 1 only, got 2"),
        ([-ROLL.astype(np.int8)], "must hold 0 and 1 only, got -1"),
        ([ROLL * np.nan], "must hold 0 and 1 only, got nan"),
        (["text"], "traindata/0 must be an array of real numbers"),
        ([ROLL * 1j], "traindata/0 must be an array of real numbers"),
        (ROLL, "traindata must be a cell array of at least one piano roll"),
        ([], "traindata must be a cell array of at least one piano roll"),
    ],
)
def test_wrong_rolls(tmp_path: Path, pieces: object, reason: str) -> None:
    with pytest.raises(DataError, match=rf"a\.mat: {reason}|a\.mat: .*{reason}"):
        load_music(write(tmp_path / "a.mat", train=pieces))


def test_different_music_is_refused_under_the_name_only(folder: Path) -> None:
    path = write(folder / "JSB_Chorales.mat")
    with pytest.raises(DataError, match=r"JSB_Chorales\.mat: the music has the sha256"):
        load("jsb")
    assert len(load_music(path).train) == 1


def test_missing() -> None:
    with pytest.raises(DataError, match="run `lpunits data fetch nottingham`, or get Nottingham"):
        load("nottingham")


# The real files

NEEDS = [
    "music/Nottingham.mat",
    "music/JSB_Chorales.mat",
    "music/MuseData.mat",
    "music/jsb_chorales.pickle",
]

COUNTS = {"nottingham": (694, 173, 170), "jsb": (229, 76, 77), "musedata": (524, 135, 124)}
# Nats per step of the test set, of notes that are independent and as frequent as in the training
# set.
BASELINES = {"nottingham": 10.25, "jsb": 11.06, "musedata": 11.51}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_and_the_baseline_of_note_marginals(real: Path, name: str) -> None:
    found = load(name)
    splits = found.train, found.valid, found.test
    assert tuple(map(len, splits)) == COUNTS[name]
    for split in splits:
        assert {(roll.shape[1], roll.dtype) for roll in split.features} == {(88, torch.float32)}
    # A note that is never played in the training set may be in the test set, hence not 0.
    frequency = torch.cat(found.train.features).double().mean(0).clamp(1e-6, 1 - 1e-6)
    test = torch.cat(found.test.targets).double()
    nats = torch.nn.functional.binary_cross_entropy(
        frequency.expand_as(test), test, reduction="sum"
    )
    assert nats.item() / len(test) == pytest.approx(BASELINES[name], abs=0.01)


def test_pickle_and_mat_are_equal_frame_by_frame(real: Path) -> None:
    mat = load_music(real / "music" / "JSB_Chorales.mat")
    original = load_music(real / "music" / "jsb_chorales.pickle")
    for part in music.SPLITS:
        a, b = getattr(mat, part).features, getattr(original, part).features
        assert len(a) == len(b)
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert mat.checksum == original.checksum == load("jsb").checksum


def test_named_sets_come_from_pickles_too(
    real: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LPUNITS_DATA", str(folder))
    shutil.copy(real / "music" / "jsb_chorales.pickle", folder / "JSB Chorales.pickle")
    for _ in range(2):  # parsed, then kept
        assert tuple(map(len, (load("jsb").train, load("jsb").test))) == (229, 77)


@pytest.mark.parametrize("name", ["JSB_Chorales.mat", "jsb_chorales.pickle"])
def test_no_flipped_bit_goes_unnoticed(
    real: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LPUNITS_DATA", str(folder))
    good = (real / "music" / name).read_bytes()
    expected = load_music(real / "music" / name).checksum
    refused = 0
    for spoiled in bit_flips(good, 4):
        (folder / name).write_bytes(spoiled)
        (error,) = verify("jsb").values()
        if error is None:  # a bit that means nothing: the music is the right one
            assert load_music(folder / name).checksum == expected
        refused += error is not None
    assert refused
