"""Runs trials, those without a record only: in this process, or several at a time in their own.

Whatever happens to a trial ends in a record: an exception, a loss that is not finite, the death of
its process. Processes are forks of a server that has torch loaded, and serve many trials each.
"""

import multiprocessing
import os
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from lpunits.paper import datasets, distributed, records
from lpunits.paper.datasets.files import StorageError, make_folder
from lpunits.paper.experiment import Trial
from lpunits.paper.job import Job, Progress
from lpunits.paper.records import Record, Records

console = Console(stderr=True, highlight=False, quiet=distributed.rank() > 0)


@dataclass(frozen=True)
class Ran:
    """What :func:`run` did: how many trials had a record before, and the new records."""

    before: int
    new: list[Record]
    left_out: list[Trial]

    @property
    def failed(self) -> list[Record]:
        """The records of trials that raised an exception or lost their process."""
        return [record for record in self.new if record["status"] == "failed"]


def run(
    trials: Sequence[Trial],
    store: Records,
    work: Path,
    *,
    jobs: int = 1,
    tensorboard: Path | None = None,
) -> Ran:
    """Run the trials that have no record yet, and keep theirs.

    Args:
        trials: What is wanted; equal trials are run once.
        store: The records.
        work: A folder for checkpoints and trained models, with a folder for each trial.
        jobs: How many trials at a time; more than one run in processes of their own, among which
            torch's threads are divided.
        tensorboard: A folder for curves and histograms of orders, if they are wanted.
    """
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ValueError(f"jobs must be a number of at least 1, got {jobs!r}")
    for folder in (store.folders[0], work):  # before anything has cost time
        make_folder(folder)
    distributed.join(trials, jobs)
    missing = distributed.first(store.missing(trials))
    recorded = {trial.key for trial in trials} - {trial.key for trial in missing}
    for key in recorded:
        Job(work / key).close()  # the process may have been killed between record and clean-up
    todo = [t for t in missing if all(datasets.info(name).present for name in t.config.datasets)]
    todo = distributed.first(todo)
    left_out = [t for t in missing if t not in todo]
    for name in dict.fromkeys(n for t in left_out for n in t.config.datasets):
        if not (info := datasets.info(name)).present:
            waiting = sum(name in t.config.datasets for t in left_out)
            console.print(f"left out: {waiting} trials need {name}, which is not here: {info.how}")
    new: list[Record] = []
    with _Display(len(todo)) as display:
        work_on = _Work(store, work, tensorboard)
        if jobs == 1:
            for trial in todo:
                new.append(work_on(trial, display))
                display.finished(new[-1])
        elif todo:
            new = _in_processes(todo, work_on, min(jobs, len(todo)), display)
    return Ran(len(recorded), new, left_out)


@dataclass(frozen=True)
class _Work:
    """How to run one trial, in any process."""

    store: Records
    folder: Path
    tensorboard: Path | None

    def __call__(self, trial: Trial, display: "_Display | _Remote") -> Record:
        curves = None
        if self.tensorboard is not None:
            name = "".join(c if c.isalnum() or c in ".-" else "-" for c in trial.label)
            curves = self.tensorboard / f"{name}-{trial.key[-6:]}".replace("--", "-")
        job = Job(
            self.folder / trial.key,
            show=lambda progress: display.show(trial, progress),
            curves=curves,
            facts={"kind": type(trial.config).__name__, "config": trial.values, "seed": trial.seed},
        )
        display.show(trial, Progress(0, 1, ""))
        record = attempt(trial, job)
        if job.writes:
            self.store.write(record)
        if record["status"] != "failed":
            job.close()
        else:
            distributed.fail(record["error"])
        return record


