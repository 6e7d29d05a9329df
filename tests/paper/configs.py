"""Small trials for the tests of what runs them; in a module, since other processes import it."""

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

from lpunits.paper.datasets.files import StorageError
from lpunits.paper.job import Job


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
