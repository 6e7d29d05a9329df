"""A study: the trials of one search in Optuna's storage, and which driver runs which trial.

With a random sampler the values of trial k depend on the study's seed and k alone. Drivers that are
killed, or that work in parallel, draw the same trials.

A driver runs the trials that it has claimed in a table beside Optuna's. Each trial has a row with
its driver and a counter, which the driver increases while it is alive. If a counter does not change
for ``GRACE`` seconds, another driver may take over the claim, by one conditional update that only
one driver can win. Clocks of different machines are never compared. The trial of a killed driver
keeps its number. (Optuna's own heartbeat works in ``optimize`` only, gives a lost trial a new
number, and loses a trial whose driver dies between two of its steps.)
"""

import hashlib
import secrets
import shlex
import shutil
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import optuna
import sqlalchemy as sql
from optuna.trial import FrozenTrial, TrialState

from lpunits.paper.files import StorageError
from lpunits.paper.search import spaces
from lpunits.paper.search.spaces import Space
from lpunits.paper.training.trial import Scale, Trial

Sampler = Literal["random", "tpe", "asha"]
HEARTBEAT, GRACE = 2.0, 10.0  # seconds
TRIAL_SEED = 0  # of all trials of a search; `lpunits run --from-search` uses other seeds

CLAIMS = sql.Table(
    "lpunits_claims",
    sql.MetaData(),
    sql.Column("study", sql.String(500), primary_key=True),
    sql.Column("number", sql.Integer, primary_key=True),
    sql.Column("driver", sql.String(32), nullable=False),
    sql.Column("beats", sql.Integer, nullable=False),
)


@dataclass(frozen=True)
class Plan:
    """The definition of a search.

    Args:
        experiment: One of :data:`lpunits.paper.search.spaces.SPACES`.
        scale: The scale, as for an experiment.
        sampler: ``random`` as in the paper; ``tpe``, which learns from earlier trials; ``asha``:
            random, and the worse trials end after 1/27, 1/9 or 1/3 of their epochs.
        seed: Random seed of the values.
        settings: ``field=value`` for each field with a fixed value.
        trials: The number of trials.
    """

    experiment: str
    scale: Scale = "quick"
    sampler: Sampler = "random"
    seed: int = 0
    settings: tuple[str, ...] = ()
    trials: int = 50

    def __post_init__(self) -> None:
        if self.sampler not in get_args(Sampler):
            raise ValueError(f"sampler must be one of {get_args(Sampler)}, got {self.sampler!r}")
        if self.trials < 1:
            raise ValueError(f"trials must be a number of at least 1, got {self.trials}")

    @property
    def name(self) -> str:
        """The name of the study. Plans that differ in the number of trials alone share a study."""
        settings = "".join(f" {setting}" for setting in sorted(self.settings))
        return f"{self.experiment} {self.scale} {self.sampler} {self.seed}{settings}"

    @property
    def command(self) -> str:
        """The command that starts or resumes the search."""
        return self._words("lpunits search", "scale", "sampler", "seed", "trials")

    @property
    def repetition(self) -> str:
        """The command that repeats the winner with other seeds."""
        return self._words("lpunits run", "scale") + " --from-search"

    def _words(self, command: str, *fields: str) -> str:
        values = {f: getattr(self, f) for f in fields}
        words = [f"--{f} {value}" for f, value in values.items() if value != getattr(Plan, f)]
        words += [f"--set {shlex.quote(setting)}" for setting in self.settings]
        return " ".join([command, self.experiment, *words])

    def space(self) -> Space:
        """What the search may change."""
        return spaces.get(self.experiment, self.scale, self.settings)


