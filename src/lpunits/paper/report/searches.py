"""Searches in the report: the winners, the best trials, and which hyperparameters mattered.

The same search for several kinds of unit is a family, and one part of the report: units are
compared where each kind has had the same budget and hyperparameters of its own. The winners of all
families together come first.
"""

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, takewhile
from typing import Any

import optuna
from matplotlib.figure import Figure
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState

from lpunits.paper.report import equal_budgets
from lpunits.paper.report.equal_budgets import Contest
from lpunits.paper.report.figures import COLORS, NAMES, QUIET, panels
from lpunits.paper.report.outcomes import TITLES
from lpunits.paper.report.parts import Part
from lpunits.paper.report.section import Experiment, Picture, Section, Table
from lpunits.paper.search.study import TRIAL_SEED, Plan, Study, studies
from lpunits.paper.statistics import spread
from lpunits.paper.training.records import Records
from lpunits.paper.training.trial import Scale, Trial

BEST = 5  # trials in the table of each kind of unit
UNITS = ("activation", "model")  # the fields of configs that name the kind of unit
ENOUGH = 4  # finished trials, before importances are estimated


def collect(storage: optuna.storages.RDBStorage, store: Records) -> list[Part]:
    """A part of the report for each family of searches in a storage that has a finished trial."""
    families: dict[Plan, list[Study]] = {}
    for study in studies(storage):
        if study.best() is not None:
            others = [s for s in study.plan.settings if s.partition("=")[0].strip() not in UNITS]
            plan = replace(study.plan, settings=tuple(sorted(others)))
            families.setdefault(plan, []).append(study)
    parts = []
    for scale in dict.fromkeys(plan.scale for plan in families):
        alike = [family for plan, family in families.items() if plan.scale == scale]
        parts += _equal_budgets(scale, alike, store)
    seen: Counter[str] = Counter()
    for plan, family in families.items():
        seen[plan.experiment] += 1
        number = f"-{seen[plan.experiment]}" if seen[plan.experiment] > 1 else ""
        parts.append(_part(f"search-{plan.experiment}{number}", plan, family, store))
    return parts


def _equal_budgets(scale: Scale, families: Sequence[Sequence[Study]], store: Records) -> list[Part]:
    """The winners of the families with Lp and other units: one part, or none."""
    contests, trials = [], []
    for family in families:
        over = {_kind(study): study for study in family if study.tested}
        tests = {kind: found for kind, study in over.items() if (found := _tests(study, store))}
        if "lp" not in tests or len(tests) < 2:
            continue
        study = over["lp"]
        data = TITLES.get(study.space.base.data, study.space.base.data)
        budget = f"{study.plan.trials} trials of {study.space.base.epochs} epochs"
        contests.append(Contest(data, budget, _metric(study), _form(study), tests))
        for kind, found in tests.items():
            winner = over[kind].winner()
            assert winner is not None
            trials += [Trial(winner.config, seed) for seed in range(len(found))]
    if not contests:
        return []
    about = (
        "Each kind of unit had a search of its own on every dataset, with the same number of "
        "trials, epochs and weights; these are the test numbers of the winners."
    )
    title = "Equal budgets: each kind of unit after a search of its own"
    command = "lpunits search ...; lpunits run ... --from-search"  # in full with each search
    shown = equal_budgets.section(contests)
    experiment = Experiment("equal-budgets", title, about, lambda _: trials, lambda _: shown, {})
    return [Part(experiment, scale, command, trials, store.results(trials), shown)]


def _part(name: str, plan: Plan, family: Sequence[Study], store: Records) -> Part:
    trials = [
        Trial(study.space.config(t.params).untested(), TRIAL_SEED)
        for study in family
        for t in _complete(study)
    ]
    each = f" for each of {len(family)} kinds of unit" if len(family) > 1 else ""
    fixed = f" Fixed: `{'`, `'.join(plan.settings)}`." if plan.settings else ""
    about = (
        f"{plan.trials} trials{each} (sampler {plan.sampler}, seed {plan.seed}); the lowest "
        f"{_metric(family[0])} on the validation set wins, and only the winner is tested.{fixed}"
    )
    title = f"Search: {plan.experiment}, {plan.trials} trials{each}"
    commands = []
    for study in family:
        seeds = len(_tests(study, store))
        more = f"; {study.plan.repetition} --seeds {seeds}" if seeds > 1 else ""
        commands.append(study.plan.command + more)
    shown = section(family, store, name)
    experiment = Experiment(name, title, about, lambda _: trials, lambda _: shown, {})
    results = store.results(trials)
    return Part(experiment, plan.scale, "\n".join(commands), trials, results, shown)


def section(family: Sequence[Study], store: Records, name: str) -> Section:
    """What the searches of a family found."""
    metric = _metric(family[0])
    details: list[Table | Picture] = [_best(study) for study in family]
    explained = {_units(s): found for s in family if (found := importances(s))}
    if explained:
        caption = "How much of the variance over trials each hyperparameter explains (fANOVA)."
        alt = "The importance of each hyperparameter"
        details.append(Picture(f"{name}-importance", bars(explained), alt, caption))
    alt = f"The {metric} of every trial against each hyperparameter"
    caption = "A dot for each trial, the winner filled."
    details.append(Picture(f"{name}-slices", slices(family), alt, caption))
    notes = []
    for study in family:
        other = [t for t in study.finished() if t.state != TrialState.COMPLETE]
        if pruned := sum(t.state == TrialState.PRUNED for t in other):
            notes.append(f"{_units(study)}: {pruned} trials were pruned.")
        if failed := [t for t in other if t.state == TrialState.FAIL]:
            reasons = "; ".join(f"{t.number}: {t.user_attrs.get('error')}" for t in failed[:5])
            more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
            notes.append(f"{_units(study)}: failed trials: {reasons}{more}.")
    rows, sentences = [], []
    for study in family:
        best, tests = study.best(), _tests(study, store)
        assert best is not None
        score, units = format(best.value, _form(study)), _units(study)
        tested = spread(tests, _form(study)) if tests else "not tested"
        rows.append([units, f"{len(study.finished())} of {study.plan.trials}", score, tested])
        ending = f", {tested} on test" if tests else "; the winner was not tested"
        if not study.tested:
            ending = "; the search has not finished, nothing was tested"
        sentences.append(f"{units}: {score} on validation (trial {best.number}){ending}.")
    head = ["units", "trials", f"lowest validation {metric}", f"test {metric}"]
    return Section(" ".join(sentences), [Table(head, rows)], (), notes, (), details)


