"""Trials as tasks of Ray, on all machines of a cluster.

A task streams the progress of its trial to the driver, and at last the record, which the driver
writes. A task is not repeated by Ray, since a trial goes on from its checkpoint and so tells less
the second time; whoever submitted it hears that its worker was lost and submits it again.

The data of a trial is known by the checksums of its files. A machine that has the same files uses
them; to another one they are sent, once, and kept in its cache folder.
"""

import os
import queue
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

# Whoever reaches a cluster without a token could run anything on it. Read when Ray is imported.
os.environ.setdefault("RAY_AUTH_MODE", "token")

import ray

from lpunits.paper import data
from lpunits.paper.data.sources import cache_folder, file_sha256, sha256
from lpunits.paper.files import StorageError, write_atomically
from lpunits.paper.search.engines import Lost, Ray, Work
from lpunits.paper.training.job import Progress
from lpunits.paper.training.records import Record, Records
from lpunits.paper.training.trial import Trial

DATA = os.environ.get("LPUNITS_DATA")  # of this machine
Shipped = dict[str, tuple[str, Any]]  # by the name of a file: its checksum, and Ray's reference


class RayEngine:
    """The trials of a driver as tasks of Ray.

    Args:
        work_on: How to run a trial; the folder for checkpoints has the same path on every machine.
        options: The cluster, and what each trial gets of it.
        jobs: How many trials at a time at most; None: as many as there is room for.
    """

    def __init__(self, work_on: Work, options: Ray, jobs: int | None = None) -> None:
        assert work_on.store is not None
        self._store: Records = work_on.store
        curves = work_on.tensorboard and work_on.tensorboard.resolve()
        self._work_on = Work(None, work_on.folder.resolve(), curves)
        self._options, self._jobs = options, jobs
        self._busy: dict[Any, Trial] = {}  # by the stream of messages
        self._files: dict[str, Shipped] = {}  # by dataset
        _connect(options.address)
        self._task = ray.remote(_task).options(
            num_cpus=options.cpus,
            num_gpus=options.gpus,
            num_returns="streaming",
            max_retries=0,
        )

    @property
    def room(self) -> int:
        """How many more trials can be submitted now; machines may come and go."""
        have = ray.cluster_resources()
        room = int(have.get("CPU", 0) // self._options.cpus)
        if self._options.gpus:
            room = min(room, int(have.get("GPU", 0) // self._options.gpus))
        return min(room, self._jobs or room) - len(self._busy)

    def submit(self, trial: Trial) -> None:
        """Begin with a trial, on any machine of the cluster."""
        files: Shipped = {}
        for name in trial.config.datasets:
            files |= self._shipped(name)
        stream = self._task.remote(self._work_on, trial, self._options.cpus, files)
        self._busy[stream] = trial

    def receive(
        self, seconds: float | None = None
    ) -> Iterator[tuple[Trial, Progress | Record | Lost]]:
        """What trials have told; waits for it, for so many seconds at most."""
        if not self._busy:
            time.sleep(seconds or 0)
            return
        ready, _ = ray.wait(list(self._busy), num_returns=1, timeout=seconds)
        for stream in ready:
            if stream not in self._busy:
                continue
            trial = self._busy[stream]
            message: Progress | Record | Lost
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
        """Leave the cluster, which ends what is running; one that was started here ends, too."""
        self._busy.clear()
        ray.shutdown()

    def _shipped(self, name: str) -> Shipped:
        """The files of a dataset, in Ray's object store from the first time on."""
        if name not in self._files:
            paths = [source.find() for source in data.info(name).files]
            self._files[name] = {
                path.name: (file_sha256(path), ray.put(path.read_bytes())) for path in paths
            }
        return self._files[name]


def _connect(address: str) -> None:
    """Join or start a cluster."""
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address == "local":
            ray.init(address="local", include_dashboard=False, **settings)
        else:
            ray.init(address=address, **settings)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"--ray {address}: no cluster could be reached ({reason})") from error


def _task(work_on: Work, trial: Trial, threads: int, files: Shipped) -> Iterator[Progress | Record]:
    """One trial, in a worker: its progress, then its record."""
    import torch

    torch.set_num_threads(threads)
    _have(trial.config.datasets, files)
    told: queue.SimpleQueue[Progress | Record | BaseException] = queue.SimpleQueue()

    def live() -> None:
        try:
            told.put(work_on(trial, told.put))
        except BaseException as error:
            told.put(error)

    threading.Thread(target=live, daemon=True).start()
    while isinstance(message := told.get(), Progress):
        yield message
    if isinstance(message, BaseException):
        raise message
    yield message


def _have(names: tuple[str, ...], shipped: Shipped) -> None:
    """Make sure that the datasets are read from files with these checksums."""
    os.environ.pop("LPUNITS_DATA", None)
    if DATA is not None:
        os.environ["LPUNITS_DATA"] = DATA
    sources = [source for name in names for source in data.info(name).files]
    wanted = {sha for sha, _ in shipped.values()}
    if wanted == {_checksum(*_state(path)) for s in sources for path in s.present()[:1]}:
        return
    folder = cache_folder() / "shipped" / sha256(" ".join(sorted(wanted)).encode())[:16]
    for file, (sha, content) in shipped.items():
        path = folder / file
        if not path.is_file() or _checksum(*_state(path)) != sha:
            write_atomically(path, ray.get(content))
    os.environ["LPUNITS_DATA"] = str(folder)


def _state(path: Path) -> tuple[Path, int, int]:
    """A file, and what changes with its content."""
    status = path.stat()
    return path, status.st_mtime_ns, status.st_size


@cache
def _checksum(path: Path, changed: int, size: int) -> str:
    """The checksum of a file that has not changed since; a worker runs many trials."""
    return file_sha256(path)
