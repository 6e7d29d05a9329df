from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from lpunits.paper.data import load, verify
from lpunits.paper.data.sources import DataError
from lpunits.paper.data.tfd import checked, normalised

COUNT = 60
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (COUNT, 48, 48), np.uint8)
LABELS = np.where(np.arange(COUNT) % 4 == 3, -1, np.arange(COUNT) % 7 + 1)
FOLDS = np.stack([np.where(LABELS > 0, (np.arange(COUNT) + k) % 3 + 1, 0) for k in range(5)], 1)


ARRAYS = {"images": IMAGES, "labs_ex": LABELS[:, None], "folds": FOLDS}


def write(folder: Path, **changes: object) -> Path:
    """A file of the structure of the owners'."""
    arrays = ARRAYS | {"labs_id": LABELS} | changes
    path = folder / "TFD_48x48.mat"
    savemat(path, {k: v for k, v in arrays.items() if v is not None}, do_compression=True)
    return path


@pytest.mark.parametrize("dtype", [np.int8, np.float64])
def test_folds(folder: Path, dtype: type) -> None:
    write(folder, labs_ex=LABELS[:, None].astype(dtype), folds=FOLDS.astype(dtype))
    for fold in range(5):
        found = load("tfd", fold=fold, normalise=False)
        splits = found.train, found.valid, found.test
        for number, split in enumerate(splits, start=1):
            rows = (LABELS > 0) & (FOLDS[:, fold] == number)
            assert split.features.dtype == torch.float32
            np.testing.assert_array_equal(split.targets.numpy(), LABELS[rows] - 1)
            np.testing.assert_allclose(
                split.features.numpy(), IMAGES[rows].reshape(-1, 2304) / 255, rtol=1e-6
            )
        assert sum(map(len, splits)) == (LABELS > 0).sum()
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
        ({"images": IMAGES[:, :, :47]}, r"images must be \(n, 48, 48\) of uint8, got"),
        ({"images": IMAGES.reshape(COUNT, -1)}, r"images must be \(n, 48, 48\) of uint8, got"),
        ({"images": IMAGES / 255}, r"images must be .* got \(60, 48, 48\) of float64"),
        ({"labs_ex": LABELS[:50, None]}, r"60 images need labs_ex of the shape \(60, 1\)"),
        ({"folds": FOLDS[:, :4]}, r"folds of \(60, 5\), got \(60, 1\) and \(60, 4\)"),
        (
            {"labs_ex": np.where(LABELS == 7, 8, LABELS)[:, None]},
            "from 1 to 7, got 8 for example",
        ),
        ({"labs_ex": np.where(LABELS == 7, 0, LABELS)[:, None]}, "from 1 to 7, got 0 for example"),
        ({"labs_ex": np.where(LABELS == 7, np.nan, LABELS)[:, None]}, "from 1 to 7, got nan"),
        (
            {"labs_ex": np.where(LABELS == 7, 6.5, LABELS)[:, None]},
            "labs_ex: .* an integer from 1 to 7, got 6.5",
        ),
        ({"folds": FOLDS + 1}, "folds: a label must be an integer from 0 to 3, got 4"),
    ],
)
def test_wrong_arrays(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(DataError, match=rf"TFD_48x48\.mat.*{reason}"):
        checked(Path("TFD_48x48.mat"), ARRAYS | changes)


def test_a_fold_without_faces_and_a_missing_array(folder: Path) -> None:
    path = write(folder, folds=np.where(FOLDS == 3, 1, FOLDS))
    with pytest.raises(DataError, match=rf"{path}: fold 0 has no labelled face in its test part"):
        load("tfd")
    write(folder, folds=None, labs_ex=None)
    with pytest.raises(DataError, match=rf"{path}: .*has no array named labs_ex, folds"):
        load("tfd")


def test_damage(folder: Path) -> None:
    path = write(folder)
    good = path.read_bytes()
    half = len(good) // 2
    for spoiled in (b"", good[:half], good[:half] + bytes(8) + good[half + 8 :]):
        path.write_bytes(spoiled)
        with pytest.raises(DataError, match=r"TFD_48x48\.mat: not a MATLAB file, or a damaged one"):
            load("tfd")
        assert None not in verify("tfd").values()


@pytest.mark.parametrize("fold", [5, -1, 0.5, True, "0"])
def test_wrong_fold(fold: object) -> None:
    with pytest.raises(ValueError, match="fold must be a number from 0 to 4, got"):
        load("tfd", fold=fold)


def test_missing() -> None:
    with pytest.raises(DataError, match=r"ask its owners .* and put it into the folder"):
        load("tfd")
