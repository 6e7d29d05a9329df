"""The speed-up of a search by several processes, and the overhead of a trial.

    python benchmarks/search.py [--ray]

Required on two cores: two processes finish 24 equal trials 1.7 times as fast as one, and two Ray
workers 1.5 times as fast; the overhead of a trial is at most 0.3 s. The start of the processes does
not count: the time is that of 28 trials minus that of 4. Nothing else should be running.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch

from lpunits.paper.search.engines import Ray
from lpunits.paper.search.runner import Runner
from lpunits.paper.search.search import search
from lpunits.paper.search.study import Plan, Study, open_storage
from lpunits.paper.training.records import Records

FEW, TRIALS = 4, 24
GAIN = {"processes": 1.7, "ray": 1.5}
OVERHEAD = 0.3  # seconds
# Nets of one size on the same data; what still differs does not change the time.
SETTINGS = ("data=curve", "hidden=(64,64)", "filters=4", "epochs=8", "last_epochs=0")


def seconds(trials: int, jobs: int, ray: Ray | None) -> tuple[float, float]:
    """The time of a search, and the sum of the times of its trials."""
    plan = Plan("mnist", "smoke", settings=SETTINGS, trials=trials)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_storage(f"sqlite:///{folder}/studies.db") as storage,
    ):
        runner = Runner(Records(Path(folder) / "records"), Path(folder) / "work")
        start = time.perf_counter()
        found = search(plan, storage, runner, jobs=jobs, ray=ray)
        taken = time.perf_counter() - start
        assert (found.trials, found.failed) == (trials, 0)
        return taken, sum(t.user_attrs["seconds"] for t in Study(plan, storage).finished())


def measured(name: str, jobs: int, ray: Ray | None) -> tuple[float, float]:
    """Seconds that each of the 24 trials adds to a search, and how much of it is its own."""
    # The first search starts the server that processes are forks of, the others find it running.
    _, few, many = (seconds(trials, jobs, ray) for trials in (FEW, FEW, FEW + TRIALS))
    each, own = ((b - a) / TRIALS for a, b in zip(few, many, strict=True))
    print(f"{name}, {jobs} at a time: {each:.3f} s a trial, of which {own:.3f} s are its own")
    return each, own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ray", action="store_true", help="time Ray's workers as well")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # as each of two processes has on two cores
    engines = {"processes": None} | ({"ray": Ray("local")} if arguments.ray else {})
    for name, ray in engines.items():
        (one, own), (two, _) = (measured(name, jobs, ray) for jobs in (1, 2))
        for what, value, met in (
            (f"gain, at least {GAIN[name]}", one / two, one / two >= GAIN[name]),
            (f"overhead, at most {OVERHEAD} s", one - own, one - own <= OVERHEAD),
        ):
            print(f"{name}: {what}: {value:.2f}, {'yes' if met else 'NO'}")


if __name__ == "__main__":
    main()
