"""Time the unit against its alternatives: ``make bench``.

Prints one table per question and what was required, and writes ``results/bench.json`` and
``docs/images/speed.svg``. A quick or partial run leaves those alone and writes to ``build/``.
Nothing else should be running.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

import optimizers
import pooling
import recurrent
import report
import requirements
import spatial
import training_step
from timing import BOTH, Effort, Result, Settings

ROOT = Path(__file__).parents[1]
FULL = Effort(seconds=0.2, rounds=4)
QUICK = Effort(seconds=0.02, rounds=2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only",
        choices=["pooling", "spatial", "step", "recurrent", "optimizers"],
        help="one question",
    )
    parser.add_argument("--quick", action="store_true", help="a look, in less than a minute")
    parser.add_argument("--threads", type=int, help="how many are all threads; torch's by default")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="the plot goes beside it")
    args = parser.parse_args(arguments)
    most = torch.get_num_threads() if args.threads is None else args.threads
    if most < 1:
        parser.error(f"--threads must be at least 1, got {most}")
    if args.quick:
        settings = Settings((most,), QUICK, shrink=8, compile=False)
    else:
        settings = Settings(tuple(dict.fromkeys((1, most))), FULL)
    out, plot = ROOT / "results" / "bench.json", ROOT / "docs" / "images" / "speed.svg"
    if args.quick or args.only:
        out, plot = ROOT / "build" / "bench.json", ROOT / "build" / "speed.svg"
    if args.out:
        out, plot = args.out, args.out.with_suffix(".svg")
    run(settings, args.only, out, plot)


def run(settings: Settings, only: str | None, out: Path, plot: Path) -> None:
    """The questions in order, then the requirements, then the files."""
    report.warn_if_busy()
    results: list[Result] = []
    parts = None
    if only in (None, "pooling"):
        if not settings.compile:
            print("left out: naive, compiled (a quick run does not wait for the compiler)")
        found = pooling.run(settings)
        report.print_comparison(found, "Pooling")
        report.print_saved(found)
        growing = pooling.sweep(settings)
        report.print_sweep(growing)
        results += found + growing
    if only in (None, "spatial"):
        found = spatial.run(settings)
        report.print_comparison(found, "Spatial pooling:")
        results += found
    if only in (None, "step"):
        found = training_step.run(settings)
        report.print_comparison(found, "Training:")
        parts = training_step.breakdown(settings)
        results += found
    if only in (None, "recurrent"):
        found = recurrent.run(settings)
        report.print_comparison(found, "Recurrent networks:")
        growing = recurrent.sweep(settings)
        report.print_sweep(growing, "Growing sequences", "step", since=50)
        results += found + growing
    fits = optimizers.run(settings) if only in (None, "optimizers") else []
    verdicts = requirements.judge(results) if results else []
    if results:
        requirements.print_verdicts(verdicts)
        report.print_quietness(results)

    judged = [asdict(v) | {"met": v.met} for v in verdicts]
    report.write_json(
        out,
        results,
        settings=asdict(settings),
        requirements=judged,
        step_microseconds=parts,
        optimizers=[asdict(fit) for fit in fits],
    )
    print(f"written: {out}")
    main_shapes = [
        r
        for r in results
        if (r.question, r.group, r.mode) == (pooling.QUESTION, pooling.MAIN, BOTH)
        and r.threads == max(settings.threads)
    ]
    if main_shapes:
        report.write_plot(plot, main_shapes)
        print(f"written: {plot}")


if __name__ == "__main__":
    main()
