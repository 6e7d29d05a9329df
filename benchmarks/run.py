"""Time the unit against its alternatives: ``make bench``.

Prints one table per question and what was required. Writes ``results/bench.json``,
``docs/images/speed.svg`` and the README's table of speed. A quick or partial run leaves those alone
and writes to ``build/``. Nothing else should be running.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

import first_use
import optimizers
import pooling
import readme
import recurrent
import report
import requirements
import segments
import spatial
import training_step
from timing import BOTH, Result, Settings

ROOT = Path(__file__).parents[1]
FULL = Settings(seconds=0.2, rounds=5)
QUICK = Settings(seconds=0.02, rounds=2, shrink=8, compile=False)
COMPARISONS = {
    "spatial": (spatial.run, "Spatial pooling:"),
    "segments": (segments.run, "Segments and masks:"),
    "step": (training_step.run, "Training:"),
    "recurrent": (recurrent.run, "Recurrent networks:"),
    "first-use": (first_use.run, "First use:"),
}
QUESTIONS = ("pooling", *COMPARISONS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only",
        choices=[*QUESTIONS, "optimizers"],
        help="one question; the optimisers, which take minutes, are compared in no other way",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a look, in a minute, nothing compiled"
    )
    parser.add_argument("--threads", type=int, help="how many are all threads; torch's by default")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="the plot goes beside it")
    args = parser.parse_args(arguments)
    if args.threads is not None:
        if args.threads < 1:
            parser.error(f"--threads must be at least 1, got {args.threads}")
        torch.set_num_threads(args.threads)
    out, plot = readme.BENCH, ROOT / "docs" / "images" / "speed.svg"
    if args.quick or args.only:
        out, plot = ROOT / "build" / "bench.json", ROOT / "build" / "speed.svg"
    if args.out:
        out, plot = args.out, args.out.with_suffix(".svg")
    questions = (args.only,) if args.only else QUESTIONS
    run(QUICK if args.quick else FULL, questions, out, plot)
    if out == readme.BENCH:
        readme.write(readme.README, out)


def run(settings: Settings, questions: Sequence[str], out: Path, plot: Path) -> None:
    """The questions in order, then the requirements, then the files."""
    report.warn_if_busy()
    print(report.machine())
    results: list[Result] = []
    more: dict[str, object] = {"settings": asdict(settings)}
    if "pooling" in questions:
        found = pooling.run(settings)
        report.print_comparison(found, "Pooling")
        report.print_saved(found)
        growing = pooling.sweep(settings)
        report.print_sweep(growing)
        results += found + growing
    for question, (measure, heading) in COMPARISONS.items():
        if question in questions:
            found = measure(settings)
            report.print_comparison(found, heading)
            results += found
    if "step" in questions:
        more["step_microseconds"] = training_step.breakdown(settings)
    if "optimizers" in questions:
        more["optimizers"] = [asdict(fit) for fit in optimizers.run(settings)]
    if results:
        verdicts = requirements.judge(results)
        requirements.print_verdicts(verdicts)
        print(report.machine())
        report.print_quietness(results)
        more["requirements"] = [asdict(v) | {"met": v.met} for v in verdicts]
    report.write_json(out, results, **more)
    print(f"written: {out}")
    main_shapes = [r for r in results if (r.group, r.mode) == (pooling.MAIN, BOTH)]
    if main_shapes:
        report.write_plot(plot, main_shapes)
        print(f"written: {plot}")


if __name__ == "__main__":
    main()
