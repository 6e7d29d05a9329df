"""MNIST: 70,000 handwritten digits, from four plain or gzip idx files."""

from functools import partial
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from lpunits.paper.data.dataset import Dataset, Info, split
from lpunits.paper.data.sources import Source, check_sha256, read_bytes, sha256


def load(*, last_stage: bool = False) -> Dataset[Tensor]:
    """50,000 training, 10,000 validation and 10,000 test images.

    Features are float32 rows of 784 pixels from 0 (background) to 1. The validation set is the
    last 10,000 of the 60,000 published training images.

    Args:
        last_stage: The training set has all 60,000 images, the validation set included, as in the
            last stage of the published recipes.
    """
    train_images, labels, test_images, test_labels = (s.read(s.find()) for s in FILES)
    train, test = (
        np.divide(images.reshape(-1, 784), np.float32(255), dtype=np.float32)
        for images in (train_images, test_images)
    )
    end = 60_000 if last_stage else 50_000
    return MNIST.dataset(
        split(train[:end], labels[:end]),
        split(train[50_000:], labels[50_000:]),
        split(test, test_labels),
        classes=tuple("0123456789"),
        shape=(28, 28),
        checksum=sha256(" ".join(CONTENT.values()).encode()),
    )


def read_idx(path: Path, shape: tuple[int, ...], content: str) -> npt.NDArray[np.uint8]:
    """The bytes of the idx file with this sha256: a header that gives the shape, then the values.

    The header has 4 bytes, and 4 for each dimension.
    """
    header = 4 + 4 * len(shape)
    data = read_bytes(path, header + prod(shape))
    check_sha256(path, sha256(data), content)
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


# The content: sha256 of the uncompressed file, so that any compression is accepted. The download:
# md5 of the official file, as in torchvision.
CONTENT = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
DOWNLOADS = (
    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "d53e105ee54ea40749a09fcbcd1e9432",
    "9fb629c4189551a2d022fa330f9573f3",
    "ec29112dd5afa0611ce80d1b7f02629c",
)
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"


def _source(name: str, download: str) -> Source:
    count = 60_000 if name.startswith("train") else 10_000
    shape = (count, 28, 28) if "images" in name else (count,)
    return Source(
        dataset="mnist",
        folder="mnist",
        names=(f"{name}.gz", name),
        read=partial(read_idx, shape=shape, content=CONTENT[name]),
        url=f"{MIRROR}{name}.gz",
        known_hash=f"md5:{download}",
        manual=f"download {MIRROR}{name}.gz yourself",
    )


FILES = tuple(_source(*file) for file in zip(CONTENT, DOWNLOADS, strict=True))

MNIST = Info(
    name="mnist",
    about="handwritten digits, 28 x 28 grey, 10 classes: 50,000 / 10,000 / 10,000",
    size="11 MB",
    licence="CC BY-SA 3.0 (Y. LeCun, C. Cortes)",
    source="http://yann.lecun.com/exdb/mnist/",
    load=load,
    files=FILES,
)
