"""Records: one JSON file for each finished trial, named by the trial's key.

A record holds the config, the seed, the status (``finished``; ``diverged``: the loss was not
finite; ``failed``: an exception, or the process died; ``pruned``: a search saw that others are
better), the error as a sentence, the outcome, wall time, threads, ranks, versions, CPU and commit.
A finished or diverged trial is not repeated; a failed or pruned one is. A record is written
atomically: it is complete or does not exist.
"""

import datetime
import json
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import lpunits
from lpunits.files import write_atomically
from lpunits.paper.training import ranks
from lpunits.paper.training.trial import Result, Trial

FORMAT = 1
DONE = ("finished", "diverged")  # the status of a trial that is not run again
STATES = ("finished", "diverged", "failed", "pruned")
FIELDS: dict[str, type | tuple[type, ...]] = {
    "config": dict,
    "label": str,
    "seed": int,
    "status": str,
    "seconds": (int, float),
    "finished": str,
    "threads": int,
    "versions": dict,
    "cpu": str,
    "commit": (str, type(None)),
    "outcome": dict,
}
Record = dict[str, Any]


class Records:
    """Folders of records. All are read, with their subfolders; the first one is written to."""

    def __init__(self, *folders: Path) -> None:
        self.folders = folders

    def find(self, trial: Trial) -> Record | None:
        """The record of a trial, if there is one of this very config."""
        for path in self.paths(trial):
            try:
                record = json.loads(path.read_text(encoding="utf-8"))
                if _checked(record)["format"] == FORMAT and _same_config(trial, record["config"]):
                    return dict(record)
            except FileNotFoundError:
                continue
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}: a damaged record ({error}); remove it") from error
        return None

    def path(self, trial: Trial) -> Path:
        """Where the record of a trial is, or would be written."""
        return next((path for path in self.paths(trial) if path.exists()), next(self.paths(trial)))

    def paths(self, trial: Trial) -> Iterator[Path]:
        """Where the record of a trial may be."""
        name = f"{trial.key}.json"
        for folder in self.folders:
            yield folder / name
            yield from folder.glob(f"*/{name}")

    def results(self, trials: Iterable[Trial]) -> list[Result]:
        """The finished ones among the trials, with their records."""
        found = ((trial, self.find(trial)) for trial in trials)
        return [Result(t, r) for t, r in found if r is not None and r["status"] == "finished"]

    def missing(self, trials: Iterable[Trial]) -> list[Trial]:
        """The trials that have yet to be run, each once."""
        wanted = {trial.key: trial for trial in trials}.values()
        return [t for t in wanted if (self.find(t) or {}).get("status") not in DONE]

    def findings(self) -> dict[str, str]:
        """The paragraphs of ``findings.md`` by heading: comments on the records."""
        for folder in self.folders:
            path = folder / "findings.md"
            if not path.exists():
                continue
            try:
                text = path.read_text(encoding="utf-8")
            except ValueError as error:
                raise ValueError(f"{path}: a text in UTF-8 is expected ({error})") from error
            first, *parts = re.split(r"^## (.+)$", text, flags=re.M)
            if first.strip():
                raise ValueError(f"{path}: must begin with a heading (##), got {first!r:.60}")
            return {h: t.strip() for h, t in zip(parts[::2], parts[1::2], strict=True)}
        return {}

    def write(self, record: Record) -> Path:
        """Write a record."""
        path = self.folders[0] / f"{record['key']}.json"
        write_atomically(path, f"{_text(record)}\n".encode())
        return path


def make(
    trial: Trial,
    status: str,
    outcome: dict[str, Any],
    *,
    seconds: float,
    error: str | None = None,
) -> Record:
    """A record of a trial, with versions, hardware and commit."""
    return {
        "format": FORMAT,
        "key": trial.key,
        "kind": type(trial.config).__name__,
        "label": trial.label,
        "config": trial.values,
        "seed": trial.seed,
        "status": status,
        "error": error,
        "seconds": round(seconds, 3),
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "threads": torch.get_num_threads(),
        "ranks": ranks.size(),
        "versions": versions(),
        "cpu": cpu(),
        "commit": commit(),
        "outcome": outcome,
    }


@cache
def versions() -> dict[str, str]:
    """The versions of the software that results may depend on."""
    return {
        "python": platform.python_version(),
        "lpunits": lpunits.__version__,
        "operator": lpunits.ops.status(),
        "torch": version("torch"),
        "numpy": version("numpy"),
    }


@cache
def cpu() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@cache
def commit() -> str | None:
    """The commit of the checkout, with a + if files of the package were changed since."""
    folder = Path(__file__).parents[2]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # not merely inside some other checkout
        changed = git("status", "--porcelain", "--untracked-files=no", ".")
        return git("rev-parse", "HEAD") + "+" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return None


def _checked(record: Any) -> Record:
    """The record, if it has what its readers rely on."""
    if not isinstance(record, dict) or not isinstance(record.get("format"), int):
        raise ValueError("it does not say its format")
    if record["format"] != FORMAT:
        return record
    for name, kind in FIELDS.items():
        value = record.get(name)
        if name not in record or not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"it has no {name}, or a wrong one")
    least = {"seconds": 0, "threads": 1}
    if not all(low <= record[name] < 10**12 for name, low in least.items()):
        raise ValueError("it has impossible seconds or threads")
    if record["status"] not in STATES:
        raise ValueError(f"status must be one of {', '.join(STATES)}")
    if not isinstance(record["versions"].get("torch"), str):
        raise ValueError("its versions do not name torch")
    return record


def _same_config(trial: Trial, stored: dict[str, Any]) -> bool:
    """Whether a record was made with this config: a default may have changed since."""
    values = trial.values
    return all(name in values and values[name] == value for name, value in stored.items())


def _text(value: Any, margin: str = "") -> str:
    """JSON that people can read and compare: one line for each entry of a dict or row of a list."""
    inner = margin + " "
    if isinstance(value, dict) and value:
        rows = [f"{json.dumps(k)}: {_text(v, inner)}" for k, v in value.items()]
    elif isinstance(value, list) and any(isinstance(v, list | dict) for v in value):
        rows = [json.dumps(v, allow_nan=False) for v in value]
    else:
        return json.dumps(value, allow_nan=False)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(rows) + f"\n{margin}{closing}"
