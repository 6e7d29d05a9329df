"""FER2013: 48 x 48 grey faces, 7 expressions; a substitute for the Toronto Face Database.

Its results have rows of their own in every table, and are never presented as TFD's.
"""

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from lpunits.paper.data import randomness
from lpunits.paper.data.dataset import Dataset, Info, split
from lpunits.paper.data.sources import Arrays, DataError, Source, check_sha256, file_sha256
from lpunits.paper.data.tfd import EXPRESSIONS, check_fold, pixels

USAGES = ("Training", "PublicTest", "PrivateTest")
COUNTS = (28_709, 3_589, 3_589)
# sha256 of the one known npz file. The CSV must have the published counts instead.
NPZ_SHA256 = "b6fad73949fcb5c380f92090c42e272624b15a646f31983930b4d7af0467a145"


def load(*, fold: int | None = None, normalise: bool = True, seed: int = 0) -> Dataset[Tensor]:
    """28,709 training, 3,589 validation and 3,589 test faces: float32 rows of 2304 pixels.

    Args:
        fold: None for the published split. 0 to 4 for one of five stratified folds of the
            training and validation faces: this fold is the validation set, the other four are the
            training set. The test set is always the published one.
        normalise: Centre the images and normalise their contrast, as for TFD; otherwise pixels are
            from 0 to 1.
        seed: The random seed of the folds.
    """
    if fold is not None:
        check_fold(fold)
    arrays, digest = SOURCE.cached_arrays()
    part = arrays["usage"]
    if fold is not None:
        part = np.where(part == 2, 2, 0)
        rows = np.flatnonzero(part == 0)
        part[rows] = folds(arrays["labels"][rows], seed) == fold
    images = pixels(arrays["images"], normalise)
    parts = [split(images[part == k], arrays["labels"][part == k]) for k in range(3)]
    return FER2013.dataset(*parts, classes=EXPRESSIONS, shape=(48, 48), checksum=digest)


def folds(labels: npt.NDArray[np.uint8], seed: int) -> npt.NDArray[np.int64]:
    """A fold, 0 to 4, for each face; the folds have equal shares of every class."""
    order = randomness.permutation(len(labels), seed)
    order = order[np.argsort(labels[order], kind="stable")]
    dealt = np.empty(len(labels), np.int64)
    dealt[order] = np.arange(len(labels)) % 5
    return dealt


def read(path: Path) -> Arrays:
    """The faces of the npz or CSV file, checked: uint8 images, labels 0 to 6, usage 0, 1, 2."""
    if path.suffix != ".npz":
        return read_csv(path, COUNTS)
    check_sha256(path, file_sha256(path), NPZ_SHA256)
    with np.load(path, allow_pickle=False) as archive:
        return {key: archive[key] for key in ("images", "labels", "usage")}


def read_csv(path: Path, counts: tuple[int, ...] | None) -> Arrays:
    """The faces of Kaggle's CSV files: the columns emotion, pixels and Usage, in any order."""
    if path.stat().st_size > 2**29:
        raise DataError(f"{path}: a file of at most {2**29} bytes is expected")
    images, labels, usage = bytearray(), bytearray(), bytearray()
    try:
        with path.open(encoding="ascii", newline="") as file:
            for row in csv.DictReader(file, skipinitialspace=True):
                values = bytes(map(int, row["pixels"].split()))
                if len(values) != 2304:
                    raise ValueError(f"2304 pixels are expected, got {len(values)}")
                label = int(row["emotion"])
                if label not in range(7):
                    raise ValueError(f"emotion must be from 0 to 6, got {label}")
                if row["Usage"] not in USAGES:
                    raise ValueError(f"Usage must be one of {USAGES}, got {row['Usage']!r}")
                images += values
                labels.append(label)
                usage.append(USAGES.index(row["Usage"]))
    except (ValueError, TypeError, AttributeError, KeyError, csv.Error) as error:
        raise DataError(f"{path}: face {len(labels)} is invalid ({error!s:.200})") from error
    arrays = {
        "images": np.frombuffer(images, np.uint8).reshape(-1, 48, 48),
        "labels": np.frombuffer(labels, np.uint8),
        "usage": np.frombuffer(usage, np.uint8),
    }
    found = tuple(int((arrays["usage"] == k).sum()) for k in range(3))
    if counts is not None and found != counts:
        raise DataError(f"{path}: {counts} faces of {USAGES} are expected, got {found}")
    return arrays


SOURCE = Source(
    dataset="fer2013",
    folder="fer2013",
    names=("fer2013_48x48.npz", "fer2013.csv", "icml_face_data.csv"),
    read=read,
    manual="get fer2013.csv from Kaggle (challenges in representation learning, facial expression)",
)

FER2013 = Info(
    name="fer2013",
    about="faces, 48 x 48 grey, 7 expressions, a substitute for TFD: 28,709 / 3,589 / 3,589",
    size="79-300 MB",
    licence="unclear: for local use only",
    source="I. Goodfellow et al.: Challenges in representation learning (2013), Kaggle",
    load=load,
    files=(SOURCE,),
)
