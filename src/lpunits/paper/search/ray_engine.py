"""Trials as Ray tasks, on all machines of a cluster.

A task streams the progress of its trial to the driver, and at the end the record, which the driver
writes. Ray does not retry a task: a trial resumes from its checkpoint, so its stream differs the
second time. The caller gets :class:`Lost` and submits the trial again.

The data of a trial is identified by the checksums of its files. A machine that has the same files
uses them. To any other machine they are sent once, and stay in its cache folder.
"""

import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

# Without a token anyone who reaches the cluster can run code on it. Ray reads this on import.
os.environ.setdefault("RAY_AUTH_MODE", "token")

import ray

from lpunits.files import StorageError, write_atomically
from lpunits.paper import data
from lpunits.paper.data.sources import cache_folder, file_sha256, sha256
from lpunits.paper.search.engines import Lost, Message, Ray
from lpunits.paper.search.runner import Runner
from lpunits.paper.training.job import Progress
from lpunits.paper.training.records import Record, Records
from lpunits.paper.training.threads import threads_for
from lpunits.paper.training.trial import Trial

DATA = os.environ.get("LPUNITS_DATA")  # of this machine
Files = dict[str, tuple[str, Any]]  # name of a file: its checksum, and Ray's reference to it


class RayEngine:
    """The trials of a driver as Ray tasks.

    Args:
        runner: How to run a trial. Its folder has the same path on every machine.
        options: The cluster, and the resources of each trial.
        jobs: How many trials at a time at most. None: as many as the cluster has room for.
    """

    def __init__(self, runner: Runner, options: Ray, jobs: int | None = None) -> None:
        assert runner.store is not None
        self._store: Records = runner.store
        curves = runner.tensorboard and runner.tensorboard.resolve()
        self._runner = Runner(None, runner.folder.resolve(), curves)
        self._options, self._jobs = options, jobs
        self._busy: dict[Any, Trial] = {}  # by the stream of messages
        self._files: dict[str, Files] = {}  # by dataset
        _connect(options.address)
        self._task = ray.remote(_task).options(
            num_cpus=options.cpus,
            num_gpus=options.gpus,
            num_returns="streaming",
            max_retries=0,
        )

    @property
    def room(self) -> int:
        """How many more trials can be submitted now. Machines may come and go."""
        have = ray.cluster_resources()
        room = int(have.get("CPU", 0) // self._options.cpus)
        if self._options.gpus:
            room = min(room, int(have.get("GPU", 0) // self._options.gpus))
        return min(room, self._jobs or room) - len(self._busy)

    def submit(self, trial: Trial) -> None:
        """Start a trial on any machine of the cluster."""
        files: Files = {}
        for name in trial.config.datasets:
            files |= self._files_of(name)
        threads = threads_for(trial.config, self._options.cpus)
        stream = self._task.remote(self._runner, trial, threads, files)
        self._busy[stream] = trial

    def receive(self, seconds: float | None = None) -> Iterator[tuple[Trial, Message]]:
        """Messages of running trials. Waits for one, for at most so many seconds."""
        if not self._busy:
            time.sleep(seconds or 0)
            return
        ready, _ = ray.wait(list(self._busy), num_returns=1, timeout=seconds)
        for stream in ready:
            if stream not in self._busy:
                continue
            trial = self._busy[stream]
            message: Message
            try:
                message = ray.get(next(stream))
            except (ray.exceptions.RayError, StopIteration) as error:
                if isinstance(cause := getattr(error, "cause", None), StorageError):
                    raise cause from error
                reason = " ".join(str(error).split()) or type(error).__name__
                message = Lost(f"its worker was lost: {reason[:300]}")
            if not isinstance(message, Progress):
                del self._busy[stream]
            if isinstance(message, dict):
                self._store.write(message)
            yield trial, message

    def stop(self, trial: Trial) -> None:
        """Kill the worker of a trial."""
        for stream, running in list(self._busy.items()):
            if running.key == trial.key:
                del self._busy[stream]
                ray.cancel(stream, force=True)

    def close(self) -> None:
        """Leave the cluster, which ends all running trials. A cluster started here ends, too."""
        self._busy.clear()
        ray.shutdown()

    def _files_of(self, name: str) -> Files:
        """The files of a dataset, which the first call puts into Ray's object store."""
        if name not in self._files:
            paths = [source.find() for source in data.info(name).files]
            self._files[name] = {
                path.name: (file_sha256(path), ray.put(path.read_bytes())) for path in paths
            }
        return self._files[name]


def _connect(address: str) -> None:
    """Connect to a cluster, or start one."""
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        if address == "local":
            settings["include_dashboard"] = False
        ray.init(address=address, **settings)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"--ray {address}: no cluster could be reached ({reason})") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_sigterm)  # that of Ray prints a stack


def _task(runner: Runner, trial: Trial, threads: int, files: Files) -> Iterator[Progress | Record]:
    """Run one trial in a worker: yield its progress, then its record."""
    import torch

    torch.set_num_threads(threads)
    _provide(trial.config.datasets, files)
    messages: queue.SimpleQueue[Progress | Record | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            messages.put(runner(trial, messages.put))
        except BaseException as error:
            messages.put(error)

    threading.Thread(target=run, daemon=True).start()
    while isinstance(message := messages.get(), Progress):
        yield message
    if isinstance(message, BaseException):
        raise message
    yield message


def _provide(names: tuple[str, ...], files: Files) -> None:
    """Have the datasets read from files with these checksums: fetch those that differ."""
    os.environ.pop("LPUNITS_DATA", None)
    if DATA is not None:
        os.environ["LPUNITS_DATA"] = DATA
    sources = [source for name in names for source in data.info(name).files]
    wanted = {sha for sha, _ in files.values()}
    if wanted == {file_sha256(path) for s in sources for path in s.present()[:1]}:
        return
    folder = cache_folder() / "shipped" / sha256(" ".join(sorted(wanted)).encode())[:16]
    for file, (sha, content) in files.items():
        path = folder / file
        if not path.is_file() or file_sha256(path) != sha:
            write_atomically(path, ray.get(content))
    os.environ["LPUNITS_DATA"] = str(folder)
