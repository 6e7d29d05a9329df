"""The command ``lpunits search``."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from lpunits.arguments import check_sizes
from lpunits.files import make_folder
from lpunits.paper.cli.folders import OUT, Settings, records_of, storage_of
from lpunits.paper.search.engines import Ray
from lpunits.paper.search.runner import Runner
from lpunits.paper.search.search import search as run_search
from lpunits.paper.search.study import Plan, unfinished
from lpunits.paper.training.records import Records
from lpunits.paper.training.trial import Scale


def search(
    experiment: str | None = None,
    /,
    *,
    scale: Scale = "quick",
    trials: int = 50,
    sampler: Literal["random", "tpe", "asha"] = "random",
    seed: int = 0,
    set_: Settings | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    cpus: int = 1,
    gpus: float = 0.0,
    storage: str | None = None,
    trial_timeout: float | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    records: Path | None = None,
    work: Path = OUT / "trials",
) -> int:
    """Search for the values with the lowest validation error.

    Args:
        experiment: mnist, modern, pentomino, covertype, fer2013, nottingham, jsb or musedata.
        scale: smoke takes seconds; quick takes minutes and no download; paper has full size.
        trials: The number of trials.
        sampler: random as in the paper; tpe learns from earlier trials; asha ends bad ones early.
        seed: Random seed of the values.
        set_: A fixed value for a field of the configs, such as activation=maxout.
        jobs: How many trials at a time; by default one for each core.
        ray: Run them on the Ray cluster at this address, such as 10.0.0.1:6379, or local.
        cpus: Processors for each trial on Ray.
        gpus: GPUs for each trial on Ray.
        storage: sqlite:///FILE or postgresql://..., for drivers on many machines; by default a
            file beside the records.
        trial_timeout: Seconds after which a trial is stopped.
        resume: Resume all unfinished searches of the storage, or those of the experiment.
        records: The folder of the records, as for `lpunits run`.
        work: The folder for checkpoints.
    """
    check_sizes(jobs=1 if jobs is None else jobs)
    folders = records_of(scale, records).folders
    store = Records(folders[0] / "search", *folders)
    for folder in (store.folders[0], work):  # an error must come before any training
        make_folder(folder)
    cluster = Ray(ray, cpus, gpus) if ray else None
    all_tested = True
    with storage_of(folders[0], storage) as opened:
        if resume:
            plans = unfinished(opened, experiment)
        elif experiment is None:
            raise ValueError("search needs the name of an experiment, such as mnist, or --resume")
        else:
            plans = [Plan(experiment, scale, sampler, seed, tuple(set_ or ()), trials)]
        for plan in plans:
            runner = Runner(store, work)
            result = run_search(plan, opened, runner, jobs=jobs, ray=cluster, timeout=trial_timeout)
            print(f"{plan.name}: {result}; records: {store.folders[0]}")
            print(f"next: {plan.repetition}; lpunits report")
            all_tested &= result.test is not None
    return 0 if all_tested else 1