def attempt(trial: Trial, job: Job) -> Record:
    """The record of a trial, whatever happens in it."""
    try:
        outcome = trial.config.run(trial.seed, job)
        if sentence := outcome.pop("diverged", None):
            return records.make(trial, "diverged", outcome, seconds=job.seconds, error=sentence)
        return records.make(trial, "finished", outcome, seconds=job.seconds)
    except StorageError:
        raise  # there is no place for a record either, and the next trial would end like this one
    except Exception as error:
        sentence = f"{type(error).__name__}: {' '.join(str(error).split())}"
        outcome = {"traceback": traceback.format_exc().splitlines()}
        return records.make(trial, "failed", outcome, seconds=job.seconds, error=sentence)


def _in_processes(
    todo: Sequence[Trial], work_on: _Work, jobs: int, display: "_Display"
) -> list[Record]:
    """Processes that take trial after trial; one that dies fails its trial and is replaced."""
    kinds = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in kinds else "spawn")
    if "forkserver" in kinds:
        # The first optimiser of a process imports torch._dynamo, which takes seconds.
        modules = {__name__, "torch._dynamo", *(type(t.config).__module__ for t in todo)}
        context.set_forkserver_preload(sorted(modules))
    threads = max(1, torch.get_num_threads() // jobs)
    waiting, new = list(todo), []
    busy: dict[Any, tuple[Trial, Any]] = {}  # by the pipe to the process: its trial, and itself

    def start() -> None:
        ours, theirs = context.Pipe()
        process = context.Process(target=_worker, args=(work_on, threads, theirs), daemon=True)
        process.start()
        theirs.close()
        busy[ours] = waiting.pop(0), process
        ours.send(busy[ours][0])

    try:
        while waiting or busy:
            while waiting and len(busy) < jobs:
                start()
            ready: list[Any] = connection.wait(list(busy))
            for pipe in ready:
                trial, process = busy[pipe]
                try:
                    message = pipe.recv()
                except (EOFError, ConnectionResetError):
                    process.join()
                    del busy[pipe]
                    error = f"its process ended with exit code {process.exitcode}"
                    message = records.make(trial, "failed", {}, seconds=0, error=error)
                    work_on.store.write(message)
                if isinstance(message, StorageError):
                    raise message
                if isinstance(message, Progress):
                    display.show(trial, message)
                    continue
                new.append(message)
                display.finished(message)
                if pipe in busy and waiting:
                    busy[pipe] = waiting.pop(0), process
                    pipe.send(busy[pipe][0])
                elif pipe in busy:
                    del busy[pipe]
                    pipe.close()  # the end of the worker
    finally:
        for _, process in busy.values():
            process.kill()
    return new


def _worker(work_on: _Work, threads: int, pipe: Any) -> None:
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
            pipe.send(work_on(pipe.recv(), _Remote(pipe)))
    except EOFError:
        pass
    except StorageError as error:
        pipe.send(error)


@dataclass(frozen=True)
class _Remote:
    """Sends the progress of a trial to the process that shows it."""

    pipe: Any

    def show(self, trial: Trial, progress: Progress) -> None:
        self.pipe.send(progress)


class _Display:
    """A line for every finished trial; on a terminal, a bar for every running one."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.tasks: dict[str, Any] = {}
        self.bars: Bars | None = None
        if console.is_terminal:
            self.bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(),
                console=console,
            )

    def __enter__(self) -> "_Display":
        if self.bars is not None:
            self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bars is not None:
            self.bars.stop()

    def show(self, trial: Trial, progress: Progress) -> None:
        if self.bars is None:
            return
        if trial.key not in self.tasks:
            self.tasks[trial.key] = self.bars.add_task(trial.label, total=None, text="")
        self.bars.update(
            self.tasks[trial.key],
            completed=progress.done,
            total=progress.total,
            text=progress.text,
        )

    def finished(self, record: Record) -> None:
        self.done += 1
        if self.bars is not None:
            self.bars.remove_task(self.tasks.pop(record["key"]))
        told = record["error"] or f"{record['seconds']:.1f} s"
        sign = {"finished": "", "diverged": "diverged: ", "failed": "failed: "}[record["status"]]
        console.print(f"[{self.done}/{self.total}] {record['label']}: {sign}{told}", markup=False)
