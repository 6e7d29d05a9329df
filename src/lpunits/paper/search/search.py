"""A search: trials with values drawn from a space. The lowest validation metric wins.

The test set is used once, for the winner, after all trials have ended. Trials go to an engine,
their results to the study, and their records to the store: a trial with a record is not run again.
The driver can be killed at any moment, and several drivers can work on the same study.
"""

import time
from contextlib import closing
from dataclasses import dataclass

import optuna
from optuna.trial import FrozenTrial, TrialState
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lpunits.arguments import check_sizes
from lpunits.paper import data
from lpunits.paper.search import engines
from lpunits.paper.search.claims import HEARTBEAT
from lpunits.paper.search.display import Display, duration
from lpunits.paper.search.engines import Engine, Lost, Message, Ray, jobs_for
from lpunits.paper.search.run import RETRIES
from lpunits.paper.search.runner import Runner
from lpunits.paper.search.study import Plan, Study
from lpunits.paper.training import records
from lpunits.paper.training.job import Job, Progress, numbers
from lpunits.paper.training.records import Record
from lpunits.paper.training.trial import Trial

BEST = 5  # trials in the live table


@dataclass(frozen=True)
class SearchResult:
    """The best trial of a search, and the score of the winner on the test set."""

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
    runner: Runner,
    *,
    jobs: int | None = None,
    ray: Ray | None = None,
    timeout: float | None = None,
) -> SearchResult:
    """Run the trials of a plan that have not ended yet, then the winner on the test set.

    Args:
        plan: What to search.
        storage: Optuna's, see :func:`lpunits.paper.search.study.open_storage`.
        runner: How to run a trial, with the existing records.
        jobs: How many trials at a time, in processes of their own; by default one for each core.
        ray: A cluster that runs them instead.
        timeout: Seconds after which a trial is stopped and has failed.
    """
    check_sizes(jobs=1 if jobs is None else jobs)
    if timeout is not None and not timeout > 0:
        raise ValueError(f"trial-timeout must be a number of seconds above 0, got {timeout:g}")
    study = Study(plan, storage)
    for name in study.space.base.datasets:
        if not (info := data.info(name)).present:
            raise ValueError(f"the search needs {name}, which is not here: {info.how}")
    study.begin()
    trials = [Trial(study.space.base, 0)] * plan.trials
    jobs = jobs or (None if ray else jobs_for(trials))
    with closing(engines.start(runner, trials, jobs, ray)) as engine:
        driver = _Driver(study, engine, runner, timeout)
        with Display(lambda: driver.table, driver.status) as display:
            return driver.run(display)


@dataclass
class _Running:
    """A trial on the engine, for one number of the study or for several with equal values."""

    trial: Trial
    asked: list[optuna.Trial]  # empty: the winner, with the test set
    losses: int = 0
    since: float | None = None  # when it began, on this machine's clock
    progress: Progress | None = None

    def __str__(self) -> str:
        numbers = ", ".join(str(asked.number) for asked in self.asked)
        name = f"trial {numbers}" if numbers else "the winner, on test"
        p = self.progress
        return f"{name}: {p.done}/{p.total}  {p.text}" if p and p.text else name


