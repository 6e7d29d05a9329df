"""The Toronto Face Database: 48 x 48 grey faces, 7 expressions, five official folds.

It is not public; its owners send ``TFD_48x48.mat`` to people who ask.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from lpunits.paper.data.dataset import Dataset, Info, check_labels, split
from lpunits.paper.data.matlab import read_mat
from lpunits.paper.data.sources import Arrays, DataError, Source, cached, file_sha256

EXPRESSIONS = ("anger", "disgust", "fear", "happiness", "sadness", "surprise", "neutral")


def load(*, fold: int = 0, normalise: bool = True) -> Dataset[Tensor]:
    """The labelled faces of one official fold: float32 rows of 2304 pixels.

    Args:
        fold: One of the five official folds, 0 to 4.
        normalise: Centre the images and normalise their contrast, see :func:`normalised`;
            otherwise pixels are from 0 to 1.
    """
    check_fold(fold)
    path = SOURCE.find()
    digest = file_sha256(path)
    arrays = cached("tfd", f"1 {digest}", lambda: SOURCE.read(path))
    images = pixels(arrays["images"], normalise)
    parts = []
    for number, name in ((1, "train"), (2, "valid"), (3, "test")):
        rows = arrays["folds"][:, fold] == number
        if not rows.any():
            raise DataError(f"{path}: fold {fold} has no labelled face in its {name} part")
        parts.append(split(images[rows], arrays["labels"][rows]))
    return TFD.dataset(
        parts[0], parts[1], parts[2], classes=EXPRESSIONS, shape=(48, 48), checksum=digest
    )


def check_fold(fold: int) -> None:
    """Refuses what is not one of five folds."""
    if isinstance(fold, bool) or fold not in range(5):
        raise ValueError(f"fold must be a number from 0 to 4, got {fold!r}")


def pixels(images: npt.NDArray[np.uint8], normalise: bool) -> npt.NDArray[np.float32]:
    """Images as rows of floats, from 0 to 1 or :func:`normalised`."""
    rows = np.divide(images.reshape(len(images), -1), np.float32(255), dtype=np.float32)
    return normalised(rows) if normalise else rows


def normalised(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    r"""Each image centred, then global contrast normalisation, in place: mean 0, deviation 1.

    .. math:: x \leftarrow (x - \bar x) / \sqrt{\textstyle\frac{1}{n} \sum_i (x_i - \bar x)^2}

    An image of one grey becomes 0. Centring all images by 127.5 first, as pylearn2's loader does,
    would change nothing.
    """
    rows -= rows.mean(1, keepdims=True)
    deviation = np.sqrt(np.einsum("ni,ni->n", rows, rows) / rows.shape[1])
    rows /= np.where(deviation < 1e-4, np.float32(np.inf), deviation)[:, None]
    return rows


def read(path: Path) -> Arrays:
    """The labelled faces of the owners' file: uint8 images, labels from 0, folds of 1, 2, 3.

    The file has ``images`` (n, 48, 48), ``labs_ex`` (n, 1) from 1 to 7 or -1 without a label, and
    ``folds`` (n, 5) of 1 (train), 2 (valid), 3 (test), or 0 for a face that the fold leaves out.
    """
    found = read_mat(path, ("images", "labs_ex", "folds"), limit=2**30)
    images, folds = found["images"], found["folds"]
    labels = found["labs_ex"].reshape(-1)
    if images.ndim != 3 or images.shape[1:] != (48, 48) or images.dtype != np.uint8:
        raise DataError(
            f"{path}: images must be (n, 48, 48) of uint8, got {images.shape} of {images.dtype}"
        )
    if labels.shape != images.shape[:1] or folds.shape != (len(images), 5):
        raise DataError(
            f"{path}: {len(images)} images need labs_ex of the shape {(len(images), 1)} and folds "
            f"of {(len(images), 5)}, got {found['labs_ex'].shape} and {folds.shape}"
        )
    for key, values in (("labs_ex", labels), ("folds", folds)):
        if values.dtype.kind not in "iuf":
            raise DataError(f"{path}: {key} must be numbers, got {values.dtype}")
    labelled = labels != -1
    labels, folds = labels[labelled], folds[labelled]
    check_labels(f"{path}, labs_ex", labels, 1, 7)
    _check_whole(path, "labs_ex", labels)
    check_labels(f"{path}, folds", folds.reshape(-1), 0, 3)
    _check_whole(path, "folds", folds)
    return {
        "images": np.ascontiguousarray(images[labelled]),
        "labels": labels.astype(np.uint8) - np.uint8(1),
        "folds": np.ascontiguousarray(folds.astype(np.uint8)),
    }


def _check_whole(path: Path, key: str, values: npt.NDArray[Any]) -> None:
    if (values != np.floor(values)).any():
        raise DataError(f"{path}: {key} must be whole numbers")


SOURCE = Source(
    dataset="tfd",
    folder="tfd",
    names=("TFD_48x48.mat",),
    read=read,
    manual="ask its owners (J. Susskind, A. Anderson, G. Hinton, Toronto) for TFD_48x48.mat",
)

TFD = Info(
    name="tfd",
    about="Toronto faces, 48 x 48 grey, 7 expressions, five official folds",
    size="about 240 MB",
    licence="not public; given by its owners for research",
    source="J. Susskind, A. Anderson, G. Hinton: The Toronto Face Database, UTML TR 2010-001",
    load=load,
    files=(SOURCE,),
)
