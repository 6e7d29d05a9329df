"""The command line: parses arguments, calls :mod:`lpunits.paper`. No logic of its own."""

import subprocess
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

try:
    from cyclopts import App, Parameter
except ImportError as error:  # pragma: no cover
    raise SystemExit("lpunits: the command line needs lpunits[paper]") from error

import lpunits
from lpunits.paper.cli import data as cli_data
from lpunits.paper.cli import music as cli_music
from lpunits.paper.cli import playground as cli_playground
from lpunits.paper.training.trial import SCALES, Scale

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from optuna.storages import RDBStorage

    from lpunits.paper.training.records import Records

app = App(
    name="lpunits",
    help="Learned-norm pooling: the experiments of the paper, one command each.",
    version=lpunits.__version__,
)
app.command(cli_data.app)
app.command(cli_music.app)
app.command(cli_playground.playground)
app.register_install_completion_command()

# Records of full-scale runs are part of the repository; everything else can be made again.
RESULTS, OUT = Path("results"), Path("reproduction")
REPORTED: tuple[Scale, ...] = ("paper", "quick")
Settings = Annotated[
    list[str], Parameter(name="--set", consume_multiple=False, negative="", show_default=False)
]


@app.command(name="list")
def list_all() -> None:
    """List every experiment: what it shows, how long each scale takes, which records exist."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from lpunits.paper import experiments

    table = Table(box=box.SIMPLE)
    for title in ("name", "scale", "time", "records"):
        table.add_column(title, no_wrap=True)
    table.add_column("what it shows")
    for experiment in experiments.chosen(("all",)):
        times, counts = [], []
        for scale in SCALES:
            minutes = experiment.minutes[scale]
            time = f"{minutes:.0f} min" if minutes >= 1 else f"{60 * minutes:.0f} s"
            times.append(time if minutes < 90 else f"{minutes / 60:.0f} h")
            trials = {trial.key: trial for trial in experiment.trials(scale)}.values()
            done = len(_records(scale, None).results(trials))
            counts.append(f"{done} of {len(trials)}" if trials else "none needed")
        columns = ("\n".join(lines) for lines in (SCALES, times, counts))
        table.add_row(experiment.name, *columns, f"{experiment.title}\n{experiment.about}\n")
    Console().print(table)
    print("time: of all trials of the scale, on two cores; records: finished trials")


@app.command
def run(
    *names: str,
    scale: Scale = "quick",
    jobs: int | None = None,
    ray: str | None = None,
    cpus: int = 1,
    gpus: float = 0.0,
    set_: Settings | None = None,
    only: str = "",
    from_search: Annotated[bool, Parameter(negative="")] = False,
    seeds: int = 5,
    storage: str | None = None,
    records: Path | None = None,
    work: Path = OUT / "trials",
    tensorboard: Path | None = None,
) -> int:
    """Run the trials of experiments that have no record yet. A run that was killed goes on.

    `torchrun --nproc-per-node N -m lpunits run ...` trains each net by N processes together.

    Args:
        names: The experiments, as `lpunits list` names them, or `all`.
        scale: smoke takes seconds; quick takes minutes and no download; paper is the real thing.
        jobs: How many trials at a time, in processes among which the threads are divided.
        ray: Run them on the Ray cluster of this address, such as 10.0.0.1:6379, or local.
        cpus: Processors for each trial on Ray.
        gpus: GPUs for each trial on Ray.
        set_: Another value for a field of the configs, as field=value; may be given several times.
        only: Only the trials whose label has this text, such as "jsb, gru".
        from_search: Instead, repeat the winner of `lpunits search` with the same names and --set.
        seeds: How often the winner is repeated, each time with another seed.
        storage: Where the search is, if it had a --storage.
        records: The folder of the records; by default results/ for the scale paper, and
            reproduction/records/ for the others.
        work: The folder for checkpoints and trained models.
        tensorboard: Write curves and histograms of the orders to this folder.
    """
    from lpunits.paper import experiments
    from lpunits.paper.search.engines import Ray
    from lpunits.paper.search.run import run as run_trials
    from lpunits.paper.training import ranks
    from lpunits.paper.training.settings import with_settings

    if not names:
        raise ValueError("run needs the name of an experiment, or all: see `lpunits list`")
    store = _records(scale, records)
    if from_search:
        from lpunits.paper.search.study import winners

        with _storage(store.folders[0], storage) as base:
            wanted = [t for name in names for t in winners(base, name, scale, set_ or (), seeds)]
    else:
        wanted = [trial for e in experiments.chosen(names) for trial in e.trials(scale)]
        wanted = [trial for trial in wanted if only in trial.label]
        if only and not wanted:
            raise ValueError(f"--only: no trial has {only!r} in its label")
        wanted = with_settings(wanted, set_ or ())
    cluster = Ray(ray, cpus, gpus) if ray else None
    ran = run_trials(wanted, store, work, jobs=jobs, ray=cluster, tensorboard=tensorboard)
    if ranks.rank() > 0:
        return 0
    print(
        f"{len(ran.new)} trials run, {ran.before} had a record, {len(ran.failed)} failed, "
        f"{len(ran.left_out)} left out; records: {store.folders[0]}"
    )
    return 1 if ran.failed or (ran.left_out and not ran.new and not ran.before) else 0


@app.command
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
    """Search for the values with the lowest validation error; test the winner, once.

    The same command goes on where it stopped, and may be given several times at once.

    Args:
        experiment: mnist, modern, pentomino, covertype, fer2013, nottingham, jsb or musedata.
        scale: smoke takes seconds; quick takes minutes and no download; paper is the real thing.
        trials: How many trials in all.
        sampler: random as in the paper; tpe looks at the trials before; asha ends bad ones early.
        seed: Of the values that are drawn.
        set_: A fixed value for a field of the configs, such as activation=maxout.
        jobs: How many trials at a time, in processes among which the threads are divided.
        ray: Run them on the Ray cluster of this address, such as 10.0.0.1:6379, or local.
        cpus: Processors for each trial on Ray.
        gpus: GPUs for each trial on Ray.
        storage: sqlite:///FILE or postgresql://..., for drivers on many machines; by default a
            file beside the records.
        trial_timeout: Seconds after which a trial is given up.
        resume: Go on with every search of the storage that is not over, or those of the experiment.
        records: The folder of the records, as for `lpunits run`.
        work: The folder for checkpoints.
    """
    from lpunits.paper.files import make_folder
    from lpunits.paper.search.engines import Ray, Work
    from lpunits.paper.search.run import check_jobs
    from lpunits.paper.search.search import search as run_search
    from lpunits.paper.search.study import Plan, unfinished
    from lpunits.paper.training.records import Records

    check_jobs(jobs)
    folders = _records(scale, records).folders
    store = Records(folders[0] / "search", *folders)
    for folder in (store.folders[0], work):  # before anything has cost time
        make_folder(folder)
    cluster = Ray(ray, cpus, gpus) if ray else None
    good = True
    with _storage(folders[0], storage) as base:
        if resume:
            plans = unfinished(base, experiment)
        elif experiment is None:
            raise ValueError("search needs the name of an experiment, such as mnist, or --resume")
        else:
            plans = [Plan(experiment, scale, sampler, seed, tuple(set_ or ()), trials)]
        for plan in plans:
            work_on = Work(store, work)
            found = run_search(plan, base, work_on, jobs=jobs, ray=cluster, timeout=trial_timeout)
            print(f"{plan.name}: {found}; records: {store.folders[0]}")
            good &= found.test is not None
    return 0 if good else 1


@app.command
def report(
    *names: str,
    scale: Scale | None = None,
    set_: Settings | None = None,
    storage: str | None = None,
    records: Path | None = None,
    out: Path = OUT,
    open_: Annotated[bool, Parameter(name="--open", negative="")] = False,
    markdown: Path | None = None,
) -> None:
    """Make the report from the records: one HTML page, and its figures as SVG and PNG.

    Args:
        names: The experiments to report; all of them if none is named.
        scale: Report this scale alone; by default paper and quick.
        set_: Report the trials that were run with this --set; may be given several times.
        storage: The storage of the searches to report, if they had a --storage.
        records: The folder of the records; by default results/ and reproduction/records/.
        out: The folder for index.html and figures/.
        open_: Open the page in the browser.
        markdown: Write this page of the documentation instead, from the records of the scale paper
            alone; its figures go to a folder of images/ beside it.
    """
    from lpunits.paper import experiments
    from lpunits.paper.report import markdown as document
    from lpunits.paper.report import page
    from lpunits.paper.training.records import Records

    wanted = experiments.chosen(names or ("all",))
    if markdown is None:
        scales = (scale,) if scale else REPORTED
        folders = [path for each in ("quick", *scales) for path in _records(each, records).folders]
        store = Records(*dict.fromkeys(folders))
    else:
        store, scales = Records(records or RESULTS), (scale or "paper",)
    parts = page.collect(wanted, store, scales, set_ or ())
    files = [folder / "search" / "studies.db" for folder in store.folders]
    urls = [storage] if storage else [f"sqlite:///{path}" for path in files if path.exists()]
    if urls:
        from lpunits.paper.report import searches as search_report
        from lpunits.paper.search.study import open_storage

        for url in urls:
            with open_storage(url) as base:
                parts += [p for p in search_report.collect(base, store) if p.scale in scales]
    shown = {part.experiment.name for part in parts}
    missing = [e for e in wanted if e.name not in shown]
    if markdown is not None:
        print(f"results: {document.write(markdown, parts, store, missing)}")
        return
    path = page.write(out, parts, missing, store.findings()).resolve()
    print(f"report: {path.as_uri()}")
    if open_:
        webbrowser.open(path.as_uri())


@app.command
def bench(
    *arguments: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="For benchmarks/run.py: --quick, --only.")
    ],
) -> int:
    """Time the units against their alternatives; nothing else should be running."""
    script = Path(__file__).parents[4] / "benchmarks" / "run.py"
    if not script.exists():
        raise ValueError(f"bench needs the source tree of lpunits, there is no {script}")
    return subprocess.run([sys.executable, str(script), *arguments], check=False).returncode


def _records(scale: Scale, folder: Path | None) -> "Records":
    """The folders of the records; the first one is where new ones go.

    What takes minutes is run by everybody anew: records that come with the project do not count.
    """
    from lpunits.paper.training.records import Records

    quick = OUT / "records"
    folders = (RESULTS, quick) if scale == "paper" else (quick,)
    return Records(*(folders if folder is None else (folder,)))


def _storage(folder: Path, url: str | None) -> "AbstractContextManager[RDBStorage]":
    """The storage of searches: by default a file in a folder beside the records."""
    from lpunits.paper.search.study import open_storage

    return open_storage(url or f"sqlite:///{folder / 'search' / 'studies.db'}")


def main(tokens: list[str] | None = None) -> None:
    """Run the command line; an error of the user's is one sentence and exit code 1."""
    try:
        app(sys.argv[1:] if tokens is None else tokens)
    except (ValueError, TypeError, OSError) as error:
        sys.exit(f"lpunits: {error}")
