"""What every dataset looks like to the rest of the project."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpunits.paper.data.sources import DataError, Source

Values = TypeVar("Values", Tensor, list[Tensor])


@dataclass(frozen=True)
class Split(Generic[Values]):
    """Features and targets of one part of a dataset.

    ``features`` is a tensor with a row per example, ``targets`` an int64 tensor of class numbers.
    For music both are the same list of float32 piano rolls of the shape (steps, 88): each frame is
    the target of the frames before it.
    """

    features: Values
    targets: Values

    def __len__(self) -> int:
        return len(self.features)


@dataclass(frozen=True)
class Dataset(Generic[Values]):
    """A dataset in memory.

    Args:
        name: The name that :func:`lpunits.paper.data.load` knows it by.
        train: What a model is fitted to.
        valid: What hyperparameters are chosen on.
        test: What is reported.
        classes: The names of the classes, in the order of their numbers; empty for music.
        shape: The shape of one example's features, before they were made a row.
        about: One line that says what it is.
        licence: A note on what may be done with it.
        source: Where it comes from.
        checksum: sha256 of the content of its files, or of the generated values.
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
    """What is known of a dataset before it is loaded: one line of ``lpunits data``."""

    name: str
    about: str
    size: str
    licence: str
    source: str
    load: Callable[..., Dataset[Any]]
    files: tuple[Source, ...] = ()

    @property
    def present(self) -> bool:
        """Whether it can be loaded here and now."""
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
        """The dataset of these parts, with what is known of it."""
        about, licence, source = self.about, self.licence, self.source
        return Dataset(
            self.name, train, valid, test, classes, shape, about, licence, source, checksum
        )


def split(features: npt.NDArray[Any], targets: npt.NDArray[Any]) -> Split[Tensor]:
    """A split of arrays; the features keep their dtype."""
    return Split(torch.from_numpy(features), torch.from_numpy(targets.astype(np.int64)))


def check_labels(where: object, labels: npt.NDArray[Any], low: int, high: int) -> None:
    """Refuses class numbers that are not from ``low`` to ``high``, and tells the first one."""
    wrong = np.flatnonzero(~((labels >= low) & (labels <= high)))  # NaN is wrong, too
    if wrong.size:
        raise DataError(
            f"{where}: a label must be from {low} to {high}, got {labels[wrong[0]]} "
            f"for example {wrong[0]}"
        )
