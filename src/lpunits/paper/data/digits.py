"""scikit-learn's embedded 8 x 8 digits: the stand-in for MNIST that needs no download."""

import numpy as np
from torch import Tensor

from lpunits.paper.data import randomness
from lpunits.paper.data.dataset import Dataset, Info, split
from lpunits.paper.data.sources import arrays_sha256


def load(*, seed: int = 0) -> Dataset[Tensor]:
    """1,197 images to train on, 300 to validate, 300 to test: float32 rows of 64 from 0 to 1.

    Args:
        seed: Which examples go where; the same seed gives the same split on every platform.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    values = {"features": bunch.data.astype(np.float32) / 16, "targets": bunch.target}
    order = randomness.permutation(len(bunch.target), seed)
    train, valid, test = (
        split(values["features"][rows], values["targets"][rows])
        for rows in np.split(order, [1197, 1497])
    )
    return DIGITS.dataset(
        train,
        valid,
        test,
        classes=tuple("0123456789"),
        shape=(8, 8),
        checksum=arrays_sha256(values),
    )


DIGITS = Info(
    name="digits",
    about="handwritten digits of scikit-learn, 8 x 8 grey, 10 classes: 1,197 / 300 / 300",
    size="embedded",
    licence="CC BY 4.0 (E. Alpaydin, C. Kaynak; UCI)",
    source="https://archive.ics.uci.edu/dataset/80",
    load=load,
)
