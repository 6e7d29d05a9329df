"""The command ``lpunits``: its commands by name, each imported when it is called.

A module of its own beside the package, because ``import lpunits`` imports torch. So
``lpunits --version`` and ``lpunits --help`` take a tenth of a second.
"""

import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

try:
    from cyclopts import App, Parameter
except ImportError as error:  # pragma: no cover
    raise SystemExit("lpunits: the command line needs lpunits[paper]") from error

app = App(
    name="lpunits",
    help="Learned-norm pooling: the experiments of the paper, one command each.",
    version=lambda: version("lpunits"),
    suppress_keyboard_interrupt=False,
)
COMMANDS = {
    "list": ("report:list_all", "List the experiments."),
    "show": ("report:show", "Show one experiment: its trials, times, records and results."),
    "run": (
        "run:run",
        "Run the trials of experiments that have no record yet. Interrupted runs resume.\n\n"
        "`torchrun --nproc-per-node N -m lpunits run ...` trains each network on N processes.",
    ),
    "report": ("report:report", "Write the report: one HTML page, figures as SVG and PNG."),
    "search": (
        "search:search",
        "Search for the values with the lowest validation error, and test the winner once.\n\n"
        "The same command resumes the search. Several can work on one search at the same time.",
    ),
    "data": ("data:app", "The datasets of the paper: list, fetch, verify, show."),
    "music": ("music:app", "Polyphonic music: let a trained network play."),
    "playground": (
        "playground:playground",
        "Open the playground in the browser: a unit to shape by hand, and networks that learn.",
    ),
}
for place, (name, (function, text)) in enumerate(COMMANDS.items()):
    app.command(f"lpunits.paper.cli.{function}", name=name, help=text, sort_key=place)
app.register_install_completion_command()


@app.command(sort_key=len(COMMANDS))
def bench(
    *arguments: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="For benchmarks/run.py: --quick, --only.")
    ],
) -> int:
    """Measure the speed of the units and their alternatives; needs a quiet machine."""
    script = Path(__file__).parents[1] / "benchmarks" / "run.py"
    if not script.exists():
        raise ValueError(f"bench needs the source tree of lpunits, there is no {script}")
    return subprocess.run([sys.executable, str(script), *arguments], check=False).returncode


def main(tokens: list[str] | None = None) -> None:
    """Run the command line. A mistake of the user gives one sentence and exit code 1."""
    tokens = sys.argv[1:] if tokens is None else tokens
    try:
        app(tokens)
    except KeyboardInterrupt:
        resumes = tokens and tokens[0] in ("run", "search")
        how = f", to resume: {shlex.join(['lpunits', *tokens])}" if resumes else ""
        print(f"\nlpunits: interrupted{how}", file=sys.stderr)
        sys.exit(130)
    except (ValueError, TypeError, OSError) as error:
        sys.exit(f"lpunits: {error}")
