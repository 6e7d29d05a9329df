"""Forest Covertype: 581,012 plots of forest, 54 attributes, 7 classes of trees.

The paper's split, "DS2-581", is not published. This is **not** DS2-581 but a random split that also
has more than 500,000 training rows. The ten continuous columns are standardised before the
principal components are computed; otherwise two of them would dominate.

A row has ten continuous columns, one of 4 wilderness areas and one of 40 soil types. It is stored
as ten numbers and one of 160 *kinds*; the 54 x 54 covariance comes from sums over each kind.
"""

from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from lpunits.paper.data import randomness
from lpunits.paper.data.dataset import Dataset, Info, split
from lpunits.paper.data.sources import Arrays, Source, check_sha256, read_bytes, sha256

HELD_OUT = 40_000, 40_000  # rows of the validation and the test set; 501,012 are left for training
TABR = 92_962, 116_203  # as many as in the comparisons of TabR and TabM; 371,847 are left

# The indicator columns (4 areas, 40 soils) of each kind; kind = 40 area + soil.
INDICATORS = np.concatenate(
    [np.repeat(np.eye(4, dtype=np.float32), 40, 0), np.tile(np.eye(40, dtype=np.float32), (4, 1))],
    axis=1,
)


def load(
    *,
    components: int | None = 16,
    whiten: bool = False,
    binary: bool = False,
    tabr: bool = False,
    seed: int = 0,
) -> Dataset[Tensor]:
    """501,012 training, 40,000 validation and 40,000 test rows of float32.

    Means, scales and principal components are computed from the training rows alone.

    Args:
        components: The number of principal components, from 1 to 54; or None for the 54 columns,
            the ten continuous ones standardised.
        whiten: Divide each component by its standard deviation.
        binary: Two classes, lodgepole pine (class 2, 48.8 %) and the rest, instead of 7.
        tabr: As many rows in each part as where TabR and TabM are compared: 371,847, 92,962 and
            116,203; which they are is drawn by our seed.
        seed: The random seed of the split, which is the same on every platform.
    """
    if components is not None and components not in range(1, 55):
        raise ValueError(f"components must be a number from 1 to 54, or None, got {components!r}")
    if whiten and components is None:
        raise ValueError("whiten must be False without components, got True")
    table, _ = SOURCE.cached_arrays()
    order = randomness.permutation(len(table["cover"]), seed)
    valid, test = TABR if tabr else HELD_OUT
    parts = np.split(order, [len(order) - valid - test, len(order) - test])
    cover = table["cover"] == 2 if binary else table["cover"] - 1
    continuous, kinds = table["continuous"].astype(np.float32), table["kind"]
    fitted = continuous[parts[0]].astype(np.float64)
    continuous -= fitted.mean(0).astype(np.float32)
    continuous /= fitted.std(0).astype(np.float32)
    if components is not None:
        mean, axes = principal_axes(continuous[parts[0]], kinds[parts[0]], components)
        offsets = INDICATORS @ axes[10:] - mean @ axes
        features = continuous @ axes[:10].astype(np.float32)
        features += offsets.astype(np.float32)[kinds]
        if whiten:
            features /= features[parts[0]].std(0, dtype=np.float64).astype(np.float32)
    else:
        features = np.concatenate([continuous, INDICATORS[kinds]], axis=1)
    return COVERTYPE.dataset(
        *(split(features[rows], cover[rows]) for rows in parts),
        classes=("the rest", CLASSES[1]) if binary else CLASSES,
        shape=(features.shape[1],),
        checksum=CONTENT,
    )


def principal_axes(
    continuous: npt.NDArray[np.float32], kinds: npt.NDArray[np.uint8], components: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The mean of the 54 columns, and their first principal axes as the columns of a matrix.

    The largest entry of each axis is positive, which fixes its sign.
    """
    c = continuous.astype(np.float64)
    counts = np.bincount(kinds, minlength=160)
    sums = np.stack([np.bincount(kinds, column, minlength=160) for column in c.T])
    cross = sums @ INDICATORS
    moments = np.block([[c.T @ c, cross], [cross.T, (INDICATORS.T * counts) @ INDICATORS]])
    mean = np.concatenate([sums.sum(1), counts @ INDICATORS]) / len(c)
    _, axes = np.linalg.eigh(moments / len(c) - np.outer(mean, mean))
    axes = axes[:, ::-1][:, :components]
    return mean, axes * np.sign(axes[abs(axes).argmax(0), np.arange(components)])


def read(path: Path) -> Arrays:
    """The table of the published ``covtype.data``, plain or in gzip."""
    data = read_bytes(path, limit=2**27)
    check_sha256(path, sha256(data), CONTENT)
    table = np.loadtxt(BytesIO(data), np.int16, delimiter=",")
    kind = 40 * table[:, 10:14].argmax(1) + table[:, 14:54].argmax(1)
    return {
        "continuous": np.ascontiguousarray(table[:, :10]),
        "kind": kind.astype(np.uint8),
        "cover": table[:, 54].astype(np.uint8),
    }


# sha256 of the uncompressed file, so that any compression is accepted.
CONTENT = "0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945"
CLASSES = (
    "spruce/fir",
    "lodgepole pine",
    "ponderosa pine",
    "cottonwood/willow",
    "aspen",
    "Douglas fir",
    "krummholz",
)

SOURCE = Source(
    dataset="covertype",
    folder="covtype",
    names=("covtype.data.gz", "covtype.data"),
    read=read,
    url="https://ndownloader.figshare.com/files/5976039",
    known_hash="sha256:614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
    manual="download covtype.data.gz from https://archive.ics.uci.edu/dataset/31 yourself",
)

COVERTYPE = Info(
    name="covertype",
    about="forest plots, 54 attributes (or 16 components), 7 classes: 501,012 / 40,000 / 40,000",
    size="11 MB",
    licence="CC BY 4.0 (J. A. Blackard, Colorado State University; UCI)",
    source="https://archive.ics.uci.edu/dataset/31/covertype",
    load=load,
    files=(SOURCE,),
)
