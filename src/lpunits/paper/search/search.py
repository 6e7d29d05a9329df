"""A search: trials with values drawn from a space, the lowest validation metric wins.

The test set is looked at once, for the winner, when all trials are over. Trials go to an engine,
what becomes of each goes to the study, and their records are kept like all others: a trial that has
one is not run again. The driver may be killed at any moment, and others may work on the same study.
"""

import time
from contextlib import closing
from dataclasses import dataclass

import optuna
from optuna.trial import FrozenTrial, TrialState
from rich import box
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lpunits.paper import data
from lpunits.paper.search import engines
from lpunits.paper.search.engines import Engine, Lost, Ray, Work
from lpunits.paper.search.run import RETRIES, check_jobs, console
from lpunits.paper.search.study import HEARTBEAT, Plan, Study
from lpunits.paper.training import records
from lpunits.paper.training.job import Job, Progress
from lpunits.paper.training.records import Record
from lpunits.paper.training.trial import Trial

SHOWN = 10  # trials in the live table


@dataclass(frozen=True)
class Found:
    """What a search has found: its best trial, and the score of the winner on the test set."""

    trials: int
    failed: int
    pruned: int
    best: FrozenTrial | None
    test: float | None

    def __str__(self) -> str:
        counts = f"{self.trials} trials, {self.failed} failed, {self.pruned} pruned"
        if self.best is None:
            return f"{counts}, no winner"
        test = "could not be tested" if self.test is None else f"{self.test:.4g} on test"
        return (
            f"{counts}; trial {self.best.number} wins: {self.best.value:.4g} on validation, {test}"
        )


def search(
    plan: Plan,
    storage: optuna.storages.RDBStorage,
    work_on: Work,
    *,
    jobs: int | None = None,
    ray: Ray | None = None,
    timeout: float | None = None,
) -> Found:
    """Run the trials of a plan that are not over yet, then the winner on the test set.

    Args:
        plan: What to search.
        storage: Optuna's, see :func:`lpunits.paper.search.study.open_storage`.
        work_on: How to run a trial, with the records that exist.
        jobs: How many trials at a time, in processes of their own.
        ray: A cluster that runs them instead.
        timeout: Seconds after which a trial is given up.
    """
    check_jobs(jobs)
    if timeout is not None and not timeout > 0:
        raise ValueError(f"trial-timeout must be a number of seconds above 0, got {timeout:g}")
    study = Study(plan, storage)
    for name in study.space.base.datasets:
        if not (info := data.info(name)).present:
            raise ValueError(f"the search needs {name}, which is not here: {info.how}")
    study.begin()
    trials = [Trial(study.space.base, 0)]
    with closing(engines.start(work_on, trials, jobs, ray)) as engine, _Display(study) as display:
        return _Driver(study, engine, work_on, timeout, display).run()


@dataclass
class _Running:
    """A trial that an engine has, for one number of the study or for several with equal values."""

    trial: Trial
    asked: list[optuna.Trial]  # none: it is the winner, with the test set
    losses: int = 0
    since: float | None = None  # when it began, on this machine's clock
    progress: Progress | None = None


