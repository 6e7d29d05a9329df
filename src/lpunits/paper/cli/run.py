"""The command ``lpunits run``."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from lpunits.paper import data as datasets
from lpunits.paper import experiments
from lpunits.paper.cli import tables
from lpunits.paper.cli.folders import OUT, RESULTS, Settings, records_of, storage_of
from lpunits.paper.register import hint
from lpunits.paper.report.parts import collect
from lpunits.paper.report.section import Experiment
from lpunits.paper.search.display import duration
from lpunits.paper.search.engines import Ray, jobs_for
from lpunits.paper.search.run import missing_data
from lpunits.paper.search.run import run as run_trials
from lpunits.paper.statistics import spread
from lpunits.paper.training import ranks
from lpunits.paper.training.records import Records
from lpunits.paper.training.settings import with_settings
from lpunits.paper.training.trial import SCALES, Scale, Trial

LABELS = 20  # at most, in an error message


def run(
    *names: str,
    scale: Scale = "quick",
    jobs: int | None = None,
    ray: str | None = None,
    cpus: int = 1,
    gpus: float = 0.0,
    data: str | None = None,
    set_: Settings | None = None,
    only: str = "",
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    from_search: Annotated[bool, Parameter(negative="")] = False,
    seeds: int = 5,
    storage: str | None = None,
    records: Path | None = None,
    work: Path = OUT / "trials",
    tensorboard: Path | None = None,
) -> int:
    """Run the trials of experiments that have no record yet.

    Args:
        names: The experiments, as `lpunits list` names them, or `all`.
        scale: smoke takes seconds; quick takes minutes and no download; paper has full size.
        jobs: How many trials at a time; by default one for each core.
        ray: Run them on the Ray cluster at this address, such as 10.0.0.1:6379, or local.
        cpus: Processors for each trial on Ray.
        gpus: GPUs for each trial on Ray.
        data: Another dataset, as `lpunits data` names it; for music, also the path of your own: a
            .mat or pickle of piano rolls, or a folder of MIDI files.
        set_: Another value for a field of the configs, as field=value; can be repeated.
        only: Only the trials whose label contains this text, such as "jsb, gru".
        dry_run: Print the trials and their expected times, and run nothing.
        from_search: Instead, repeat the winner of `lpunits search` with the same names and --set.
        seeds: With how many seeds the winner is repeated.
        storage: The storage of the search, if it had a --storage.
        records: The folder of the records; by default results/ for the scale paper, and
            reproduction/records/ for the others.
        work: The folder for checkpoints and trained models.
        tensorboard: Write TensorBoard curves and histograms of the orders to this folder.
    """
    if not names:
        raise ValueError("run needs the name of an experiment, or all: see `lpunits list`")
    store, settings = records_of(scale, records), [*_data_settings(data), *(set_ or ())]
    chosen: list[Experiment] = []
    if from_search:
        from lpunits.paper.search.study import winners

        with storage_of(store.folders[0], storage) as opened:
            wanted = [t for name in names for t in winners(opened, name, scale, settings, seeds)]
        expected = {t.key: _measured(t, store) or 0.0 for t in wanted}
    else:
        chosen = experiments.chosen(names)
        expected, wanted = _plan(chosen, scale, settings, only)
    if dry_run:
        _print_plan(wanted, expected, store, jobs)
        return 0
    cluster = Ray(ray, cpus, gpus) if ray else None
    result = run_trials(
        wanted, store, work, jobs=jobs, ray=cluster, tensorboard=tensorboard, expected=expected
    )
    if ranks.rank() > 0:
        return 0
    if from_search:
        _print_scores(wanted, store)
    tables.print_parts(collect(chosen, store, (scale,), settings))
    if chosen and scale != "paper" and not RESULTS.is_dir():
        tables.print_shipped(chosen)
    print(f"{result}; records: {store.folders[0]}")
    models = [work / record["key"] / "model.safetensors" for record in result.new]
    if models := [str(path) for path in models if path.exists()]:
        path = models[0] if len(models) == 1 else f"{work}/*/model.safetensors"
        print(f"trained models: {path}; in Python, lpunits.paper.load_model(path)")
    options = [] if scale == "quick" else ["--scale", scale]
    options += [] if records is None else ["--records", str(records)]
    options += [word for setting in settings for word in ("--set", setting)]
    print(f"report: {shlex.join(['lpunits', 'report', *names * ('all' not in names), *options])}")
    return 1 if result.failed or (result.left_out and not result.new and not result.recorded) else 0


def _data_settings(name: str | None) -> list[str]:
    """The settings of --data. Music of one's own is known by its path and its content."""
    if name is None or name in datasets.DATASETS:
        return [] if name is None else [f"data={name}"]
    if not (path := Path(name).absolute()).exists():
        raise ValueError(
            "--data must be a dataset or the path of piano rolls, "
            f"got {name!r}: {hint(name, datasets.DATASETS)}"
        )
    music = datasets.load_music(path)
    sizes = " / ".join(str(len(part)) for part in (music.train, music.valid, music.test))
    print(f"{path}: {sizes} pieces to train, validate and test")
    return [f"data={path}", f"checksum={music.checksum[:16]}"]


