"""A study: the trials of one search in Optuna's storage, and which driver works on which.

Trial number k of a study has values that depend on the study's seed and k alone, as far as the
sampler is random, so drivers that are killed, or that work side by side, draw the same trials.

A driver works on the trials that it has claimed, in a table beside Optuna's: a row for each trial,
with the driver and a counter that it raises as long as it lives. Whoever has seen a counter rest
for ``GRACE`` seconds may take the claim over, by one conditional update that only one can win. No
two clocks are compared, and a trial whose driver was killed at any moment is taken up under its
number. (Optuna's own heartbeat serves ``optimize`` only, gives a lost trial another number, and
forgets one whose driver dies between two of its steps.)
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
TRIAL_SEED = 0  # a search compares values; `lpunits run --from-search` repeats the best over seeds

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
    """What a search is asked for.

    Args:
        experiment: One of :data:`lpunits.paper.search.spaces.SPACES`.
        scale: As of an experiment.
        sampler: ``random`` as in the paper; ``tpe``, which looks at the trials before; ``asha``:
            random, and trials that are behind after a third, a ninth, ... of their epochs end.
        seed: Of the values that are drawn.
        settings: ``field=value`` for what is fixed.
        trials: How many.
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
        """The name of the study: the same plan, but for the number of trials, is the same study."""
        settings = "".join(f" {setting}" for setting in sorted(self.settings))
        return f"{self.experiment} {self.scale} {self.sampler} {self.seed}{settings}"

    @property
    def command(self) -> str:
        """What makes it, or goes on with it."""
        return self._words("lpunits search", "scale", "sampler", "seed", "trials")

    @property
    def repetition(self) -> str:
        """What repeats the winner, with other seeds."""
        return self._words("lpunits run", "scale") + " --from-search"

    def _words(self, command: str, *fields: str) -> str:
        values = {f: getattr(self, f) for f in fields}
        words = [f"--{f} {value}" for f, value in values.items() if value != getattr(Plan, f)]
        words += [f"--set {shlex.quote(setting)}" for setting in self.settings]
        return " ".join([command, self.experiment, *words])

    def space(self) -> Space:
        """What may change."""
        return spaces.get(self.experiment, self.scale, self.settings)


@contextmanager
def open_storage(url: str) -> Iterator[optuna.storages.RDBStorage]:
    """Optuna's storage at ``sqlite:///FILE`` or ``postgresql://...``, with the table of claims."""
    if not url.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
        raise ValueError(f"--storage must be sqlite:///FILE or postgresql://..., got {url!r}")
    options: dict[str, Any] = {"pool_pre_ping": True}  # survives a server that was restarted
    if url.startswith("sqlite"):
        options = {"connect_args": {"timeout": 60}}  # several drivers write in turn
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
                sql.event.listen(storage.engine, "connect", _without_waiting)
                storage.engine.dispose()  # the connections from before
            CLAIMS.create(storage.engine, checkfirst=True)
            return storage
        except (sql.exc.SQLAlchemyError, ImportError) as error:
            if wait is None:
                sentence = f"--storage {_shown(url)} could not be opened: {_reason(error, url)}"
                raise ValueError(sentence) from error
            time.sleep(wait)  # another driver may be making the same tables
    raise AssertionError


def _shown(url: str) -> str:
    return sql.make_url(url).render_as_string(hide_password=True)


def _reason(error: BaseException, url: str) -> str:
    """What the database itself said, in one line; SQLite does not say that a disk is full."""
    while error.__cause__ is not None:
        error = error.__cause__
    reason = " ".join(str(error).split())
    if url.startswith("sqlite"):
        free = shutil.disk_usage(Path(url.removeprefix("sqlite:///")).parent).free
        reason += f" ({free:,} bytes are free there)"
    return reason


def _without_waiting(connection: Any, _: object) -> None:
    """SQLite need not wait for the disk at every step, which is most of what a short trial costs.

    Whatever is killed, nothing is lost. After a power cut the last steps may be, but the records
    are on disk, and what was not told is told from them.
    """
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def studies(storage: optuna.storages.RDBStorage) -> list["Study"]:
    """All searches in a storage, but those whose ranges have changed since."""
    found = []
    for summary in optuna.get_all_study_summaries(storage, include_best_trial=False):
        if plan := summary.user_attrs.get("plan"):
            study = Study(Plan(**{**plan, "settings": tuple(plan["settings"])}), storage)
            found += [study] * (summary.user_attrs["space"] == spaces.fingerprint(study.space))
    return found


