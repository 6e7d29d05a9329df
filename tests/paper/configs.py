"""Small trials for the tests of what runs them; in a module, since other processes import it."""

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lpunits.files import StorageError
from lpunits.paper.search.spaces import Choice, Real, Space
from lpunits.paper.training.job import Job
from lpunits.paper.training.networks import Convolutional, FeedForward

SMALL = FeedForward("digits", hidden=(16, 16), filters=2, epochs=3, lr=0.3)
MODERN = replace(
    SMALL,
    optimizer="adamw",
    normalization="batch",
    label_smoothing=0.1,
    average=0.8,
    weight_decay=0.01,
    lr=0.02,
    dropout=0.1,
)
IMAGES = Convolutional("digits", channels=(8, 16), optimizer="adam", lr=0.05, epochs=4)


@dataclass(frozen=True)
class Sum:
    """Adds the seed to a number, or does what its mode says instead."""

    number: float = 1.0
    mode: str = "add"
    seconds: float = 0.0
    needs: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.mode} {self.number:g}"

    @property
    def datasets(self) -> tuple[str, ...]:
        return self.needs

    def run(self, seed: int, job: Job) -> dict[str, Any]:
        job.epoch(1, 2, {"loss": self.number, "valid_error": 0.5})
        time.sleep(self.seconds)
        if self.mode == "raise":
            raise ArithmeticError("it does\nnot add up")
        if self.mode == "full":
            raise StorageError("the disk is full")
        if self.mode == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.mode == "diverge":
            return {"diverged": "the loss was nan in epoch 1, batch 1", "curve": [1, 2]}
        return {"sum": self.number + seed, "process": os.getpid()}


@dataclass(frozen=True)
class Valley:
    """A trial for searches: the lower, the nearer x is to 0.3; or what its mode says."""

    x: float = 0.0
    mode: str = "walk"
    epochs: int = 9
    seconds: float = 0.0
    model: str = "lp"
    test: bool = True

    label, datasets, watched = "a valley", (), "height"

    def untested(self) -> "Valley":
        return replace(self, test=False)

    def score(self, outcome: Mapping[str, Any], split: str = "valid") -> float:
        return float(outcome[split])

    def run(self, seed: int, job: Job) -> dict[str, Any]:
        height = (self.x - 0.3) ** 2
        for epoch in range(self.epochs):
            job.epoch(epoch + 1, self.epochs, {"height": height + 1 / (epoch + 1)})
            time.sleep(self.seconds)
        if self.mode == "raise":
            raise ArithmeticError("it does not go down")
        if self.mode == "hang":
            time.sleep(1000)
        if self.mode == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.mode == "nan":
            return {"valid": float("nan")}
        return {"valid": height} | ({"test": height + 1} if self.test else {})


class ValleySpace(Space):
    """Where to look for the lowest point."""

    def __init__(self, base: Valley = Valley(), ranges: Any = None, **more: Real | Choice) -> None:  # noqa: B008
        super().__init__(base, (ranges or {"x": Real(0.0, 1.0)}) | more)

    def without(self, *names: str) -> "ValleySpace":
        return self