@contextmanager
def open_storage(url: str) -> Iterator[optuna.storages.RDBStorage]:
    """Optuna's storage at ``sqlite:///FILE`` or ``postgresql://...``, with the table of claims."""
    if not url.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
        raise ValueError(f"--storage must be sqlite:///FILE or postgresql://..., got {url!r}")
    options: dict[str, Any] = {"pool_pre_ping": True}  # works again after a restart of the server
    if url.startswith("sqlite"):
        options = {"connect_args": {"timeout": 60}}  # several drivers take turns to write
        Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    url = url.replace("postgresql://", "postgresql+psycopg://", 1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = _opened(url, options)
    try:
        yield storage
    except (sql.exc.DBAPIError, optuna.exceptions.StorageInternalError) as error:
        raise StorageError(f"{_shown(url)} failed: {_reason(error, url)}") from error
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _opened(url: str, options: dict[str, Any]) -> optuna.storages.RDBStorage:
    for wait in (0.1, 0.3, 1.0, None):
        try:
            storage = optuna.storages.RDBStorage(url, engine_kwargs=options)
            if url.startswith("sqlite"):
                sql.event.listen(storage.engine, "connect", _write_ahead)
                storage.engine.dispose()  # older connections
            CLAIMS.create(storage.engine, checkfirst=True)
            return storage
        except (sql.exc.SQLAlchemyError, ImportError) as error:
            if wait is None:
                sentence = f"--storage {_shown(url)} could not be opened: {_reason(error, url)}"
                raise ValueError(sentence) from error
            time.sleep(wait)  # another driver may be creating the same tables
    raise AssertionError


def _shown(url: str) -> str:
    return sql.make_url(url).render_as_string(hide_password=True)


def _reason(error: BaseException, url: str) -> str:
    """The message of the database in one line. SQLite does not report a full disk as such."""
    while error.__cause__ is not None:
        error = error.__cause__
    reason = " ".join(str(error).split())
    if url.startswith("sqlite"):
        free = shutil.disk_usage(Path(url.removeprefix("sqlite:///")).parent).free
        reason += f" ({free:,} bytes are free on that disk)"
    return reason


def _write_ahead(connection: Any, _: object) -> None:
    """Let SQLite not wait for the disk at every step, which is most of the cost of a short trial.

    A killed process loses nothing. A power cut can lose the last steps. The records are on disk,
    and the study gets those results again from them.
    """
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def studies(storage: optuna.storages.RDBStorage) -> list["Study"]:
    """All searches in a storage whose ranges are still the same."""
    found = []
    for summary in optuna.get_all_study_summaries(storage, include_best_trial=False):
        if plan := summary.user_attrs.get("plan"):
            study = Study(Plan(**{**plan, "settings": tuple(plan["settings"])}), storage)
            found += [study] * (summary.user_attrs["space"] == spaces.fingerprint(study.space))
    return found


def unfinished(storage: optuna.storages.RDBStorage, experiment: str | None = None) -> list[Plan]:
    """The plans of all searches, or of those of one experiment, that are not complete."""
    all_plans = [study.plan for study in studies(storage) if not study.complete]
    plans = [plan for plan in all_plans if experiment in (None, plan.experiment)]
    if not plans:
        of = f" of {experiment}" if experiment else ""
        raise ValueError(f"--resume: there is no unfinished search{of} here")
    return plans


def winners(
    storage: optuna.storages.RDBStorage,
    experiment: str,
    scale: Scale,
    settings: Sequence[str],
    seeds: int,
) -> list[Trial]:
    """The best trial of all searches of an experiment with these settings, with several seeds."""
    if seeds < 1:
        raise ValueError(f"seeds must be a number of at least 1, got {seeds}")
    wanted = (experiment, scale, sorted(settings))
    found: list[tuple[float, Trial]] = []
    for study in studies(storage):
        plan, best, winner = study.plan, study.best(), study.winner()
        if (plan.experiment, plan.scale, sorted(plan.settings)) == wanted and study.tested:
            assert best is not None and best.value is not None and winner is not None  # noqa: PT018
            found.append((best.value, winner))
    if not found:
        plan = Plan(experiment, scale, settings=tuple(settings))
        raise ValueError(f"--from-search: there is no finished search, run `{plan.command}` first")
    winner = min(found, key=lambda pair: pair[0])[1]
    return [Trial(winner.config, seed) for seed in range(seeds)]


class Study:
    """The trials of a search, as one driver sees them."""

    def __init__(self, plan: Plan, storage: optuna.storages.RDBStorage) -> None:
        self.plan, self.space = plan, plan.space()
        epochs = self.space.base.epochs
        self.optuna = optuna.create_study(
            study_name=plan.name,
            storage=storage,
            load_if_exists=True,
            direction="minimize",
            sampler=self._sampler(0, ""),
            pruner=optuna.pruners.SuccessiveHalvingPruner(
                min_resource=max(1, epochs // 27), reduction_factor=3
            )
            if plan.sampler == "asha"
            else optuna.pruners.NopPruner(),
        )
        self._engine = storage.engine
        self._driver = secrets.token_hex(16)
        self._claimed: set[int] = set()
        # Claims of other drivers: driver, counter, and when this was first seen.
        self._others: dict[int, tuple[str, int, float]] = {}

    def begin(self) -> None:
        """Store the plan. Refuse a study that was started with other ranges."""
        facts = self.optuna.user_attrs
        space = spaces.fingerprint(self.space)
        if facts.get("space", space) != space:
            raise ValueError(
                f"the search {self.plan.name!r} was started with other ranges: use another --seed "
                f"or another --storage"
            )
        self.optuna.set_user_attr("space", space)
        self.optuna.set_user_attr("plan", asdict(self.plan))

    def next_trial(self) -> optuna.Trial | None:
        """The next trial for this driver: one that lost its driver, or a new one. None: not now."""
        existing = self.optuna.get_trials(deepcopy=False)
        for trial in existing[: self.plan.trials]:
            if trial.state == TrialState.RUNNING and self.claim(trial.number):
                orphan = optuna.Trial(self.optuna, trial._trial_id)
                if self._state(trial.number) == TrialState.RUNNING:
                    return orphan
                self._claimed.discard(trial.number)
        # Two drivers may both create the last trial. Then there is one too many, which is not run
        # unless the search is extended.
        for _ in range(len(existing), self.plan.trials):
            new = self.optuna.ask()
            if new.number < self.plan.trials and self.claim(new.number):
                return new
        return None

    def trial(self, asked: optuna.Trial) -> Trial:
        """The trial to run. Its values are drawn now, unless another driver has drawn them."""
        values = {}
        for name, range in spaces.ranges(self.space).items():
            self.optuna.sampler = self._sampler(asked.number, name)
            values[name] = range.suggest(asked, name)
        return Trial(self.space.config(values).untested(), TRIAL_SEED)

    def should_prune(self, asked: optuna.Trial, epoch: int, value: float) -> bool:
        """Store the value that a running trial has reached; whether the trial should end."""
        with suppress(optuna.exceptions.UpdateFinishedTrialError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an epoch after a checkpoint may be reported twice
            asked.report(value, epoch)
            return asked.should_prune()
        return False

    def tell(
        self, asked: optuna.Trial, state: TrialState, value: float | None = None, **attributes: Any
    ) -> None:
        """Store the result of a trial. A second result of the same trial is ignored."""
        with suppress(optuna.exceptions.UpdateFinishedTrialError):
            for name, attribute in attributes.items():
                asked.set_user_attr(name, attribute)
            self.optuna.tell(asked, value, state, skip_if_finished=True)
        self._claimed.discard(asked.number)

    def finished(self) -> list[FrozenTrial]:
        """The trials of the plan that have ended, in any state."""
        trials = self.optuna.get_trials(deepcopy=False)[: self.plan.trials]
        return [trial for trial in trials if trial.state.is_finished()]

    def best(self) -> FrozenTrial | None:
        """The trial with the lowest value so far; of equal ones the first."""
        done = [t for t in self.finished() if t.state == TrialState.COMPLETE]
        return min(done, key=lambda t: (t.value, t.number), default=None)

    def winner(self) -> Trial | None:
        """The best trial, to be run with the test set."""
        best = self.best()
        return Trial(self.space.config(best.params), TRIAL_SEED) if best else None

    @property
    def tested(self) -> dict[str, Any] | None:
        """The test result of the best trial, by any driver. None: not tested yet."""
        winner: dict[str, Any] = self.optuna.user_attrs.get("winner", {})
        best = self.best()
        return winner if best is not None and winner.get("number") == best.number else None

    @property
    def complete(self) -> bool:
        """Whether all trials have ended and the best one, if any, was tested."""
        all_ended = len(self.finished()) >= self.plan.trials
        return all_ended and (self.best() is None or self.tested is not None)

    def claim(self, number: int) -> bool:
        """Try to claim a trial for this driver; whether it succeeded."""
        if number in self._claimed:
            return False
        row = (CLAIMS.c.study == self.plan.name) & (CLAIMS.c.number == number)
        mine = {"driver": self._driver, "beats": 0}
        with self._engine.begin() as database:
            other = database.execute(
                sql.select(CLAIMS.c.driver, CLAIMS.c.beats).where(row)
            ).one_or_none()
        try:
            with self._engine.begin() as database:
                if other is None:
                    values = {"study": self.plan.name, "number": number, **mine}
                    database.execute(CLAIMS.insert().values(values))
                else:
                    driver, beats, since = self._others.get(number, (None, None, 0.0))
                    if (driver, beats) != tuple(other):
                        self._others[number] = (other.driver, other.beats, time.monotonic())
                        return False
                    if time.monotonic() - since < GRACE:
                        return False
                    row &= (CLAIMS.c.driver == driver) & (CLAIMS.c.beats == beats)
                    if database.execute(CLAIMS.update().where(row).values(mine)).rowcount != 1:
                        return False
        except sql.exc.IntegrityError:  # another driver was faster
            return False
        self._claimed.add(number)
        return True

    def heartbeat(self) -> set[int]:
        """Increase the counters of this driver; the numbers that others have taken over."""
        mine = (CLAIMS.c.study == self.plan.name) & (CLAIMS.c.driver == self._driver)
        with self._engine.begin() as database:
            database.execute(CLAIMS.update().where(mine).values(beats=CLAIMS.c.beats + 1))
            held = set(database.execute(sql.select(CLAIMS.c.number).where(mine)).scalars())
        lost = self._claimed - held
        self._claimed -= lost
        return lost

    def release(self) -> None:
        """Give up all claims, so that the next driver does not have to wait."""
        mine = (CLAIMS.c.study == self.plan.name) & (CLAIMS.c.driver == self._driver)
        with self._engine.begin() as database:
            database.execute(CLAIMS.delete().where(mine))
        self._claimed.clear()

    def _state(self, number: int) -> TrialState:
        return self.optuna.get_trials(deepcopy=False)[number].state

    def _sampler(self, number: int, name: str) -> optuna.samplers.BaseSampler:
        """The sampler of one value. Its seed depends on the plan's seed, the trial and the name."""
        text = f"{self.plan.seed} {number} {name}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        if self.plan.sampler == "tpe":
            return optuna.samplers.TPESampler(seed=seed)
        return optuna.samplers.RandomSampler(seed=seed)
