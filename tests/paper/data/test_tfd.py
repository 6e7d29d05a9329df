from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from lpunits.paper.data import load, verify
from lpunits.paper.data.sources import DataError
from lpunits.paper.data.tfd import normalised
from paper.data.damage import bit_flips, truncations

COUNT = 60
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (COUNT, 48, 48), np.uint8)
LABELS = np.where(np.arange(COUNT) % 4 == 3, -1, np.arange(COUNT) % 7 + 1)
FOLDS = np.stack([np.where(LABELS > 0, (np.arange(COUNT) + k) % 3 + 1, 0) for k in range(5)], 1)


def write(folder: Path, *, compress: bool = True, **changes: object) -> Path:
    """A file of the structure of the owners'."""
    arrays = {"images": IMAGES, "labs_ex": LABELS[:, None], "folds": FOLDS, "labs_id": LABELS}
    path = folder / "TFD_48x48.mat"
    arrays = {key: value for key, value in (arrays | changes).items() if value is not None}
    savemat(path, arrays, do_compression=compress)
    return path


@pytest.mark.parametrize("fold", range(5))
@pytest.mark.parametrize("dtype", [np.int8, np.float64])
def test_folds(folder: Path, fold: int, dtype: type) -> None:
    write(folder, labs_ex=LABELS[:, None].astype(dtype), folds=FOLDS.astype(dtype))
    found = load("tfd", fold=fold, normalise=False)
    for number, split in ((1, found.train), (2, found.valid), (3, found.test)):
        rows = (LABELS > 0) & (FOLDS[:, fold] == number)
        assert split.features.dtype == torch.float32
        np.testing.assert_array_equal(split.targets.numpy(), LABELS[rows] - 1)
        np.testing.assert_allclose(
            split.features.numpy(), IMAGES[rows].reshape(-1, 2304) / 255, rtol=1e-6
        )
    assert sum(map(len, (found.train, found.valid, found.test))) == (LABELS > 0).sum()
    assert len(found.classes) == 7


def test_preprocessing(folder: Path) -> None:
    write(folder)
    features = load("tfd").train.features.double()
    assert features.mean(1).abs().max() < 1e-5
    assert (features.std(1, correction=0) - 1).abs().max() < 1e-5


def test_contrast_normalisation() -> None:
    image = RNG.random(2304).astype(np.float32)
    rows = np.stack([image, 0.5 * image + 0.2, np.full(2304, 0.3, np.float32)])
    out = normalised(rows.copy())
    np.testing.assert_allclose(out[0], (image - image.mean()) / image.std(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out[0], out[1], atol=1e-4)  # brightness and contrast are gone
    assert (out[2] == 0).all()  # an image of one grey


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"images": None}, "has no array named images"),
        ({"folds": None, "labs_ex": None}, "has no array named labs_ex, folds"),
        ({"images": IMAGES[:, :, :47]}, r"images must be \(n, 48, 48\) of uint8, got"),
        ({"images": IMAGES.reshape(COUNT, -1)}, r"images must be \(n, 48, 48\) of uint8, got"),
        ({"images": IMAGES / 255}, r"images must be .* got \(60, 48, 48\) of float64"),
        ({"labs_ex": LABELS[:50, None]}, r"60 images need labs_ex of the shape \(60, 1\)"),
        ({"folds": FOLDS[:, :4]}, r"folds of \(60, 5\), got \(60, 1\) and \(60, 4\)"),
        ({"labs_ex": np.where(LABELS == 7, 8, LABELS)[:, None]}, "from 1 to 7, got 8 for example"),
        ({"labs_ex": np.where(LABELS == 7, 0, LABELS)[:, None]}, "from 1 to 7, got 0 for example"),
        ({"labs_ex": np.where(LABELS == 7, np.nan, LABELS)[:, None]}, "from 1 to 7, got nan"),
        ({"labs_ex": np.where(LABELS == 7, 6.5, LABELS)[:, None]}, "labs_ex must be whole numbers"),
        ({"folds": FOLDS + 1}, "folds: a label must be from 0 to 3, got 4"),
        ({"folds": np.where(FOLDS == 3, 1, FOLDS)}, "fold 0 has no labelled face in its test part"),
    ],
)
def test_wrong_files(folder: Path, changes: dict[str, object], reason: str) -> None:
    write(folder, **changes)
    with pytest.raises(DataError, match=rf"TFD_48x48\.mat.*{reason}"):
        load("tfd")


def test_damage(folder: Path) -> None:
    path = write(folder)
    good = path.read_bytes()
    for spoiled in truncations(good, 10):
        path.write_bytes(spoiled)
        with pytest.raises(DataError, match=r"TFD_48x48\.mat: "):
            load("tfd")
    whole = load_checksums(path, good)
    for spoiled in bit_flips(good, 50):
        path.write_bytes(spoiled)
        (error,) = verify("tfd").values()
        # zlib has a checksum: what passes has a bit turned that means nothing, as in the header.
        assert error is not None or load_checksums(path, spoiled) == whole


def load_checksums(path: Path, data: bytes) -> list[float]:
    path.write_bytes(data)
    found = load("tfd")
    return [s.features.double().abs().sum().item() for s in (found.train, found.valid, found.test)]


@pytest.mark.parametrize("fold", [5, -1, 0.5, True, "0"])
def test_wrong_fold(fold: object) -> None:
    with pytest.raises(ValueError, match="fold must be a number from 0 to 4, got"):
        load("tfd", fold=fold)


def test_missing() -> None:
    with pytest.raises(DataError, match=r"ask its owners .* and put it into the folder"):
        load("tfd")
