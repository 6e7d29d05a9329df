"""A study: the trials of one search in Optuna's storage, and which driver runs which trial.

With a random sampler the values of trial k depend on the study's seed and k alone. Drivers that are
killed, or that work in parallel, draw the same trials.

A driver runs the trials that it has claimed (:mod:`lpunits.paper.search.claims`). The trial of a
killed driver keeps its number. (Optuna's own heartbeat works in ``optimize`` only, gives a lost
trial a new number, and loses a trial whose driver dies between two of its steps.)
"""

import hashlib
import shlex
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import optuna
import sqlalchemy as sql
from optuna.trial import FrozenTrial, TrialState

from lpunits.arguments import check_choice, check_sizes
from lpunits.files import make_folder
from lpunits.paper.search import spaces
from lpunits.paper.search.claims import Claims, connected, readable_errors
from lpunits.paper.search.spaces import Space
from lpunits.paper.training.trial import Scale, Trial

Sampler = Literal["random", "tpe", "asha"]
TRIAL_SEED = 0  # of all trials of a search; `lpunits run --from-search` uses other seeds


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
        check_choice("sampler", self.sampler, get_args(Sampler))
        check_sizes(trials=self.trials)

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
    place = sql.make_url(url.replace("postgresql://", "postgresql+psycopg://", 1))
    options: dict[str, Any] = {"pool_pre_ping": True}  # works again after a restart of the server
    if place.drivername == "sqlite":
        options = {"connect_args": {"timeout": 60}}  # several drivers take turns to write
        if not (folder := Path(place.database or "").parent).exists():
            make_folder(folder)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    text = place.render_as_string(hide_password=False)
    with readable_errors(place, (sql.exc.DBAPIError, optuna.exceptions.StorageInternalError)):
        storage = connected(
            place, lambda: optuna.storages.RDBStorage(text, engine_kwargs=options), "--storage "
        )
        try:
            yield storage
        finally:
            storage.remove_session()
            storage.engine.dispose()


def studies(storage: optuna.storages.RDBStorage) -> list["Study"]:
    """All searches in a storage whose ranges are still the same."""
    found = []
    for summary in optuna.get_all_study_summaries(storage, include_best_trial=False):
        try:
            if plan := summary.user_attrs.get("plan"):
                study = Study(Plan(**{**plan, "settings": tuple(plan["settings"])}), storage)
                found += [study] * (summary.user_attrs["space"] == spaces.fingerprint(study.space))
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise ValueError(
                f"{storage.engine.url.database}: the search {summary.study_name!r:.100} is not one "
                f"of this version of lpunits ({reason:.200})"
            ) from error
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
    check_sizes(seeds=seeds)
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
    """The trials of a search, for one driver."""

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
        self.claims = Claims(storage.engine, plan.name)

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
        """The next trial for this driver: one that lost its driver, or a new one; None if none."""
        existing = self.optuna.get_trials(deepcopy=False)
        for trial in existing[: self.plan.trials]:
            if trial.state == TrialState.RUNNING and self.claims.claim(str(trial.number)):
                orphan = optuna.Trial(self.optuna, trial._trial_id)
                if self.optuna.get_trials(deepcopy=False)[trial.number].state == TrialState.RUNNING:
                    return orphan
                self.claims.release(str(trial.number))
        # Two drivers may both create the last trial. Then there is one too many, which is not run
        # unless the search is extended.
        for _ in range(len(existing), self.plan.trials):
            new = self.optuna.ask()
            if new.number < self.plan.trials and self.claims.claim(str(new.number)):
                return new
        return None

    def trial(self, asked: optuna.Trial) -> Trial:
        """The trial to run. Its values are drawn now, unless another driver has drawn them."""
        values = {}
        for name, range in self.space.ranges.items():
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
        self.claims.release(str(asked.number))

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

    def _sampler(self, number: int, name: str) -> optuna.samplers.BaseSampler:
        """The sampler of one value. Its seed depends on the plan's seed, the trial and the name."""
        text = f"{self.plan.seed} {number} {name}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        if self.plan.sampler == "tpe":
            return optuna.samplers.TPESampler(seed=seed)
        return optuna.samplers.RandomSampler(seed=seed)
