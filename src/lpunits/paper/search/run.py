"""Runs the trials that have no record yet: in this process, or several at a time in others."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch

from lpunits.paper import data
from lpunits.paper.files import make_folder
from lpunits.paper.search import engines
from lpunits.paper.search.display import RunDisplay, console, duration
from lpunits.paper.search.engines import Engine, Lost, Ray, check_jobs, cores, jobs_for
from lpunits.paper.search.runner import Runner
from lpunits.paper.training import ranks, records
from lpunits.paper.training.job import Job, Progress
from lpunits.paper.training.records import Record, Records
from lpunits.paper.training.threads import threads_for
from lpunits.paper.training.trial import Trial

RETRIES = 5  # of a trial on a cluster, whose machines come and go, or in a search


@dataclass(frozen=True)
class RunResult:
    """How many trials had a record before, the new records, and the trials without data."""

    recorded: int
    new: list[Record]
    left_out: list[Trial]

    @property
    def failed(self) -> list[Record]:
        """The records of trials that raised an exception or whose process died."""
        return [record for record in self.new if record["status"] == "failed"]

    def __str__(self) -> str:
        diverged = sum(record["status"] == "diverged" for record in self.new)
        counts = {
            "had a record": self.recorded,
            "failed": len(self.failed),
            "diverged": diverged,
            "left out": len(self.left_out),
        }
        parts = [f"{count} {what}" for what, count in counts.items() if count]
        return ", ".join([f"{len(self.new)} trials run", *parts])


def run(
    trials: Sequence[Trial],
    store: Records,
    work: Path,
    *,
    jobs: int | None = None,
    ray: Ray | None = None,
    tensorboard: Path | None = None,
    expected: Mapping[str, float] = MappingProxyType({}),
) -> RunResult:
    """Run the trials that have no record yet, and write their records.

    Args:
        trials: The trials; equal trials are run once.
        store: The records.
        work: A folder for checkpoints and trained models; each trial gets a folder in it.
        jobs: How many trials at a time, in processes of their own; by default one for each core.
        ray: A cluster that runs them instead; by default as many at a time as it has room for.
        tensorboard: A folder for curves and histograms of orders, if wanted.
        expected: About how many seconds each trial takes, by its key; for the time that is left.
    """
    check_jobs(jobs)
    for folder in (store.folders[0], work):  # an error must come before any training
        make_folder(folder)
    ranks.join(trials, jobs or 1)
    missing = ranks.from_rank_0(store.missing(trials))
    recorded = {trial.key for trial in trials} - {trial.key for trial in missing}
    for key in recorded:
        Job(work / key).close()  # the process may have been killed before it cleaned up
    todo = [t for t in missing if not missing_data(t)]
    todo = ranks.from_rank_0(todo)
    left_out = [t for t in missing if t not in todo]
    for name in dict.fromkeys(name for t in left_out for name in missing_data(t)):
        count, how = sum(name in missing_data(t) for t in left_out), data.info(name).how
        console.print(f"left out: {count} trials need {name}, which is not here: {how}")
    # By all trials, not by those that are missing: a resumed run has the same threads.
    jobs = jobs or (None if ray else jobs_for(list({t.key: t for t in trials}.values())))
    new: list[Record] = []
    runner, slots = Runner(store, work, tensorboard), min(jobs or len(todo), len(todo))
    with RunDisplay(todo, max(slots, 1), expected) as display:
        if todo:
            left = f", about {duration(display.seconds_left() or 0)}" if expected else ""
            display.line(f"{len(todo)} trials to run, {slots} at a time{left}")
        if ray is None and slots <= 1:
            new = _in_this_process(todo, runner, jobs or 1, display)
        else:
            with closing(engines.start(runner, todo, jobs, ray)) as engine:
                new = _on_an_engine(todo, engine, store, display, RETRIES if ray else 0)
    return RunResult(len(recorded), new, left_out)


def missing_data(trial: Trial) -> list[str]:
    """The datasets of a trial that are not on this machine."""
    return [name for name in trial.config.datasets if not data.info(name).present]


def _in_this_process(
    todo: Sequence[Trial], runner: Runner, jobs: int, display: RunDisplay
) -> list[Record]:
    threads, new = torch.get_num_threads(), []
    try:
        for trial in todo:
            torch.set_num_threads(threads_for(trial.config, cores(), jobs))
            new.append(runner(trial, lambda progress, t=trial: display.show(t, progress)))  # type: ignore[misc]
            display.finish(trial, new[-1])
    finally:
        torch.set_num_threads(threads)
    return new


def _on_an_engine(
    todo: Sequence[Trial], engine: Engine, store: Records, display: RunDisplay, retries: int
) -> list[Record]:
    """The records of all trials. A trial that loses its process too often has failed."""
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
            display.finish(trial, message)
    return new
