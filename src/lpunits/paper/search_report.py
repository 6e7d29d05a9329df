"""Searches in the report: for each study its best trials, what mattered, and the winner's test."""

import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, takewhile
from typing import Any

import optuna
from matplotlib.figure import Figure
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState

from lpunits.paper import spaces
from lpunits.paper.experiment import Experiment, Picture, Result, Section, Table, Trial, spread
from lpunits.paper.figures import COLORS, NAMES, QUIET
from lpunits.paper.records import Records
from lpunits.paper.report import Part
from lpunits.paper.study import TRIAL_SEED, Plan, Study, studies

BEST = 10  # trials in the table
UNITS = ("activation", "model")  # the fields of configs that name the kind of units
ENOUGH = 4  # finished trials, before anything is said about what mattered


def collect(storage: optuna.storages.RDBStorage, store: Records) -> list[Part]:
    """A part of the report for each search in a storage that has a finished trial.

    The same search for several kinds of units is a family: the first of it compares them.
    """
    families: dict[Plan, list[Study]] = {}
    for study in studies(storage):
        if study.best() is not None:
            families.setdefault(_whatever_units(study.plan), []).append(study)
    return [
        _part(study, store, family if study is family[0] else ())
        for family in families.values()
        for study in family
    ]


def _whatever_units(plan: Plan) -> Plan:
    """The plan without the setting that names the kind of units."""
    others = [s for s in plan.settings if s.partition("=")[0].strip() not in UNITS]
    return replace(plan, settings=tuple(sorted(others)))


def _part(study: Study, store: Records, family: Sequence[Study]) -> Part:
    plan, base = study.plan, study.space.base
    trials = [Trial(study.space.config(t.params).untested(), TRIAL_SEED) for t in _complete(study)]
    slug = re.sub(r"[^a-z0-9]+", "-", f"search {plan.name}".lower()).strip("-")
    experiment = Experiment(
        name=slug,
        title=f"Search: {plan.name}",
        about=f"{plan.trials} trials of {base.label} with values drawn from ranges; the lowest "
        f"{_metric(study)} on validation wins, and only the winner is tested.",
        trials=lambda scale: trials,
        section=lambda results: section(study, store, slug, family),
        minutes={},
    )
    shown = section(study, store, slug, family)
    return Part(experiment, plan.scale, plan.command, trials, store.results(trials), shown)


def section(study: Study, store: Records, slug: str, family: Sequence[Study] = ()) -> Section:
    """What a search has found, beside the same search for other units."""
    done, finished = _complete(study), study.finished()
    best, winner = study.best(), study.winner()
    assert best is not None
    assert winner is not None
    assert best.value is not None
    names = list(spaces.ranges(study.space))
    verdict = (
        f"Trial {best.number} of {study.plan.trials} has the lowest {_metric(study)} on "
        f"validation, {best.value:.4g}."
    )
    if tested := study.tested:
        test = "could not be evaluated" if tested["test"] is None else f"is {tested['test']:.4g}"
        verdict += f" On the test set, looked at once, it {test}."
    else:
        verdict += " The search is not over: nothing was tested."
    if len(repeated := _repeated(store, winner)) > 1:
        scores = [r.config.score(r.outcome, "test") for r in repeated]
        verdict += f" With other seeds the winner has {spread(scores, '.4g')} on test."
    rows = [
        [str(t.number), f"{t.value:.4g}", *(_text(t.params.get(name)) for name in names)]
        for t in done[:BEST]
    ]
    pictures = [
        Picture(
            f"{slug}-slices",
            slices(done, names, _metric(study)),
            f"The {_metric(study)} of every trial over each value that was searched",
            "A dot for each trial, the winner filled.",
        )
    ]
    if len(done) >= ENOUGH and (found := importances(study)):
        caption = "How much of the variance over trials each value explains (fANOVA)."
        alt = "The importance of each value that was searched"
        pictures.insert(0, Picture(f"{slug}-importance", bars(found), alt, caption))
    other = [t for t in finished if t.state != TrialState.COMPLETE]
    notes = []
    if pruned := sum(t.state == TrialState.PRUNED for t in other):
        notes.append(f"{pruned} trials were ended early, since they were behind others.")
    if failed := [t for t in other if t.state == TrialState.FAIL]:
        reasons = "; ".join(f"{t.number}: {t.user_attrs.get('error')}" for t in failed[:5])
        more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
        notes.append(f"Trials that came to nothing: {reasons}{more}.")
    head = ["trial", _metric(study), *(name.replace("_", " ") for name in names)]
    tables = [Table(head, rows, "The best trials")]
    if len(family) > 1:
        tables.insert(0, compared(family, store))
    return Section(verdict, tables, pictures, notes)


