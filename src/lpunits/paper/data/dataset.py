"""The one form of all datasets: three splits of features and targets, and a description."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpunits.paper.data.sources import Source

Values = TypeVar("Values", Tensor, list[Tensor])


@dataclass(frozen=True)
class Split(Generic[Values]):
    """Features and targets of the training, validation or test set.

    ``features`` is a tensor with a row per example, ``targets`` an int64 tensor of class numbers.
    For music both are the same list of float32 piano rolls of the shape (steps, 88): each frame is
    predicted from the frames before it.
    """

    features: Values
    targets: Values

    def __len__(self) -> int:
        return len(self.features)


@dataclass(frozen=True)
class Dataset(Generic[Values]):
    """A dataset in memory.

    Args:
        name: The name for :func:`lpunits.paper.data.load`.
        train: The training set.
        valid: The validation set.
        test: The test set.
        classes: The names of the classes, in the order of their numbers; empty for music.
        shape: The shape of one example, before its features were flattened.
        about: One line that describes it.
        licence: What may be done with it.
        source: Where it comes from.
        checksum: sha256 of its files' content, or of the generated values.
    """

    name: str
    train: Split[Values] = field(repr=False)
    valid: Split[Values] = field(repr=False)
    test: Split[Values] = field(repr=False)
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    about: str
    licence: str
    source: str
    checksum: str


@dataclass(frozen=True)
class Info:
    """The description of a dataset before it is loaded: one row of ``lpunits data``.

    Args:
        name: The name for :func:`lpunits.paper.data.load`.
        about: One line that describes it, with the sizes of the three splits.
        size: The size of the download, with its unit; or ``generated``, ``embedded``.
        licence: What may be done with it.
        source: Where it comes from.
        load: Loads it; keyword arguments are its options.
        files: The files that it is read from; none if it is generated.
    """

    name: str
    about: str
    size: str
    licence: str
    source: str
    load: Callable[..., Dataset[Any]]
    files: tuple[Source, ...] = ()

    @property
    def present(self) -> bool:
        """Whether all its files are here."""
        return all(source.present() for source in self.files)

    @property
    def how(self) -> str:
        """How to get it."""
        if not self.files:
            return "nothing to do, it is built in"
        if all(source.url for source in self.files):
            return f"lpunits data fetch {self.name}"
        return self.files[0].manual

    def dataset(
        self,
        train: Split[Values],
        valid: Split[Values],
        test: Split[Values],
        *,
        classes: tuple[str, ...],
        shape: tuple[int, ...],
        checksum: str,
    ) -> Dataset[Values]:
        """The dataset of these three splits, with this description."""
        about, licence, source = self.about, self.licence, self.source
        return Dataset(
            self.name, train, valid, test, classes, shape, about, licence, source, checksum
        )


def split(features: npt.NDArray[Any], targets: npt.NDArray[Any]) -> Split[Tensor]:
    """A split of two arrays; the features keep their dtype, the targets become int64."""
    return Split(torch.from_numpy(features), torch.from_numpy(targets.astype(np.int64)))
