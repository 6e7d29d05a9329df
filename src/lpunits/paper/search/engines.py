"""Engines: they run trials elsewhere, several at a time, and tell what becomes of each.

An engine takes a trial (``submit``) as long as it has ``room``, and gives out what its running
trials tell (``receive``): their progress, at last a record, which is then on disk; or that the
process of a trial was lost, in which case there is no record. A trial that is not worth its time is
ended by ``stop``. :class:`Processes` of this machine are here,
:class:`~lpunits.paper.search.ray_engine.RayEngine` takes those of many.
"""

import ctypes
import json
import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any, Protocol

import torch

from lpunits.paper.files import StorageError
from lpunits.paper.training import ranks, records
from lpunits.paper.training.job import Job, Progress
from lpunits.paper.training.records import Record, Records
from lpunits.paper.training.trial import Trial

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


@dataclass(frozen=True)
class Lost:
    """A trial's process is gone, and no record was made."""

    error: str


class Engine(Protocol):
    """What runs trials."""

    @property
    def room(self) -> int:
        """How many more trials can be submitted now."""

    def submit(self, trial: Trial) -> None:
        """Begin with a trial."""

    def receive(
        self, seconds: float | None = None
    ) -> Iterator[tuple[Trial, Progress | Record | Lost]]:
        """What trials have told; waits for it, for so many seconds at most."""

    def stop(self, trial: Trial) -> None:
        """End a trial; nothing is heard of it any more."""

    def close(self) -> None:
        """End all that is running."""


@dataclass(frozen=True)
class Ray:
    """A cluster of Ray, and what each trial gets of it.

    Args:
        address: Of the cluster, such as ``10.0.0.1:6379`` or ``auto``; ``local`` starts one on this
            machine.
        cpus: Processors for each trial; it has as many threads.
        gpus: GPUs for each trial.
    """

    address: str
    cpus: int = 1
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.cpus < 1:
            raise ValueError(f"cpus must be a number of at least 1, got {self.cpus}")
        if self.gpus < 0:
            raise ValueError(f"gpus must be a number of at least 0, got {self.gpus}")


@dataclass(frozen=True)
class Work:
    """How to run one trial, in any process.

    Args:
        store: Where its record is written; None: whoever gets the record writes it.
        folder: For checkpoints and models, with a folder for each trial.
        tensorboard: For curves, if they are wanted.
    """

    store: Records | None
    folder: Path
    tensorboard: Path | None = None

    def __call__(self, trial: Trial, show: Callable[[Progress], None]) -> Record:
        """The record of the trial, whatever happens in it."""
        curves = None
        if self.tensorboard is not None:
            name = "".join(c if c.isalnum() or c in ".-" else "-" for c in trial.label)
            curves = self.tensorboard / f"{name}-{trial.key[-6:]}".replace("--", "-")
        job = Job(
            self.folder / trial.key,
            show=show,
            tensorboard=curves,
            identity={
                "kind": type(trial.config).__name__,
                "config": trial.values,
                "seed": trial.seed,
            },
        )
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
    """The record of a trial, whatever happens in it."""
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
        raise  # there is no place for a record either, and the next trial would end like this one
    except Exception as error:
        sentence = f"{type(error).__name__}: {' '.join(str(error).split())}"
        outcome = {"traceback": traceback.format_exc().splitlines()}
        return records.make(trial, "failed", outcome, seconds=job.seconds, error=sentence)


