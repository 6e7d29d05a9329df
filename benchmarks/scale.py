"""What a search of 1,000 trials costs and what limits it first: the numbers of docs/howto/scale.md.

python benchmarks/scale.py

Measures on this machine, which should be idle: an epoch of the paper's networks on one core, its
checkpoint, Optuna's storage on SQLite and PostgreSQL, and Ray's driver. From these it computes what
1, 16 and 256 workers need. Writes the measurements to results/scale.json and the tables to
docs/howto/scale.md. PostgreSQL and Ray are skipped, with a message, if they are not installed.
"""

import argparse
import json
import math
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import torch

import report
from lpunits.files import write_atomically
from lpunits.paper.training.job import Job
from lpunits.paper.training.recipes import TWO_LAYERS, table1
from lpunits.paper.training.records import cpu, versions

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results" / "scale.json", ROOT / "docs" / "howto" / "scale.md"
BEGIN, END = "<!-- measured: benchmarks/scale.py -->\n", "<!-- end -->"

TRIALS = 1000
WORKERS = (1, 16, 256)
WRITERS = (1, 4, 16)
VALUES = 8  # hyperparameters of a trial
CROWDED = 0.5  # of its time busy: from here on, whoever asks has to wait
NETS = {"MNIST, 240-240 x 5": TWO_LAYERS, "Pentomino, 400 x 6": table1("paper")[-1]}


def epoch(config: Any, folder: Path) -> dict[str, float]:
    """CPU seconds of an epoch on one thread, with its checkpoint, and the size of the checkpoint.

    The first epoch is a warm-up; the second one is measured.
    """
    ends, sizes = [], []

    def show(_: object) -> None:
        ends.append(time.process_time())
        sizes.append(job.checkpoint.stat().st_size)

    job = Job(folder, show)
    torch.set_num_threads(1)
    replace(config, epochs=2).run(0, job)
    shutil.rmtree(folder)
    return {"epochs": config.epochs, "seconds": ends[1] - ends[0], "checkpoint": sizes[1]}


def disk(folder: Path, size: int) -> float:
    """Bytes per second when files of this size are written and synced one after the other."""
    data = os.urandom(size)
    start = time.perf_counter()
    for _ in range(4):
        write_atomically(folder / "file", data)
    return 4 * size / (time.perf_counter() - start)


def storage(url: str, writers: int, seconds: float) -> dict[str, float]:
    """Trials and reports per second that this many processes write to one Optuna study."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    name = f"{writers} writers"
    optuna.create_study(storage=_storage(url), study_name=name)
    context = multiprocessing.get_context("spawn")
    barrier, counts = context.Barrier(writers), context.SimpleQueue()
    arguments = (url, name, seconds, barrier, counts)
    processes = [context.Process(target=_writer, args=arguments) for _ in range(writers)]
    for process in processes:
        process.start()
    found = [counts.get() for _ in processes]
    for process in processes:
        process.join()
    return {kind: sum(rates[kind] for rates in found) for kind in ("trials", "reports")}


def _storage(url: str) -> optuna.storages.RDBStorage:
    waiting = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
    return optuna.storages.RDBStorage(url, engine_kwargs=waiting)


def _writer(url: str, name: str, seconds: float, barrier: Any, counts: Any) -> None:
    """One driver: first whole trials, then reports only."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.RandomSampler()
    study = optuna.load_study(storage=_storage(url), study_name=name, sampler=sampler)

    def trial() -> None:
        asked = study.ask()
        for value in range(VALUES):
            asked.suggest_float(f"value {value}", 0, 1)
        study.tell(asked, 0.5)

    barrier.wait()
    trials = _rate(trial, seconds)
    barrier.wait()
    asked, steps = study.ask(), iter(range(10**9))
    reports = _rate(lambda: asked.report(0.5, next(steps)), seconds)
    counts.put({"trials": trials, "reports": reports})