class _Driver:
    """The loop between the study and the engine."""

    def __init__(
        self,
        study: Study,
        engine: Engine,
        work_on: Work,
        timeout: float | None,
        display: "_Display",
    ) -> None:
        assert work_on.store is not None
        self.study, self.engine, self.work_on, self.store = study, engine, work_on, work_on.store
        self.timeout, self.display = timeout, display
        self.running: dict[str, _Running] = {}
        self.beaten = time.monotonic()

    def run(self) -> Found:
        """Until all trials are over and the winner is known, whoever ran them."""
        winner = self.study.optuna.user_attrs.get("winner", {})
        if winner and winner["test"] is None:  # it failed: it gets another chance
            self.study.optuna.set_user_attr("winner", {})
        try:
            while True:
                while self.engine.room > 0 and self.begin():
                    self.beat()
                if not self.running and self.study.over:
                    return self.found()
                for trial, message in self.engine.receive(HEARTBEAT / 2):
                    self.hear(self.running[trial.key], message)
                self.beat()
                self.display.show(self.running)
        finally:
            self.study.release()

    def begin(self) -> bool:
        """Give the engine a trial, if there is one that waits."""
        asked = self.study.take()
        if asked is None:
            return self.begin_winner()
        trial = self.study.trial(asked)
        if trial.key in self.running:
            self.running[trial.key].asked.append(asked)
        elif record := self.store.find(trial):
            Job(self.work_on.folder / trial.key).close()
            self.over(_Running(trial, [asked]), record)
        else:
            self.running[trial.key] = _Running(trial, [asked])
            self.engine.submit(trial)
        return True

    def begin_winner(self) -> bool:
        """Run the best trial with the test set, when all others are over."""
        best, trial = self.study.best(), self.study.winner()
        all_over = len(self.study.finished()) >= self.study.plan.trials
        if best is None or trial is None or not all_over or self.study.tested:
            return False
        if not self.study.claim(-1 - best.number):  # another driver does it
            return False
        record = self.store.find(trial)
        if record and record["status"] != "failed":
            self.over(_Running(trial, []), record)
        else:
            self.running[trial.key] = _Running(trial, [])
            self.engine.submit(trial)
        return True

    def found(self) -> Found:
        """What the search has found."""
        best, tested = self.study.best(), self.study.tested or {}
        states = [trial.state for trial in self.study.finished()]
        failed, pruned = states.count(TrialState.FAIL), states.count(TrialState.PRUNED)
        return Found(len(states), failed, pruned, best, tested.get("test"))

    def hear(self, running: _Running, message: Progress | Record | Lost) -> None:
        """What a running trial has told."""
        if isinstance(message, Lost):
            running.losses, running.since = running.losses + 1, None
            if running.losses <= RETRIES:
                self.engine.submit(running.trial)
            else:
                self.end(running, "failed", message.error)
        elif isinstance(message, Progress):
            running.since = running.since or time.monotonic()
            running.progress = message
            value = message.values.get(running.trial.config.watched)
            pruning = self.study.plan.sampler == "asha" and message.done < message.total
            if value is not None and pruning and running.asked:
                behind = [self.study.behind(a, message.done, value) for a in running.asked]
                if all(behind):
                    self.end(running, "pruned", f"behind others after epoch {message.done}")
        else:
            self.over(running, message)

    def beat(self) -> None:
        """Show that this driver lives, from time to time, and stop what is not to go on."""
        if time.monotonic() - self.beaten > HEARTBEAT:
            self.beaten = time.monotonic()
            self.give_up(self.study.beat())

    def give_up(self, taken: set[int]) -> None:
        """Stop trials that are too long, and those that other drivers have taken over."""
        for running in list(self.running.values()):
            kept = [asked for asked in running.asked if asked.number not in taken]
            if running.asked and not kept:
                self.engine.stop(running.trial)
                del self.running[running.trial.key]
                continue
            running.asked = kept
            now = time.monotonic()
            if self.timeout and running.since and now - running.since > self.timeout:
                self.end(running, "failed", f"TimeoutError: it took longer than {self.timeout:g} s")

    def end(self, running: _Running, status: str, error: str) -> None:
        """End a trial that did not end by itself, and record why."""
        self.engine.stop(running.trial)
        seconds = time.monotonic() - running.since if running.since else 0.0
        record = records.make(running.trial, status, {}, seconds=seconds, error=error)
        self.store.write(record)
        Job(self.work_on.folder / running.trial.key).close()
        self.over(running, record)

    def over(self, running: _Running, record: Record) -> None:
        """Tell the study what became of a trial."""
        self.running.pop(running.trial.key, None)
        config, outcome = running.trial.config, record["outcome"]
        facts = {"key": record["key"], "seconds": record["seconds"]}
        for asked in running.asked:
            if record["status"] == "finished":
                self.study.tell(asked, TrialState.COMPLETE, config.score(outcome), **facts)
            else:
                pruned = record["status"] == "pruned"
                state = TrialState.PRUNED if pruned else TrialState.FAIL
                self.study.tell(asked, state, error=record["error"], **facts)
            self.display.finished(asked.number, record)
        if not running.asked:
            best = self.study.best()
            assert best is not None
            test = config.score(outcome, "test") if record["status"] == "finished" else None
            winner = {"number": best.number, "test": test, "error": record["error"], **facts}
            self.study.optuna.set_user_attr("winner", winner)


@dataclass
class _Display:
    """On a terminal a table of the best trials, otherwise a line for every finished one."""

    study: Study
    live: Live | None = None
    shown: float = 0.0

    def __enter__(self) -> "_Display":
        if console.is_terminal:
            self.live = Live(console=console, auto_refresh=False)
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.show({}, now=True)
            self.live.stop()

    def finished(self, number: int, record: Record) -> None:
        """A line for a trial that is over."""
        if self.live is not None:
            return
        best, total = self.study.best(), self.study.plan.trials
        done = len(self.study.finished())
        told = record["error"] or ""
        if record["status"] == "finished":
            config = self.study.space.base
            told = f"{config.watched} {config.score(record['outcome']):.4g}"
        so_far = f", best {best.value:.4g} (trial {best.number})" if best else ""
        told = told if record["status"] == "finished" else f"{record['status']}: {told}"
        line = f"[{done}/{total}] trial {number}: {told}, {record['seconds']:.1f} s{so_far}"
        console.print(line, markup=False, soft_wrap=True)

    def show(self, running: dict[str, _Running], *, now: bool = False) -> None:
        """The table, twice a second at most."""
        if self.live is not None and (now or time.monotonic() - self.shown > 0.5):
            self.shown = time.monotonic()
            self.live.update(table(self.study, list(running.values())), refresh=True)


def table(study: Study, running: list[_Running]) -> Group:
    """The best trials of a study, and what is running here."""
    finished, base = study.finished(), study.space.base
    failed = sum(trial.state == TrialState.FAIL for trial in finished)
    done = [trial for trial in finished if trial.state == TrialState.COMPLETE]
    rows = Table(box=box.SIMPLE, title=study.plan.name, title_justify="left")
    names = list(done[0].params) if done else []
    for name in ("trial", base.watched, *names):
        rows.add_column(name.replace("_", "\n"), justify="right")
    for trial in sorted(done, key=lambda t: (t.value, t.number))[:SHOWN]:
        values = [
            f"{trial.params[n]:.3g}" if isinstance(trial.params[n], float) else str(trial.params[n])
            for n in names
        ]
        rows.add_row(str(trial.number), f"{trial.value:.4g}", *values)
    lines = [Text(f"{len(finished)} of {study.plan.trials} trials are over, {failed} have failed")]
    for one in running:
        numbers = ", ".join(str(asked.number) for asked in one.asked) or "the winner"
        text = (
            f"{one.progress.done}/{one.progress.total}  {one.progress.text}" if one.progress else ""
        )
        lines.append(Text(f"  running {numbers}: {text}"))
    return Group(rows, *lines)