def compared(family: Sequence[Study], store: Records) -> Table:
    """What the same search has found for each kind of units."""
    rows = []
    for study in family:
        best, winner, base = study.best(), study.winner(), study.space.base
        assert best is not None
        assert winner is not None
        form = ".2%" if _metric(study) == "error" else ".3f"
        kind = next(getattr(base, name) for name in UNITS if hasattr(base, name))
        tests = [r.config.score(r.outcome, "test") for r in _repeated(store, winner)]
        finished = f"{len(study.finished())} of {study.plan.trials}"
        found = spread(tests, form) if tests else "not tested yet"
        rows.append([NAMES.get(kind, kind), finished, format(best.value, form), found])
    metric = _metric(family[0])
    head = ["units", "trials", f"lowest {metric} on validation", "on test, over seeds"]
    return Table(head, rows, "The same search for each kind of units: each has its own values")


def importances(study: Study) -> dict[str, float]:
    """How much of the variance each value explains; none if all trials are alike."""
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = optuna.importance.get_param_importances(study.optuna, evaluator=evaluator)
        except RuntimeError:  # no variance to explain
            return {}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def bars(found: dict[str, float]) -> Figure:
    """A bar for each value, the most important one on top."""
    fig = Figure(figsize=(7, 0.8 + 0.3 * len(found)), layout="constrained")
    axes = fig.subplots()
    names = sorted(found, key=lambda name: found[name])
    drawn = axes.barh([n.replace("_", " ") for n in names], [found[n] for n in names])
    for bar in drawn:
        bar.set_color(COLORS["lp"])
    axes.set_xlabel("importance")
    axes.spines[["top", "right"]].set_visible(False)
    return fig


def slices(done: Sequence[FrozenTrial], names: Sequence[str], metric: str) -> Figure:
    """A panel for each value: the metric of all trials over it. The first trial is the winner."""
    columns = min(4, len(names)) or 1
    lines = math.ceil(len(names) / columns) or 1
    fig = Figure(figsize=(1 + 2.3 * columns, 0.4 + 2.1 * lines), layout="constrained")
    panels = fig.subplots(lines, columns, squeeze=False, sharey=True)
    for index, axes in enumerate(panels.flat):
        if index >= len(names):
            axes.set_visible(False)
            continue
        name = names[index]
        drawn_from = done[0].distributions[name]
        places: list[Any] = [t.params[name] for t in done]
        if isinstance(drawn_from, CategoricalDistribution):
            options = list(drawn_from.choices)
            places = [options.index(place) for place in places]
            axes.set_xticks(range(len(options)), [_text(option) for option in options])
        elif isinstance(drawn_from, FloatDistribution) and drawn_from.log:
            axes.set_xscale("log")
            ends = drawn_from.low, drawn_from.high
            ticks = [ends[0], math.sqrt(math.prod(ends)), ends[1]]
            axes.set_xticks(ticks, [f"{tick:.1g}" for tick in ticks])
            axes.minorticks_off()  # their labels would overlap
            axes.set_xlim(ends[0] / 1.2, ends[1] * 1.2)
        values = [t.value for t in done]
        axes.plot(places[1:], values[1:], "o", ms=4, mfc="none", color=QUIET)
        axes.plot(places[:1], values[:1], "o", ms=7, color=COLORS["lp"])
        axes.set_xlabel(name.replace("_", " "))
        axes.spines[["top", "right"]].set_visible(False)
        if index % columns == 0:
            axes.set_ylabel(metric)
    return fig


def _complete(study: Study) -> list[FrozenTrial]:
    """The trials with a value, the best first."""
    done = [t for t in study.finished() if t.state == TrialState.COMPLETE]
    return sorted(done, key=lambda t: (t.value, t.number))


def _repeated(store: Records, winner: Trial) -> list[Result]:
    """The results of the winner with the seeds 0, 1, ... as far as they go."""
    found = (store.results([Trial(winner.config, seed)]) for seed in count())
    return [one[0] for one in takewhile(bool, found)]


def _metric(study: Study) -> str:
    return "error" if study.space.base.watched == "valid_error" else "NLL"


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