def _rate(work: Callable[[], None], seconds: float) -> float:
    """Calls of ``work`` per second."""
    start, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < seconds:
        work()
        count += 1
    return count / passed


@contextmanager
def postgres(folder: Path) -> Iterator[str | None]:
    """The URL of a temporary server with its socket in the folder; None if it is not installed."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    initdb = shutil.which("initdb", path=os.pathsep.join([*map(str, places), os.environ["PATH"]]))
    if initdb is None:
        yield None
        return
    user = "postgres" if os.getuid() == 0 else None  # the server refuses to run as root
    if user is not None:
        shutil.chown(folder, user)
    data, binaries = folder / "data", Path(initdb).resolve().parent

    def call(name: str, *arguments: object) -> None:
        command = [str(binaries / name), "-D", str(data), *map(str, arguments)]
        subprocess.run(command, check=True, user=user, stdout=subprocess.DEVNULL, cwd=folder)

    call("initdb", "-A", "trust", "-U", "search")
    options = f"-c listen_addresses='' -c unix_socket_directories={folder}"
    call("pg_ctl", "-w", "-l", folder / "log", "-o", options, "start")
    try:
        yield f"postgresql+psycopg://search@/postgres?host={folder}"
    finally:
        call("pg_ctl", "-w", "-m", "fast", "stop")


def ray_messages(streams: int, seconds: float) -> float:
    """Messages per second that one driver receives from this many tasks, as in a search."""
    import ray

    settings: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
    ray.init(address="local", num_cpus=streams, logging_level="ERROR", **settings)

    @ray.remote(num_cpus=1, num_returns="streaming", _generator_backpressure_num_objects=100)
    def talk() -> Iterator[dict[str, Any]]:
        while True:
            yield {
                "done": 1,
                "total": 60,
                "text": "loss 0.1234  valid error 1.23%",
                "values": [0.1],
            }

    try:
        busy = [talk.remote() for _ in range(streams)]
        for stream in busy:
            ray.get(next(stream))  # its process has started

        def message() -> None:
            (ready,), _ = ray.wait(busy, num_returns=1)
            ray.get(next(ready))

        return _rate(message, seconds)
    finally:
        ray.shutdown()


def measure(seconds: float) -> dict[str, Any]:
    """All measurements."""
    found: dict[str, Any] = {"cpu": cpu(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    found["versions"] = {**versions(), "optuna": optuna.__version__}
    with tempfile.TemporaryDirectory(prefix="scale-", dir="/tmp") as name:
        folder = Path(name)
        found["epochs"] = {}
        for net, config in NETS.items():
            found["epochs"][net] = epoch(config, folder / "job")
            print(net, found["epochs"][net], flush=True)
        found["disk"] = min(disk(folder, e["checkpoint"]) for e in found["epochs"].values())
        found["storage"] = {}
        with postgres(folder) as server:
            urls = {"SQLite": f"sqlite:///{folder}/study.db", "PostgreSQL": server}
            for kind, url in urls.items():
                if url is None:
                    print("skipped: PostgreSQL is not installed")
                    continue
                found["storage"][kind] = {w: storage(url, w, seconds) for w in WRITERS}
                print(kind, found["storage"][kind], flush=True)
    try:
        import ray
    except ImportError:
        print("skipped: Ray is not installed")
        return found
    found["versions"] |= {"ray": ray.__version__}
    found["ray"] = {streams: ray_messages(streams, seconds) for streams in WRITERS}
    print("Ray", found["ray"], flush=True)
    return found


def tables(found: dict[str, Any]) -> str:
    """The measurements and what follows for a search, in Markdown."""
    names = ", ".join(f"{name} {v}" for name, v in found["versions"].items() if name != "lpunits")
    where = f"Measured on {found['cores']} cores of {found['cpu']}, {names}"
    if found["load"] > 0.5:
        where += (
            f". The load of other work was {found['load']:.1f}, so the rates are lower bounds; "
            f"epochs are in CPU seconds"
        )
    head = ["network", "epoch, one core", "epochs", "trial", "checkpoint"]
    nets = [
        [
            net,
            f"{e['seconds']:.1f} s",
            e["epochs"],
            duration(e["epochs"] * e["seconds"]),
            f"{e['checkpoint'] / 1e6:.0f} MB",
        ]
        for net, e in found["epochs"].items()
    ]
    parts = [f"{where}.", table(head, nets)]
    rates = [
        [kind, writers, f"{one['trials']:,.0f}", f"{one['reports']:,.0f}"]
        for kind, by_writers in found["storage"].items()
        for writers, one in by_writers.items()
    ]
    parts.append(table(["storage", "drivers", "trials per second", "reports per second"], rates))
    if "ray" in found:
        head = ["Ray: tasks that send to one driver", "messages per second"]
        parts.append(table(head, [[tasks, f"{rate:,.0f}"] for tasks, rate in found["ray"].items()]))
    parts.append(f"The disk writes {found['disk'] / 1e6:,.0f} MB/s of checkpoints.")
    parts.append(
        f"What {TRIALS:,} trials need, and the load of each component. From {CROWDED:.0%} on it "
        f"counts as a bottleneck; above 100% the search takes longer by that factor:"
    )
    rows, full = [], []
    for net, e in found["epochs"].items():
        data = net.partition(",")[0]
        shares = busy(found, e)
        for workers in WORKERS:
            limits = [name for name, share in shares.items() if workers * share >= CROWDED]
            rounds = math.ceil(TRIALS / workers)
            rows.append(
                [
                    data,
                    workers,
                    duration(rounds * e["epochs"] * e["seconds"]),
                    f"{workers / e['seconds']:.2g}",
                    f"{workers / e['seconds'] * e['checkpoint'] / 1e6:,.0f} MB/s",
                    *(percent(workers * share) for share in shares.values()),
                    " and ".join(limits) or "the processors",
                ]
            )
        full.append([data, *(f"{1 / share:,.0f}" for share in shares.values())])
    head = ["data", "workers", "ideal time", "epochs per second", "checkpoints"]
    parts.append(table([*head, *shares, "bottleneck"], rows))
    parts.append("The number of workers that saturates a component:")
    parts.append(table(["data", *shares], full))
    return "\n\n".join(parts)


def busy(found: dict[str, Any], e: dict[str, float]) -> dict[str, float]:
    """The load of each component by one worker and one driver: the fraction of its time.

    The storage receives the trials and one report per epoch, Ray one message per epoch.
    """
    shares = {}
    for kind, by_writers in found["storage"].items():
        one = by_writers[str(WRITERS[0])]
        shares[kind] = (1 / one["reports"] + 1 / e["epochs"] / one["trials"]) / e["seconds"]
    if "ray" in found:
        shares["Ray"] = 1 / e["seconds"] / min(found["ray"].values())
    return shares | {"one disk": e["checkpoint"] / e["seconds"] / found["disk"]}


def percent(share: float) -> str:
    """Two significant digits, or all before the point."""
    return f"{100 * share:.2g}%" if share < 1 else f"{100 * share:.0f}%"


def duration(seconds: float) -> str:
    """A time in days, hours, minutes or seconds."""
    for unit, name in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--tables", action="store_true", help="only rewrite the tables")
    args = parser.parse_args()
    if not args.tables:
        report.warn_if_busy()
        found = measure(args.seconds)
        write_atomically(RESULTS, f"{json.dumps(found, indent=1)}\n".encode())
    before, _, rest = PAGE.read_text().partition(BEGIN)
    text = tables(json.loads(RESULTS.read_text()))
    page = f"{before}{BEGIN}\n{text}\n\n{END}{rest.partition(END)[2]}"
    write_atomically(PAGE, page.encode())
    print(text)


if __name__ == "__main__":
    main()
