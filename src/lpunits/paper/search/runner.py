"""Runs one trial, in any process: whatever happens in it becomes a record."""

import ctypes
import json
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lpunits.files import StorageError
from lpunits.paper.training import ranks, records
from lpunits.paper.training.job import Job, Progress
from lpunits.paper.training.records import Record, Records
from lpunits.paper.training.trial import Trial

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


@dataclass(frozen=True)
class Runner:
    """Runs a trial and writes its record.

    Args:
        store: Where to write the record. None: the caller writes it.
        folder: For checkpoints and models; each trial gets a folder in it.
        tensorboard: For TensorBoard curves, if wanted.
    """

    store: Records | None
    folder: Path
    tensorboard: Path | None = None

    def __call__(self, trial: Trial, show: Callable[[Progress], None]) -> Record:
        """The record of the trial."""
        curves = None
        if self.tensorboard is not None:
            name = "".join(c if c.isalnum() or c in ".-" else "-" for c in trial.label)
            curves = self.tensorboard / f"{name}-{trial.key[-6:]}".replace("--", "-")
        identity = {
            "kind": type(trial.config).__name__,
            "config": trial.values,
            "seed": trial.seed,
        }
        job = Job(self.folder / trial.key, show=show, tensorboard=curves, identity=identity)
        show(Progress(0, 1, ""))
        record = attempt(trial, job)
        if self.store is not None and job.writes:
            self.store.write(record)
        if record["status"] != "failed":
            job.close()
        else:
            ranks.fail(record["error"])
        return record


def attempt(trial: Trial, job: Job) -> Record:
    """The record of the trial, also if it raises an exception or diverges."""
    keep_memory()
    try:
        outcome = trial.config.run(trial.seed, job)
        if sentence := outcome.pop("diverged", None):
            return records.make(trial, "diverged", outcome, seconds=job.seconds, error=sentence)
        if _not_finite(outcome):
            sentence = "the outcome has a number that is not finite"
            return records.make(trial, "diverged", {}, seconds=job.seconds, error=sentence)
        return records.make(trial, "finished", outcome, seconds=job.seconds)
    except StorageError:
        raise  # the record could not be written either, and the next trial would fail alike
    except Exception as error:
        sentence = f"{type(error).__name__}: {' '.join(str(error).split())}"
        outcome = {"traceback": traceback.format_exc().splitlines()}
        return records.make(trial, "failed", outcome, seconds=job.seconds, error=sentence)


def keep_memory() -> None:
    """Let glibc keep freed memory, where there is glibc.

    A large network frees and allocates the same megabytes at every step. By default they go back to
    the system, which must clear them each time. One epoch of the Pentomino network on 40,000 images
    takes 7.6 s of processor time this way, and 4.6 s if the memory is kept.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        for threshold in M_TRIM_THRESHOLD, M_MMAP_THRESHOLD:
            mallopt(threshold, 1 << 30)


def _not_finite(outcome: dict[str, Any]) -> bool:
    """Whether the outcome has a number that JSON cannot hold."""
    try:
        json.dumps(outcome, allow_nan=False)
    except ValueError:
        return True
    return False