def unfinished(storage: optuna.storages.RDBStorage, experiment: str | None = None) -> list[Plan]:
    """The plans of all searches, or of those of one experiment, that are not over."""
    all_plans = [study.plan for study in studies(storage) if not study.over]
    plans = [plan for plan in all_plans if experiment in (None, plan.experiment)]
    if not plans:
        of = f" of {experiment}" if experiment else ""
        raise ValueError(f"--resume: there is no search{of} here that is not over")
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
        self._rested: dict[int, tuple[str, int, float]] = {}  # what was seen of others, since when

    def begin(self) -> None:
        """Write down what is searched; refuses a study that was begun with other ranges."""
        facts = self.optuna.user_attrs
        space = spaces.fingerprint(self.space)
        if facts.get("space", space) != space:
            raise ValueError(
                f"the search {self.plan.name!r} was begun with other ranges than there are now: "
                f"take another --seed or another --storage"
            )
        self.optuna.set_user_attr("space", space)
        self.optuna.set_user_attr("plan", asdict(self.plan))

    def take(self) -> optuna.Trial | None:
        """A trial for this driver to run: one that lost its driver, or a new one; None: not now."""
        found = self.optuna.get_trials(deepcopy=False)
        for trial in found[: self.plan.trials]:
            if trial.state == TrialState.RUNNING and self.claim(trial.number):
                again = optuna.Trial(self.optuna, trial._trial_id)
                if self._state(trial.number) == TrialState.RUNNING:
                    return again
                self._claimed.discard(trial.number)
        # Two drivers may both see room for the last trial: then there is one too many, which
        # nobody runs unless more trials are asked for.
        for _ in range(len(found), self.plan.trials):
            new = self.optuna.ask()
            if new.number < self.plan.trials and self.claim(new.number):
                return new
        return None

    def trial(self, asked: optuna.Trial) -> Trial:
        """The trial as it is run: its values are drawn now, unless they were before."""
        values = {}
        for name, range in spaces.ranges(self.space).items():
            self.optuna.sampler = self._sampler(asked.number, name)
            values[name] = range.suggest(asked, name)
        return Trial(self.space.config(values).untested(), TRIAL_SEED)

    def behind(self, asked: optuna.Trial, epoch: int, value: float) -> bool:
        """Keep what a running trial has reached, and say whether it is not worth going on."""
        with suppress(optuna.exceptions.UpdateFinishedTrialError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an epoch after a checkpoint may be told twice
            asked.report(value, epoch)
            return asked.should_prune()
        return False

    def tell(
        self, asked: optuna.Trial, state: TrialState, value: float | None = None, **facts: Any
    ) -> None:
        """The end of a trial, with facts about it; a second end of the same trial is not heard."""
        with suppress(optuna.exceptions.UpdateFinishedTrialError):
            for name, fact in facts.items():
                asked.set_user_attr(name, fact)
            self.optuna.tell(asked, value, state, skip_if_finished=True)
        self._claimed.discard(asked.number)

    def finished(self) -> list[FrozenTrial]:
        """The trials of the plan that are over, however they ended."""
        found = self.optuna.get_trials(deepcopy=False)[: self.plan.trials]
        return [trial for trial in found if trial.state.is_finished()]

    def best(self) -> FrozenTrial | None:
        """The trial with the lowest value so far, the first of equals."""
        done = [t for t in self.finished() if t.state == TrialState.COMPLETE]
        return min(done, key=lambda t: (t.value, t.number), default=None)

    def winner(self) -> Trial | None:
        """The best trial as it is run with the test set."""
        best = self.best()
        return Trial(self.space.config(best.params), TRIAL_SEED) if best else None

    @property
    def tested(self) -> dict[str, Any] | None:
        """What is known of the best trial on the test set, by any driver."""
        winner: dict[str, Any] = self.optuna.user_attrs.get("winner", {})
        best = self.best()
        return winner if best is not None and winner.get("number") == best.number else None

    @property
    def over(self) -> bool:
        """Whether all trials are over and the best was tested, if there is one."""
        full = len(self.finished()) >= self.plan.trials
        return full and (self.best() is None or self.tested is not None)

    def claim(self, number: int) -> bool:
        """Whether this driver may work on a number from now on, and nobody else."""
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
                    driver, beats, since = self._rested.get(number, (None, None, 0.0))
                    if (driver, beats) != tuple(other):
                        self._rested[number] = (other.driver, other.beats, time.monotonic())
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

    def beat(self) -> set[int]:
        """Show that this driver lives; returns the numbers that others have taken over."""
        mine = (CLAIMS.c.study == self.plan.name) & (CLAIMS.c.driver == self._driver)
        with self._engine.begin() as database:
            database.execute(CLAIMS.update().where(mine).values(beats=CLAIMS.c.beats + 1))
            held = set(database.execute(sql.select(CLAIMS.c.number).where(mine)).scalars())
        lost = self._claimed - held
        self._claimed -= lost
        return lost

    def release(self) -> None:
        """Give up all claims, so that the next driver need not wait."""
        mine = (CLAIMS.c.study == self.plan.name) & (CLAIMS.c.driver == self._driver)
        with self._engine.begin() as database:
            database.execute(CLAIMS.delete().where(mine))
        self._claimed.clear()

    def _state(self, number: int) -> TrialState:
        return self.optuna.get_trials(deepcopy=False)[number].state

    def _sampler(self, number: int, name: str) -> optuna.samplers.BaseSampler:
        """Draws one value; its seed depends on the plan's, the trial and the name, and no more."""
        text = f"{self.plan.seed} {number} {name}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        if self.plan.sampler == "tpe":
            return optuna.samplers.TPESampler(seed=seed)
        return optuna.samplers.RandomSampler(seed=seed)