def keep_memory() -> None:
    """Let glibc keep what is freed, where there is glibc.

    A large net frees and takes the same megabytes at every step. By default they go back to the
    system, which clears them anew each time: a third of the time of Pentomino.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        for threshold in M_TRIM_THRESHOLD, M_MMAP_THRESHOLD:
            mallopt(threshold, 1 << 30)


def _not_finite(outcome: dict[str, Any]) -> bool:
    """Whether there is a number that a record cannot hold."""
    try:
        json.dumps(outcome, allow_nan=False)
    except ValueError:
        return True
    return False


def start(
    work_on: Work, trials: Sequence[Trial], jobs: int | None = None, ray: Ray | None = None
) -> Engine:
    """The engine that was asked for.

    Args:
        work_on: How to run a trial.
        trials: Some of those to come: processes import beforehand what their configs need.
        jobs: How many trials at a time; by default one, or as many as a cluster has room for.
        ray: The cluster, if they are not to run in processes of this machine.
    """
    if ray is None:
        return Processes(work_on, trials, jobs or 1)
    try:
        from lpunits.paper.search.ray_engine import RayEngine
    except ImportError as error:
        raise ValueError(f"--ray needs lpunits[ray]: {error}") from error
    return RayEngine(work_on, ray, jobs)


class Processes:
    """Processes of this machine, among which torch's threads are divided.

    They are forks of a server that has torch loaded, and serve many trials each; one that dies is
    replaced.
    """

    def __init__(self, work_on: Work, trials: Sequence[Trial], jobs: int) -> None:
        kinds = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context(
            "forkserver" if "forkserver" in kinds else "spawn"
        )
        if "forkserver" in kinds:
            # The first optimiser of a process imports torch._dynamo, which takes seconds.
            modules = {__name__, "torch._dynamo", *(type(t.config).__module__ for t in trials)}
            self._context.set_forkserver_preload(sorted(modules))
        self._work_on, self._jobs = work_on, jobs
        self._threads = max(1, torch.get_num_threads() // jobs)
        # By the pipe to the process: its trial, and itself.
        self._busy: dict[Any, tuple[Trial, Any]] = {}
        self._idle: list[tuple[Any, Any]] = []

    @property
    def room(self) -> int:
        """How many more trials can be submitted now."""
        return self._jobs - len(self._busy)

    def submit(self, trial: Trial) -> None:
        """Begin with a trial, in a process that is free or a new one."""
        while self._idle:
            pipe, process = self._idle.pop()
            if process.is_alive():
                break
            pipe.close()
        else:
            pipe, theirs = self._context.Pipe()
            arguments = (self._work_on, self._threads, theirs)
            process = self._context.Process(target=_worker, args=arguments, daemon=True)
            process.start()
            theirs.close()
        self._busy[pipe] = trial, process
        with suppress(OSError):  # if it has just died, receive() will tell
            pipe.send(trial)

    def receive(
        self, seconds: float | None = None
    ) -> Iterator[tuple[Trial, Progress | Record | Lost]]:
        """What trials have told; waits for it, for so many seconds at most."""
        ready: list[Any] = connection.wait(list(self._busy), seconds)
        for pipe in ready:
            if pipe not in self._busy:  # stopped by whoever received the last message
                continue
            trial, process = self._busy[pipe]
            try:
                message = pipe.recv()
            except (EOFError, OSError):  # closed, or closed amid a message
                process.join()
                del self._busy[pipe]
                pipe.close()
                message = Lost(f"its process ended with exit code {process.exitcode}")
            if isinstance(message, StorageError):
                raise message
            if pipe in self._busy and not isinstance(message, Progress):
                del self._busy[pipe]
                self._idle.append((pipe, process))
            yield trial, message

    def stop(self, trial: Trial) -> None:
        """Kill the process of a trial."""
        for pipe, (running, process) in list(self._busy.items()):
            if running.key == trial.key:
                del self._busy[pipe]
                process.kill()
                process.join()
                pipe.close()

    def close(self) -> None:
        """Kill all that is running; idle processes end by themselves."""
        for trial, _ in list(self._busy.values()):
            self.stop(trial)
        for pipe, _ in self._idle:
            pipe.close()
        self._idle.clear()


def _worker(work_on: Work, threads: int, pipe: Any) -> None:
    """The life of a process. It ends with its parent, even if that is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    try:
        while True:
            pipe.send(work_on(pipe.recv(), pipe.send))
    except (EOFError, BrokenPipeError):
        pass
    except StorageError as error:
        pipe.send(error)