def _best(study: Study) -> Table:
    names = list(study.space.ranges)
    rows = [
        [
            str(t.number),
            format(t.value, _form(study)),
            *(_text(t.params.get(name)) for name in names),
        ]
        for t in _complete(study)[:BEST]
    ]
    head = ["trial", _metric(study), *(name.replace("_", " ") for name in names)]
    return Table(head, rows, f"The best trials: {_units(study)}")


def importances(study: Study) -> dict[str, float]:
    """How much of the variance each hyperparameter explains; empty if trials are too few."""
    if len(_complete(study)) < ENOUGH:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = optuna.importance.get_param_importances(study.optuna, evaluator=evaluator)
        except RuntimeError:  # no variance to explain
            return {}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def bars(explained: dict[str, dict[str, float]]) -> Figure:
    """A panel for each kind of unit, a bar for each hyperparameter, the most important on top."""
    most = max(map(len, explained.values()))
    width = max(7 / len(explained), 3.4)
    fig, drawn = panels(1, len(explained), width, 0.9 + 0.3 * most, share="x")
    for axes, (units, found) in zip(drawn, explained.items(), strict=True):
        names = sorted(found, key=lambda name: found[name])
        labels = [name.replace("_", " ") for name in names]
        axes.barh(labels, [found[name] for name in names], color=COLORS["lp"])
        axes.set_title(units, loc="left", fontsize=10)
        axes.set_xlabel("importance")
    return fig


def slices(family: Sequence[Study]) -> Figure:
    """A panel for each hyperparameter: the metric of all trials, the winners filled."""
    done = {_kind(study): _complete(study) for study in family}
    drawn_from = {n: d for trials in done.values() for n, d in trials[0].distributions.items()}
    columns = min(4, len(drawn_from)) or 1
    lines = math.ceil(len(drawn_from) / columns) or 1
    fig, drawn = panels(lines, columns, 2.3 + 1 / columns, 2.1 + 0.4 / lines, share="y")
    for axes in drawn[len(drawn_from) :]:
        axes.set_visible(False)
    for axes in drawn[::columns]:
        axes.set_ylabel(_metric(family[0]))
    for axes, (name, distribution) in zip(drawn, drawn_from.items(), strict=False):
        for kind, trials in done.items():
            places: list[Any] = [t.params[name] for t in trials if name in t.params]
            if not places:  # these units do not have it
                continue
            if isinstance(distribution, CategoricalDistribution):
                places = [distribution.choices.index(place) for place in places]
            values: list[Any] = [t.value for t in trials]
            color = COLORS.get(kind, QUIET)
            axes.plot(places[1:], values[1:], "o", ms=4, mfc="none", color=color)
            axes.plot(places[:1], values[:1], "o", ms=7, color=color, label=NAMES.get(kind, kind))
        if isinstance(distribution, CategoricalDistribution):
            options = distribution.choices
            axes.set_xticks(range(len(options)), [_text(option) for option in options])
        elif isinstance(distribution, FloatDistribution) and distribution.log:
            axes.set_xscale("log")
            ends = distribution.low, distribution.high
            ticks = [ends[0], math.sqrt(math.prod(ends)), ends[1]]
            axes.set_xticks(ticks, [f"{float(f'{tick:.1g}'):g}" for tick in ticks])
            axes.minorticks_off()  # their labels would overlap
            axes.set_xlim(ends[0] / 1.2, ends[1] * 1.2)
        axes.set_xlabel(name.replace("_", " "))
    if len(family) > 1:
        shown = (axes.get_legend_handles_labels() for axes in drawn)
        everyone = max(shown, key=lambda legend: len(legend[0]))
        fig.legend(*everyone, loc="outside upper left", ncols=len(family), frameon=False)
    return fig


def _complete(study: Study) -> list[FrozenTrial]:
    """The trials with a value, the best first."""
    done = [t for t in study.finished() if t.state == TrialState.COMPLETE]
    return sorted(done, key=lambda t: (t.value, t.number))


def _tests(study: Study, store: Records) -> list[float]:
    """The test numbers of the winner with the seeds 0, 1, ... as far as there are records."""
    winner = study.winner()
    assert winner is not None
    found = (store.results([Trial(winner.config, seed)]) for seed in count())
    return [one[0].config.score(one[0].outcome, "test") for one in takewhile(bool, found)]


def _kind(study: Study) -> str:
    return str(next(getattr(study.space.base, f) for f in UNITS if hasattr(study.space.base, f)))


def _units(study: Study) -> str:
    return NAMES.get(_kind(study), _kind(study))


def _form(study: Study) -> str:
    return ".2%" if _metric(study) == "error" else ".3f"


def _metric(study: Study) -> str:
    return "error" if study.space.base.watched == "valid_error" else "NLL"


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
