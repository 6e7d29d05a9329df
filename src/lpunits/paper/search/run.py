"""Runs trials, those without a record only: in this process, or several at a time elsewhere.

Whatever happens to a trial ends in a record: an exception, a loss that is not finite, the death of
its process.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from lpunits.paper import data
from lpunits.paper.files import make_folder
from lpunits.paper.search import engines
from lpunits.paper.search.engines import Engine, Lost, Ray, Work
from lpunits.paper.training import ranks, records
from lpunits.paper.training.job import Job, Progress
from lpunits.paper.training.records import Record, Records
from lpunits.paper.training.trial import Trial

console = Console(stderr=True, highlight=False, quiet=ranks.rank() > 0)
RETRIES = 5  # of a trial on a cluster, whose machines come and go, or in a search


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
    jobs: int | None = None,
    ray: Ray | None = None,
    tensorboard: Path | None = None,
) -> Ran:
    """Run the trials that have no record yet, and keep theirs.

    Args:
        trials: What is wanted; equal trials are run once.
        store: The records.
        work: A folder for checkpoints and trained models, with a folder for each trial.
        jobs: How many trials at a time, 1 by default; more than one run in processes of their own,
            among which torch's threads are divided.
        ray: A cluster that runs them instead; by default as many at a time as it has room for.
        tensorboard: A folder for curves and histograms of orders, if they are wanted.
    """
    check_jobs(jobs)
    for folder in (store.folders[0], work):  # before anything has cost time
        make_folder(folder)
    ranks.join(trials, jobs or 1)
    missing = ranks.from_rank_0(store.missing(trials))
    recorded = {trial.key for trial in trials} - {trial.key for trial in missing}
    for key in recorded:
        Job(work / key).close()  # the process may have been killed between record and clean-up
    todo = [t for t in missing if all(data.info(name).present for name in t.config.datasets)]
    todo = ranks.from_rank_0(todo)
    left_out = [t for t in missing if t not in todo]
    for name in dict.fromkeys(n for t in left_out for n in t.config.datasets):
        if not (info := data.info(name)).present:
            waiting = sum(name in t.config.datasets for t in left_out)
            console.print(f"left out: {waiting} trials need {name}, which is not here: {info.how}")
    new: list[Record] = []
    with _Display(len(todo)) as display:
        work_on = Work(store, work, tensorboard)
        if ray is None and (jobs or 1) == 1:
            for trial in todo:
                new.append(work_on(trial, lambda progress, t=trial: display.show(t, progress)))  # type: ignore[misc]
                display.finished(new[-1])
        elif todo:
            with closing(
                engines.start(work_on, todo, jobs and min(jobs, len(todo)), ray)
            ) as engine:
                new = _all(todo, engine, store, display, RETRIES if ray else 0)
    return Ran(len(recorded), new, left_out)


def check_jobs(jobs: int | None) -> None:
    """Refuses, in a sentence, what is not a number of trials at a time."""
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1):
        raise ValueError(f"jobs must be a number of at least 1, got {jobs!r}")


def _all(
    todo: Sequence[Trial], engine: Engine, store: Records, display: "_Display", retries: int
) -> list[Record]:
    """The records of all trials; one that loses its process too often has failed."""
    waiting, running, new = list(todo), 0, []
    losses: dict[str, int] = {}
    while waiting or running:
        while waiting and engine.room > 0:
            engine.submit(waiting.pop(0))
            running += 1
        for trial, message in engine.receive(1.0):
            if isinstance(message, Progress):
                display.show(trial, message)
                continue
            running -= 1
            if isinstance(message, Lost):
                losses[trial.key] = losses.get(trial.key, 0) + 1
                if losses[trial.key] <= retries:
                    waiting.append(trial)
                    continue
                message = records.make(trial, "failed", {}, seconds=0, error=message.error)
                store.write(message)
            new.append(message)
            display.finished(message)
    return new


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
        if self.bars is not None and record["key"] in self.tasks:
            self.bars.remove_task(self.tasks.pop(record["key"]))
        told = record["error"] or f"{record['seconds']:.1f} s"
        sign = {"finished": "", "diverged": "diverged: ", "failed": "failed: "}[record["status"]]
        console.print(f"[{self.done}/{self.total}] {record['label']}: {sign}{told}", markup=False)