def _plan(
    chosen: Sequence[Experiment], scale: Scale, settings: Sequence[str], only: str
) -> tuple[dict[str, float], list[Trial]]:
    """The expected seconds of the trials by key, and the trials."""
    expected: dict[str, float] = {}
    wanted: list[Trial] = []
    known = Records(RESULTS, OUT / "records")
    for experiment in chosen:
        trials = [t for t in experiment.trials(scale) if only in t.label]
        # The minutes are those of two cores.
        share = 120 * experiment.minutes[scale] / max(1, len(experiment.trials(scale)))
        for trial, changed in zip(trials, with_settings(trials, settings), strict=True):
            wanted.append(changed)
            if changed.key not in expected:
                expected[changed.key] = _measured(trial, known) or share
    if only and not wanted:
        raise ValueError(_no_match(chosen, scale, only))
    return expected, wanted


def _measured(trial: Trial, known: Records) -> float | None:
    """The seconds of a recorded trial with the same config."""
    for seed in dict.fromkeys((trial.seed, 0)):
        if record := known.find(Trial(trial.config, seed)):
            return float(record["seconds"])
    return None


def _no_match(chosen: Sequence[Experiment], scale: Scale, only: str) -> str:
    """The message for an --only that matches nothing."""
    found = {s: [t for e in chosen for t in e.trials(s) if only in t.label] for s in SCALES}
    others = [f"{len(trials)} at --scale {s}" for s, trials in found.items() if trials]
    elsewhere = f" It matches {', '.join(others)}." if others else ""
    labels = _labels([t for e in chosen for t in e.trials(scale)])
    lines = [f"  {label}" for label in list(labels)[:LABELS]]
    lines += [f"  and {len(labels) - LABELS} more"] if len(labels) > LABELS else []
    first = f"--only {only!r} matches no label at --scale {scale}.{elsewhere} The labels are"
    return "\n".join([first, *lines])


def _labels(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """The trials by their label; those that differ in the seed alone together."""
    groups: dict[str, list[Trial]] = {}
    for trial in {trial.key: trial for trial in trials}.values():
        groups.setdefault(trial.config.label, []).append(trial)
    return {f"{label}, {_seeds([t.seed for t in some])}": some for label, some in groups.items()}


def _seeds(seeds: Sequence[int]) -> str:
    """Seeds as text.

    >>> _seeds([0]), _seeds([2, 0, 1]), _seeds([0, 2])
    ('seed 0', 'seeds 0-2', 'seeds 0, 2')
    """
    seeds = sorted(set(seeds))
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    together = seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"seeds {seeds[0]}-{seeds[-1]}" if together else f"seeds {', '.join(map(str, seeds))}"


def _print_plan(
    wanted: Sequence[Trial], expected: Mapping[str, float], store: Records, jobs: int | None
) -> None:
    missing = {t.key: t for t in store.missing(wanted)}
    rows = []
    for label, trials in _labels(wanted).items():
        todo = [t for t in trials if t.key in missing]
        needs = sorted({name for t in todo for name in missing_data(t)})
        time = duration(sum(expected[t.key] for t in todo))
        state = f"needs {', '.join(needs)}" if needs else time if todo else "has a record"
        rows.append([label, state])
    tables.print_rows(["trials", "time"], rows, shrinks="trials")
    jobs = jobs or jobs_for(list({t.key: t for t in wanted}.values()))
    total = sum(expected[key] for key in missing) / max(1, min(jobs, len(missing)))
    at_a_time = f"{jobs} at a time, about {duration(total)}"
    print(f"{len(missing)} of {len(expected)} trials have no record: {at_a_time}")


def _print_scores(wanted: Sequence[Trial], store: Records) -> None:
    """The test scores of the winners over their seeds."""
    for label, trials in _labels(wanted).items():
        scores = [r.config.score(r.outcome, "test") for r in store.results(trials)]
        if scores:
            error = trials[0].config.watched.endswith("error")
            print(f"{label}: {spread(scores, '.2%' if error else '.3f')} on test")
