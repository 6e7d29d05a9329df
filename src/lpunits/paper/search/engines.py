"""Engines run trials in other processes, several at a time, and report on each.

An engine accepts a trial (``submit``) while it has ``room``. ``receive`` yields the messages of the
running trials: their progress, and at the end a record, which is then on disk. If the process of a
trial dies, the message is :class:`Lost` and there is no record. ``stop`` ends a trial early.
:class:`Processes` uses this machine, :class:`~lpunits.paper.search.ray_engine.RayEngine` many.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, forkserver
from typing import Any, Protocol

import torch

from lpunits.arguments import check_sizes
from lpunits.files import StorageError, remove_leftovers
from lpunits.paper.search.runner import Runner
from lpunits.paper.training import ranks
from lpunits.paper.training.job import Progress
from lpunits.paper.training.records import Record
from lpunits.paper.training.threads import cores, threads_for
from lpunits.paper.training.trial import Trial


@dataclass(frozen=True)
class Lost:
    """The process of a trial died before there was a record."""

    error: str


Message = Progress | Record | Lost


class Engine(Protocol):
    """Runs trials."""

    @property
    def room(self) -> int:
        """How many more trials can be submitted now."""

    def submit(self, trial: Trial) -> None:
        """Start a trial."""

    def receive(self, seconds: float | None = None) -> Iterator[tuple[Trial, Message]]:
        """Messages of running trials. Waits for one, for at most so many seconds."""

    def stop(self, trial: Trial) -> None:
        """End a trial. No message of it follows."""

    def close(self) -> None:
        """End all running trials."""


@dataclass(frozen=True)
class Ray:
    """A Ray cluster, and the resources of each trial.

    Args:
        address: Of the cluster, such as ``10.0.0.1:6379`` or ``auto``. ``local`` starts a cluster
            on this machine.
        cpus: Processors of each trial, and the most threads that it uses.
        gpus: GPUs of each trial.
    """

    address: str
    cpus: int = 1
    gpus: float = 0.0

    def __post_init__(self) -> None:
        check_sizes(cpus=self.cpus)
        if self.gpus < 0:
            raise ValueError(f"gpus must be a number of at least 0, got {self.gpus}")


def jobs_for(trials: Sequence[Trial]) -> int:
    """How many of these trials to run at a time: one for each core.

    Several trials with one thread each finish earlier than one after the other with many threads.
    """
    if not trials or ranks.size() > 1:
        return 1
    threads = max(threads_for(trial.config, cores(), cores()) for trial in trials)
    return max(1, min(cores() // threads, len(trials)))


def start(
    runner: Runner, trials: Sequence[Trial], jobs: int | None = None, ray: Ray | None = None
) -> Engine:
    """The engine for these options.

    Args:
        runner: How to run a trial.
        trials: Some of the trials to come: processes import in advance what their configs need.
        jobs: How many trials at a time; by default one for each core, or as many as the cluster
            has room for.
        ray: The cluster. None: processes of this machine.
    """
    if ray is None:
        return Processes(runner, trials, jobs or jobs_for(trials))
    from lpunits.paper.search.ray_engine import RayEngine

    return RayEngine(runner, ray, jobs)


class Processes:
    """Processes of this machine.

    They are forks of a server that has imported torch. Each runs many trials. One that dies is
    replaced.
    """

    def __init__(self, runner: Runner, trials: Sequence[Trial], jobs: int) -> None:
        methods = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context(
            "forkserver" if "forkserver" in methods else "spawn"
        )
        if "forkserver" in methods:
            # The first optimizer of a process imports torch._dynamo, which takes seconds.
            modules = {__name__, "torch._dynamo", *(type(t.config).__module__ for t in trials)}
            self._context.set_forkserver_preload(sorted(modules))
            with _interrupts_ignored():
                forkserver.ensure_running()
        self._runner, self._jobs = runner, jobs
        # By the pipe to the process: its trial, and the process.
        self._busy: dict[Any, tuple[Trial, Any]] = {}
        self._idle: list[tuple[Any, Any]] = []

    @property
    def room(self) -> int:
        """How many more trials can be submitted now."""
        return self._jobs - len(self._busy)

    def submit(self, trial: Trial) -> None:
        """Start a trial in an idle process, or in a new one."""
        while self._idle:
            pipe, process = self._idle.pop()
            if process.is_alive():
                break
            pipe.close()
        else:
            pipe, worker_end = self._context.Pipe()
            process = self._context.Process(
                target=_worker, args=(self._runner, worker_end), daemon=True
            )
            process.start()
            worker_end.close()
        self._busy[pipe] = trial, process
        with suppress(OSError):  # if the process has just died, receive() reports it
            pipe.send((trial, threads_for(trial.config, cores(), self._jobs)))

    def receive(self, seconds: float | None = None) -> Iterator[tuple[Trial, Message]]:
        """Messages of running trials. Waits for one, for at most so many seconds."""
        ready: list[Any] = connection.wait(list(self._busy), seconds)
        for pipe in ready:
            if pipe not in self._busy:  # stopped by the receiver of the last message
                continue
            trial, process = self._busy[pipe]
            try:
                message = pipe.recv()
            except (EOFError, OSError):  # closed, perhaps in the middle of a message
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
                remove_leftovers(self._runner.folder / trial.key)
                if self._runner.store is not None:
                    remove_leftovers(self._runner.store.folders[0])

    def close(self) -> None:
        """Kill the running processes; idle ones end by themselves."""
        for trial, _ in list(self._busy.values()):
            self.stop(trial)
        for pipe, _ in self._idle:
            pipe.close()
        self._idle.clear()


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Start processes that ignore Ctrl-C: it is for this process, which ends them."""
    if threading.current_thread() is not threading.main_thread():  # signals are for that one
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _worker(runner: Runner, pipe: Any) -> None:
    """Run trials until the parent closes the pipe, or dies."""
    for number in signal.SIGINT, signal.SIGTERM:  # they are for the parent, which ends this process
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        while True:
            trial, threads = pipe.recv()
            torch.set_num_threads(threads)
            pipe.send(runner(trial, pipe.send))
    except (EOFError, BrokenPipeError):
        pass
    except StorageError as error:
        pipe.send(error)
