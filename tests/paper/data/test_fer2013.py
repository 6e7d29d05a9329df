from pathlib import Path

import numpy as np
import pytest
import torch

from lpunits.paper.data import fer2013, load
from lpunits.paper.data.fer2013 import USAGES, read_csv
from lpunits.paper.data.sources import DataError, file_sha256
from paper.data.damage import bit_flips, outcome, truncations

COUNT = 12
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (COUNT, 48, 48), np.uint8)
LABELS = np.arange(COUNT, dtype=np.uint8) % 7
USAGE = np.arange(COUNT, dtype=np.uint8) % 3


def write_npz(path: Path) -> Path:
    np.savez_compressed(path, images=IMAGES, labels=LABELS, usage=USAGE)
    return path


def csv_lines() -> list[str]:
    faces = zip(LABELS, IMAGES, USAGE, strict=True)
    pixels = (" ".join(map(str, image.ravel())) for image in IMAGES)
    return ["emotion,pixels,Usage"] + [
        f"{label},{text},{USAGES[use]}" for (label, _, use), text in zip(faces, pixels, strict=True)
    ]


def check(found: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(found["images"], IMAGES)
    np.testing.assert_array_equal(found["labels"], LABELS)
    np.testing.assert_array_equal(found["usage"], USAGE)


def test_npz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_npz(tmp_path / "a.npz")
    monkeypatch.setattr(fer2013, "NPZ_SHA256", file_sha256(path))
    check(fer2013.read(path))
    with path.open("ab") as file:
        file.write(b"!")
    with pytest.raises(DataError, match=rf"a\.npz: .*sha256.*expected {fer2013.NPZ_SHA256}"):
        fer2013.read(path)


def test_csv_of_both_forms(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n".join(csv_lines()) + "\n")
    check(read_csv(path, None))
    swapped = ["emotion, Usage, pixels"]
    for line in csv_lines()[1:]:
        label, pixels, usage = line.split(",")
        swapped.append(f"{label},{usage},{pixels}")
    path.write_bytes("\r\n".join(swapped).encode())
    check(read_csv(path, None))


def changed(line: int, cell: int, value: str) -> str:
    lines = csv_lines()
    cells = lines[line].split(",")
    cells[cell] = value
    lines[line] = ",".join(cells)
    return "\n".join(lines)


PIXELS = " ".join(["7"] * 2304)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"\(0, 0, 0\)"),
        ("a,b,c\n1,2,3\n", "face 0 is invalid"),
        (changed(3, 0, "7"), "face 2 is invalid .emotion must be from 0 to 6, got 7"),
        (changed(3, 0, "-1"), "face 2 is invalid .emotion must be from 0 to 6"),
        (changed(3, 0, "nan"), "face 2 is invalid .invalid literal"),
        (changed(3, 1, PIXELS + " 7"), "face 2 is invalid .2304 pixels are expected, got 2305"),
        (changed(3, 1, PIXELS[:-1] + "256"), "face 2 is invalid .bytes must be in range"),
        (changed(3, 1, PIXELS[:-1] + "nan"), "face 2 is invalid .invalid literal"),
        (changed(3, 1, ""), "face 2 is invalid .2304 pixels are expected, got 0"),
        (changed(3, 2, "Test"), "face 2 is invalid .Usage must be one of"),
        (changed(3, 1, "\u00e9"), "is invalid .'ascii' codec"),
        ("\n".join(csv_lines()[:-1]), r"faces of .* are expected, got \(4, 4, 3\)"),
    ],
)
def test_wrong_csv(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=rf"a\.csv: .*{reason}"):
        read_csv(tmp_path / "a.csv", (4, 4, 4))


def test_damaged_csv(tmp_path: Path) -> None:
    path, good = tmp_path / "a.csv", "\n".join(csv_lines()).encode()
    for spoiled in truncations(good, 20):
        path.write_bytes(spoiled)
        with pytest.raises(DataError, match=r"a\.csv: "):
            read_csv(path, (4, 4, 4))
    for spoiled in bit_flips(good, 40):
        path.write_bytes(spoiled)
        found = outcome(lambda path: read_csv(path, (4, 4, 4)), path)
        assert isinstance(found, dict) or found.startswith(f"{path}: ")


def test_csv_by_name_and_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fer2013, "COUNTS", (4, 4, 4))
    (folder / "fer2013.csv").write_text("\n".join(csv_lines()))
    for _ in range(2):
        found = load("fer2013", normalise=False)
        np.testing.assert_array_equal(found.train.targets.numpy(), LABELS[USAGE == 0])
        expected = IMAGES[USAGE == 2].reshape(-1, 2304) / 255
        np.testing.assert_allclose(found.test.features.numpy(), expected, rtol=1e-6)


def test_folds_are_stratified_and_cover_everything() -> None:
    labels = RNG.choice(7, 2003, p=[0.4, 0.02, 0.08, 0.1, 0.1, 0.1, 0.2]).astype(np.uint8)
    folds = fer2013.folds(labels, 0)
    sizes = np.bincount(folds)
    assert sizes.max() - sizes.min() <= 1
    for k in range(7):
        counts = np.bincount(folds[labels == k], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert (folds != fer2013.folds(labels, 1)).any()
    np.testing.assert_array_equal(folds, fer2013.folds(labels, 0))


def test_missing() -> None:
    with pytest.raises(DataError, match=r"get fer2013\.csv from Kaggle"):
        load("fer2013")


@pytest.mark.parametrize("fold", [5, -1, True])
def test_wrong_fold(fold: object) -> None:
    with pytest.raises(ValueError, match="fold must be a number from 0 to 4, got"):
        load("fer2013", fold=fold)


# The real file

NEEDS = ["fer2013/fer2013_48x48.npz"]


def test_splits(real: Path) -> None:
    found = load("fer2013")
    splits = found.train, found.valid, found.test
    assert tuple(map(len, splits)) == (28_709, 3_589, 3_589)
    counts = [torch.bincount(split.targets).tolist() for split in splits]
    assert counts[0] == [3995, 436, 4097, 7215, 4830, 3171, 4965]
    assert np.sum(counts, 0).tolist() == [4953, 547, 5121, 8989, 6077, 4002, 6198]
    features = found.valid.features.double()
    assert features.shape == (3_589, 2304)
    assert features.mean(1).abs().max() < 1e-5
    deviations = features.std(1, correction=0)
    flat = deviations == 0
    assert flat.sum() < 10
    assert (deviations[~flat] - 1).abs().max() < 1e-5


def test_five_folds(real: Path) -> None:
    found = load("fer2013", fold=4, normalise=False)
    assert tuple(map(len, (found.train, found.valid, found.test))) == (25_839, 6_459, 3_589)
    shares = [torch.bincount(s.targets) / len(s) for s in (found.train, found.valid)]
    torch.testing.assert_close(shares[0], shares[1], atol=2e-4, rtol=0)
