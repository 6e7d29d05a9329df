"""The Toronto Face Database: 48 x 48 grey faces, 7 expressions, five official folds.

It is not public; its owners send ``TFD_48x48.mat`` on request. The file has no published
checksum, so it is read as untrusted, in a child process, and its structure is checked.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from lpunits.paper.data import untrusted
from lpunits.paper.data.dataset import Dataset, Info, split
from lpunits.paper.data.sources import Arrays, DataError, Source

EXPRESSIONS = ("anger", "disgust", "fear", "happiness", "sadness", "surprise", "neutral")


def load(*, fold: int = 0, normalise: bool = True) -> Dataset[Tensor]:
    """The labelled faces of one official fold: float32 rows of 2304 pixels.

    Args:
        fold: One of the five official folds, 0 to 4.
        normalise: Centre the images and normalise their contrast, see :func:`normalised`;
            otherwise pixels are from 0 to 1.
    """
    check_fold(fold)
    arrays, digest = SOURCE.cached_arrays()
    images = pixels(arrays["images"], normalise)
    parts = []
    for number, name in ((1, "train"), (2, "valid"), (3, "test")):
        rows = arrays["folds"][:, fold] == number
        if not rows.any():
            raise DataError(f"{SOURCE.find()}: fold {fold} has no labelled face in its {name} part")
        parts.append(split(images[rows], arrays["labels"][rows]))
    return TFD.dataset(*parts, classes=EXPRESSIONS, shape=(48, 48), checksum=digest)


def check_fold(fold: int) -> None:
    """Raise an error for what is not one of five folds."""
    if isinstance(fold, bool) or fold not in range(5):
        raise ValueError(f"fold must be a number from 0 to 4, got {fold!r}")


def pixels(images: npt.NDArray[np.uint8], normalise: bool) -> npt.NDArray[np.float32]:
    """Images as rows of floats, from 0 to 1 or :func:`normalised`."""
    rows = np.divide(images.reshape(len(images), -1), np.float32(255), dtype=np.float32)
    return normalised(rows) if normalise else rows


def normalised(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    r"""Global contrast normalisation, in place: each image gets mean 0 and standard deviation 1.

    .. math:: x \leftarrow (x - \bar x) / \sqrt{\textstyle\frac{1}{n} \sum_i (x_i - \bar x)^2}

    An image of one grey level becomes 0. Subtracting 127.5 first, as pylearn2's loader does, would
    change nothing.
    """
    rows -= rows.mean(1, keepdims=True)
    deviation = np.sqrt(np.einsum("ni,ni->n", rows, rows) / rows.shape[1])
    rows /= np.where(deviation < 1e-4, np.float32(np.inf), deviation)[:, None]
    return rows


def read(path: Path) -> Arrays:
    """The labelled faces of the owners' file, checked, see :func:`checked`."""
    return checked(path, untrusted.read(path, ("images", "labs_ex", "folds"), limit=2**30))


def checked(path: Path, arrays: Arrays) -> Arrays:
    """The labelled faces: uint8 images, labels from 0, and per fold 1, 2, 3 for the three splits.

    The file has ``images`` (n, 48, 48), ``labs_ex`` (n, 1) from 1 to 7 or -1 without a label, and
    ``folds`` (n, 5) of 1 (train), 2 (valid), 3 (test), or 0 for a face that the fold leaves out.
    """
    images, labels, folds = (arrays.get(key, np.empty(0)) for key in ("images", "labs_ex", "folds"))
    if images.ndim != 3 or images.shape[1:] != (48, 48) or images.dtype != np.uint8:
        raise DataError(
            f"{path}: images must be (n, 48, 48) of uint8, got {images.shape} of {images.dtype}"
        )
    if labels.size != len(images) or folds.shape != (len(images), 5):
        raise DataError(
            f"{path}: {len(images)} images need labs_ex of the shape {(len(images), 1)} and folds "
            f"of {(len(images), 5)}, got {labels.shape} and {folds.shape}"
        )
    labels = labels.reshape(-1)
    labelled = labels != -1
    labels, folds = labels[labelled], folds[labelled]
    check_labels(f"{path}, labs_ex", labels, 1, 7)
    check_labels(f"{path}, folds", folds.reshape(-1), 0, 3)
    return {
        "images": np.ascontiguousarray(images[labelled]),
        "labels": labels.astype(np.uint8) - np.uint8(1),
        "folds": np.ascontiguousarray(folds.astype(np.uint8)),
    }


def check_labels(where: object, labels: npt.NDArray[Any], low: int, high: int) -> None:
    """Raise an error for the first label that is not an integer from ``low`` to ``high``."""
    valid = (labels >= low) & (labels <= high) & (labels == np.floor(labels))  # NaN is invalid
    for wrong in np.flatnonzero(~valid)[:1]:
        raise DataError(
            f"{where}: a label must be an integer from {low} to {high}, got "
            f"{labels[wrong]} for example {wrong}"
        )


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
