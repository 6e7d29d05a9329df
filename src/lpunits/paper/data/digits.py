"""The 8 x 8 digits of scikit-learn: a substitute for MNIST that needs no download."""

import numpy as np
from torch import Tensor

from lpunits.paper.data import randomness
from lpunits.paper.data.dataset import Dataset, Info, split
from lpunits.paper.data.sources import arrays_sha256


def load(*, seed: int = 0) -> Dataset[Tensor]:
    """1,197 training, 300 validation and 300 test images: float32 rows of 64 pixels from 0 to 1.

    Args:
        seed: The random seed of the split, which is the same on every platform.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    values = {"features": bunch.data.astype(np.float32) / 16, "targets": bunch.target}
    order = randomness.permutation(len(bunch.target), seed)
    parts = [
        split(values["features"][rows], values["targets"][rows])
        for rows in np.split(order, [1197, 1497])
    ]
    checksum = arrays_sha256(values)
    return DIGITS.dataset(*parts, classes=tuple("0123456789"), shape=(8, 8), checksum=checksum)


DIGITS = Info(
    name="digits",
    about="handwritten digits of scikit-learn, 8 x 8 grey, 10 classes: 1,197 / 300 / 300",
    size="embedded",
    licence="CC BY 4.0 (E. Alpaydin, C. Kaynak; UCI)",
    source="https://archive.ics.uci.edu/dataset/80",
    load=load,
)
