"""Runs the trials that have no record yet: in this process, or several at a time in others.

Several runs on one folder of records share the work: each does the trials that it has claimed, and
reads the records of the others as they appear.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch

from lpunits.arguments import check_sizes
from lpunits.files import make_folder
from lpunits.paper import data
from lpunits.paper.search import engines
from lpunits.paper.search.claims import Claims, shared
from lpunits.paper.search.display import RunDisplay, console, counted, duration
from lpunits.paper.search.engines import Engine, Lost, Ray, jobs_for
from lpunits.paper.search.runner import Runner
from lpunits.paper.training import ranks, records
from lpunits.paper.training.job import Job, Progress
from lpunits.paper.training.records import DONE, Record, Records
from lpunits.paper.training.threads import cores, threads_for
from lpunits.paper.training.trial import Trial

POLL = 1.0  # seconds, between two looks at what other runs have done
RETRIES = 5  # of a trial on a cluster, whose machines come and go, or in a search


@dataclass(frozen=True)
class RunResult:
    """How many trials had a record before, the new records, and the trials without data.

    ``others`` are the records that other runs have made meanwhile.
    """

    recorded: int
    new: list[Record]
    others: list[Record]
    left_out: list[Trial]

    @property
    def failed(self) -> list[Record]:
        """The records of trials that raised an exception or whose process died."""
        return [r for r in self.new + self.others if r["status"] == "failed"]

    def __str__(self) -> str:
        diverged = sum(record["status"] == "diverged" for record in self.new + self.others)
        counts = {
            "had a record": self.recorded,
            "done by other runs": len(self.others),
            "failed": len(self.failed),
            "diverged": diverged,
            "left out": len(self.left_out),
        }
        parts = [f"{count} {what}" for what, count in counts.items() if count]
        return ", ".join([f"{counted(len(self.new))} run", *parts])


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
    check_sizes(jobs=1 if jobs is None else jobs)
    for folder in (store.folders[0], work):  # an error must come before any training
        make_folder(folder)
    ranks.join(trials, jobs or 1)
    missing = ranks.from_rank_0(store.missing(trials))
    recorded = {trial.key for trial in trials} - {trial.key for trial in missing}
    for key in recorded:
        Job(work / key).close()  # the process may have been killed before it cleaned up
    todo = ranks.from_rank_0([t for t in missing if not missing_data(t)])
    left_out = [t for t in missing if t not in todo]
    for name in dict.fromkeys(name for t in left_out for name in missing_data(t)):
        count, how = sum(name in missing_data(t) for t in left_out), data.info(name).how
        console.print(f"left out: {counted(count)} on {name}, which is not here: {how}")
    # By all trials, not by those that are missing: a resumed run has the same threads.
    jobs = jobs or (None if ray else jobs_for(list({t.key: t for t in trials}.values())))
    runner, slots = Runner(store, work, tensorboard), min(jobs or len(todo), len(todo))
    claimed = shared(store.folders[0]) if todo and ranks.rank() == 0 else nullcontext()
    with RunDisplay(todo, max(slots, 1), expected) as display, claimed as claims:
        share = _Share(todo, store, claims, display)
        if todo:
            left = f", about {duration(display.seconds_left() or 0)}" if expected else ""
            display.line(f"{counted(len(todo))} to run, {slots} at a time{left}")
        if ray is None and slots <= 1:
            _in_this_process(share, runner, jobs or 1)
        else:
            with closing(engines.start(runner, todo, jobs, ray)) as engine:
                _on_an_engine(share, engine, RETRIES if ray else 0)
    return RunResult(len(recorded), share.new, share.others, left_out)


def missing_data(trial: Trial) -> list[str]:
    """The datasets of a trial that are not on this machine."""
    return [name for name in trial.config.datasets if not data.info(name).present]


class _Share:
    """The trials that this run does; other runs on the same records may do the rest."""

    def __init__(
        self, todo: Sequence[Trial], store: Records, claims: Claims | None, display: RunDisplay
    ) -> None:
        self.store, self.claims, self.display = store, claims, display
        self.waiting, self.new, self.others = list(todo), list[Record](), list[Record]()
        self._failed = {trial.key: store.find(trial) for trial in todo}  # before this run

    def next(self) -> Trial | None:
        """A trial for this run. None: there is none; those that wait belong to other runs."""
        if self.claims is None:  # rank 0 decides
            return None
        for trial in list(self.waiting):
            mine = self.claims.claim(trial.key)
            record = self.store.find(trial)
            if record and (record["status"] in DONE or record != self._failed[trial.key]):
                self.waiting.remove(trial)
                self.others.append(record)
                if mine:
                    self.claims.release(trial.key)
                self.display.finish(trial, record, by_another=True)
            elif mine:
                self.waiting.remove(trial)
                return trial
        return None

    def finish(self, trial: Trial, record: Record) -> None:
        """Take the record of a trial, which is on disk."""
        self.new.append(record)
        if self.claims:
            self.claims.release(trial.key)
        self.display.finish(trial, record)


def _in_this_process(share: _Share, runner: Runner, jobs: int) -> None:
    threads = torch.get_num_threads()
    try:
        while True:
            trial, rest = ranks.from_rank_0((share.next(), len(share.waiting)))
            if trial is not None:
                torch.set_num_threads(threads_for(trial.config, cores(), jobs))
                record = runner(trial, lambda progress, t=trial: share.display.show(t, progress))  # type: ignore[misc]
                share.finish(trial, record)
            elif rest:
                time.sleep(POLL)
            else:
                return
    finally:
        torch.set_num_threads(threads)


def _on_an_engine(share: _Share, engine: Engine, retries: int) -> None:
    """Run all trials. One that loses its process too often has failed."""
    losses: dict[str, int] = {}
    running: set[str] = set()
    while share.waiting or running:
        while engine.room > 0 and (trial := share.next()) is not None:
            engine.submit(trial)
            running.add(trial.key)
        for trial, message in engine.receive(POLL):
            if isinstance(message, Progress):
                share.display.show(trial, message)
                continue
            if isinstance(message, Lost):
                losses[trial.key] = losses.get(trial.key, 0) + 1
                if losses[trial.key] <= retries:
                    engine.submit(trial)
                    continue
                message = records.make(trial, "failed", {}, seconds=0, error=message.error)
                share.store.write(message)
            running.remove(trial.key)
            share.finish(trial, message)
