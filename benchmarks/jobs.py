"""What trainings beside each other get done together: 1, 2 and 4 at a time.

    python benchmarks/jobs.py

Required: the throughput of several is never below that of one, whether they are jobs of one
``lpunits run`` or commands of their own. Nothing else should be running. The last column shows what
commands of their own get done if threads wait in a loop, ``OMP_WAIT_POLICY=active``.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRIALS = 4
LEAST = 0.97  # the throughput of one, less what two equal measurements differ by
# Large enough for two threads, small enough to end in a few seconds.
NET = "hidden=(400,400)", "filters=5", "batch=200", "epochs=12"
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def command(folder: Path, jobs: int, seed: int | None) -> list[str]:
    """Train one trial for each seed, or one."""
    words = [sys.executable, __file__, str(folder), str(jobs)]
    return words if seed is None else [*words, str(seed)]


def train(folder: Path, jobs: int, seeds: list[int]) -> None:
    """A run of ``lpunits``, in this process."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command does
    from lpunits.paper.search.run import run
    from lpunits.paper.training.networks import FeedForward
    from lpunits.paper.training.records import Records
    from lpunits.paper.training.settings import with_settings
    from lpunits.paper.training.trial import Trial

    trials = with_settings([Trial(FeedForward("digits"), seed) for seed in seeds], NET)
    run(trials, Records(folder / "records"), folder / "work", jobs=jobs)


def seconds(jobs: int, apart: bool, policy: str) -> float:
    """How long all trials take."""
    environment = os.environ | {"OMP_WAIT_POLICY": policy}
    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        if apart:
            waiting, running = list(range(TRIALS)), []
            while waiting or running:
                while waiting and len(running) < jobs:
                    seed = waiting.pop()
                    words = command(Path(name) / str(seed), 1, seed)
                    running.append(subprocess.Popen(words, env=environment, **QUIET))
                ended = [process for process in running if process.poll() is not None]
                if any(process.returncode for process in ended):
                    raise RuntimeError("a training failed")
                running = [process for process in running if process not in ended]
                time.sleep(0.02)
        else:
            words = command(Path(name), jobs, None)
            subprocess.run(words, env=environment, check=True, **QUIET)
        return time.perf_counter() - start


def main() -> int:
    """Print a table; the exit code is 1 if several get less done than one."""
    kinds = {"jobs of a run": (False, "passive"), "commands": (True, "passive")}
    kinds["commands, active"] = (True, "active")
    print(f"{TRIALS} trials, seconds and throughput relative to one at a time")
    worst = 9.0
    for kind, options in kinds.items():
        taken = {jobs: min(seconds(jobs, *options) for _ in range(2)) for jobs in (1, 2, 4)}
        gains = {jobs: taken[1] / taken[jobs] for jobs in taken}
        print(f"{kind:18}" + "".join(f"  {j}: {taken[j]:6.1f} s {gains[j]:5.2f}" for j in taken))
        if options[1] == "passive":
            worst = min(worst, *gains.values())
    return int(worst < LEAST)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        chosen = [int(seed) for seed in sys.argv[3:]] or list(range(TRIALS))
        train(Path(sys.argv[1]), int(sys.argv[2]), chosen)
    else:
        sys.exit(main())