class _Driver:
    """The loop between the study and the engine."""

    def __init__(self, study: Study, engine: Engine, runner: Runner, timeout: float | None) -> None:
        assert runner.store is not None
        self.study, self.engine, self.runner, self.store = study, engine, runner, runner.store
        self.timeout = timeout
        self.running: dict[str, _Running] = {}
        self.last_heartbeat = self.begun = time.monotonic()
        self.begun_with = len(study.finished())
        self.table: RenderableType = ""
        self.drawn = 0.0

    def run(self, display: Display) -> SearchResult:
        """Work until all trials have ended and the winner was tested, by whichever driver."""
        self.display = display
        winner = self.study.optuna.user_attrs.get("winner", {})
        if winner and winner["test"] is None:  # its test failed: try again
            self.study.optuna.set_user_attr("winner", {})
        try:
            while True:
                while self.engine.room > 0 and self.begin():
                    self.heartbeat()
                if not self.running and self.study.complete:
                    self.draw(now=True)
                    return self.result()
                for trial, message in self.engine.receive(HEARTBEAT / 2):
                    self.handle(self.running[trial.key], message)
                self.heartbeat()
                self.draw()
        finally:
            self.study.claims.release()

    def begin(self) -> bool:
        """Give the engine the next trial, if there is one."""
        asked = self.study.next_trial()
        if asked is None:
            return self.begin_winner()
        trial = self.study.trial(asked)
        if trial.key in self.running:
            self.running[trial.key].asked.append(asked)
        elif record := self.store.find(trial):
            Job(self.runner.folder / trial.key).close()
            self.finish(_Running(trial, [asked]), record)
        else:
            self.running[trial.key] = _Running(trial, [asked])
            self.engine.submit(trial)
        return True

    def begin_winner(self) -> bool:
        """Run the best trial with the test set, after all others have ended."""
        best, trial = self.study.best(), self.study.winner()
        all_ended = len(self.study.finished()) >= self.study.plan.trials
        if best is None or trial is None or not all_ended or self.study.tested:
            return False
        if not self.study.claims.claim(name := f"test of {best.number}"):
            return False  # another driver does it
        if self.study.tested:  # in the meantime
            self.study.claims.release(name)
            return False
        record = self.store.find(trial)
        if record and record["status"] != "failed":
            self.finish(_Running(trial, []), record)
        else:
            self.running[trial.key] = _Running(trial, [])
            self.engine.submit(trial)
        return True

    def result(self) -> SearchResult:
        """The result so far."""
        best, tested = self.study.best(), self.study.tested or {}
        states = [trial.state for trial in self.study.finished()]
        failed, pruned = states.count(TrialState.FAIL), states.count(TrialState.PRUNED)
        return SearchResult(len(states), failed, pruned, best, tested.get("test"))

    def handle(self, running: _Running, message: Message) -> None:
        """React to a message of a running trial."""
        if isinstance(message, Lost):
            running.losses, running.since = running.losses + 1, None
            if running.losses <= RETRIES:
                self.engine.submit(running.trial)
            else:
                self.end(running, "failed", message.error)
        elif isinstance(message, Progress):
            running.since = running.since or time.monotonic()
            running.progress = message
            if message.note:
                self.display.line(f"{running}: {message.note}")
            value = message.values.get(running.trial.config.watched)
            prunes = self.study.plan.sampler == "asha" and message.done < message.total
            if value is not None and prunes and running.asked:
                verdicts = [self.study.should_prune(a, message.done, value) for a in running.asked]
                if all(verdicts):
                    self.end(running, "pruned", f"worse than others after epoch {message.done}")
        else:
            self.finish(running, message)

    def heartbeat(self) -> None:
        """Show every two seconds that this driver is alive, and stop what must not continue."""
        if time.monotonic() - self.last_heartbeat > HEARTBEAT:
            self.last_heartbeat = time.monotonic()
            self.stop_some(self.study.claims.beat())

    def stop_some(self, taken: set[str]) -> None:
        """Stop trials that take too long, and those that other drivers have taken over."""
        for running in list(self.running.values()):
            kept = [asked for asked in running.asked if str(asked.number) not in taken]
            if running.asked and not kept:
                self.engine.stop(running.trial)
                del self.running[running.trial.key]
                continue
            running.asked = kept
            now = time.monotonic()
            if self.timeout and running.since and now - running.since > self.timeout:
                self.end(running, "failed", f"TimeoutError: it took longer than {self.timeout:g} s")

    def end(self, running: _Running, status: str, error: str) -> None:
        """Stop a trial, and record why."""
        self.engine.stop(running.trial)
        seconds = time.monotonic() - running.since if running.since else 0.0
        record = records.make(running.trial, status, {}, seconds=seconds, error=error)
        self.store.write(record)
        Job(self.runner.folder / running.trial.key).close()
        self.finish(running, record)

    def finish(self, running: _Running, record: Record) -> None:
        """Tell the study the result of a trial."""
        self.running.pop(running.trial.key, None)
        config, outcome = running.trial.config, record["outcome"]
        attributes = {"key": record["key"], "seconds": record["seconds"]}
        for asked in running.asked:
            if record["status"] == "finished":
                self.study.tell(asked, TrialState.COMPLETE, config.score(outcome), **attributes)
            else:
                pruned = record["status"] == "pruned"
                state = TrialState.PRUNED if pruned else TrialState.FAIL
                self.study.tell(asked, state, error=record["error"], **attributes)
            if not self.display.is_live:
                self.display.line(self.line(asked.number, record))
        if not running.asked:
            best = self.study.best()
            assert best is not None
            test = config.score(outcome, "test") if record["status"] == "finished" else None
            winner = {"number": best.number, "test": test, "error": record["error"], **attributes}
            self.study.optuna.set_user_attr("winner", winner)

    def line(self, number: int, record: Record) -> str:
        """One line on a trial that has ended."""
        config, best = self.study.space.base, self.study.best()
        result = f"{record['status']}: {record['error']}"
        if record["status"] == "finished":
            result = numbers({config.watched: config.score(record["outcome"])})
        so_far = f", best {best.value:.4g} (trial {best.number})" if best else ""
        done, total = len(self.study.finished()), self.study.plan.trials
        return f"[{done}/{total}] trial {number}: {result}, {duration(record['seconds'])}{so_far}"

    def status(self) -> str:
        """The progress of the search in one line, without a query of the database."""
        running = "; ".join(map(str, list(self.running.values())))
        return f"{self.study.plan.name}: {len(self.running)} running ({running})"

    def draw(self, *, now: bool = False) -> None:
        """Update the live table, twice a second at most."""
        if self.display.is_live and (now or time.monotonic() - self.drawn > 0.5):
            self.drawn = time.monotonic()
            ended = len(self.study.finished())
            rate = (ended - self.begun_with) / (self.drawn - self.begun)
            left = (self.study.plan.trials - ended) / rate if rate and not now else None
            self.table = table(self.study, list(self.running.values()), left)


def table(study: Study, running: list[_Running], left: float | None = None) -> Group:
    """The best trials of a study, a column for each, and what is running here."""
    finished, base = study.finished(), study.space.base
    failed = sum(trial.state == TrialState.FAIL for trial in finished)
    done = [trial for trial in finished if trial.state == TrialState.COMPLETE]
    best = sorted(done, key=lambda t: (t.value, t.number))[:BEST]
    rows = Table("the best trials", box=box.SIMPLE_HEAD, title=study.plan.name)
    for trial in best:
        rows.add_column(str(trial.number), justify="right")
    rows.add_row(base.watched.replace("_", " "), *(f"{trial.value:.4g}" for trial in best))
    for name in best[0].params if best else ():
        values = [trial.params.get(name, "") for trial in best]
        texts = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in values]
        rows.add_row(name.replace("_", " "), *texts)
    rest = f", about {duration(left)} left" if left is not None else ""
    count = f"{len(finished)} of {study.plan.trials} trials have ended, {failed} failed{rest}"
    return Group(*([rows] if best else []), Text(count), *(Text(f"▶ {one}") for one in running))
