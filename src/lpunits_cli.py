"""The command ``lpunits``: its commands by name, each imported when it is called.

A module of its own beside the package, because ``import lpunits`` imports torch. So
``lpunits --version`` and ``lpunits --help`` take a tenth of a second.
"""

import atexit
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from io import TextIOWrapper
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
EXTRAS = {"psycopg": "postgresql", "ray": "ray", "torch_geometric": "pyg"}  # others: paper
PATIENCE = 1.5  # seconds that an interrupted command has for cleaning up
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
    "fit": (
        "fit:fit",
        "Fit a network of Lp units to your own table: a model, its scores and a card.",
    ),
    "predict": ("predict:predict", "Predict the rows of a table with a model of `lpunits fit`."),
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
    # Read when torch is loaded, which is later: see lpunits.paper.training.threads.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    tokens = sys.argv[1:] if tokens is None else tokens
    resumes = tokens and tokens[0] in ("run", "search")
    how = f", to resume: {shlex.join(['lpunits', *tokens])}" if resumes else ""
    for stream in sys.stdout, sys.stderr:
        if isinstance(stream, TextIOWrapper):  # a locale without ± or ✓ gets question marks
            stream.reconfigure(errors="replace")
    with _interruptible(f"\nlpunits: interrupted{how}"):
        try:
            app(tokens)
        except ImportError as error:
            sys.exit(_missing(error, tokens[0]))
        except (ValueError, TypeError, OSError) as error:
            sys.exit(f"lpunits: {error}")


def _missing(error: BaseException, command: str) -> str:
    """The sentence on a module that is not installed, however deep the error is wrapped."""
    while not isinstance(error, ModuleNotFoundError) and (
        cause := error.__cause__ or error.__context__
    ):
        error = cause
    module = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or module in ("", "lpunits"):
        raise error
    needs = f"`lpunits {command}` needs {module}, which is not installed"
    return f"lpunits: {needs}: pip install 'lpunits[{EXTRAS.get(module, 'paper')}]'"


@contextmanager
def _interruptible(sentence: str) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end a command with a sentence and the exit code of the signal.

    They raise KeyboardInterrupt, on which every part of the program cleans up. If that takes too
    long, as in a call of a library that does not return, a thread ends the process. The processes
    of trials watch this one, and end with it.
    """
    signals = [s for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) != signal.SIG_IGN]
    if threading.current_thread() is not threading.main_thread():  # signals are for that one
        yield
        return
    received: list[int] = []

    @atexit.register  # the first to register is the last to be called
    def end() -> None:
        """Skip the cleaning up of torch, which takes seconds and is not needed."""
        if received:
            with suppress(OSError):
                sys.stdout.flush()
            os._exit(128 + received[0])

    def interrupt(number: int, _: object) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)  # cleaning up is not interrupted
        received.append(number)
        raise KeyboardInterrupt

    def explain(number: int) -> int:
        print(sentence, file=sys.stderr, flush=True)
        return 128 + number

    def limit_time() -> None:
        while number := os.read(reader, 1):  # written as the signal arrives, whatever else runs
            if number[0] in signals:
                time.sleep(PATIENCE)
                os._exit(128 + number[0] if explained else explain(number[0]))

    explained = False
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = {each: signal.signal(each, interrupt) for each in signals}
    wakeup = signal.set_wakeup_fd(writer)
    threading.Thread(target=limit_time, daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        explained = True
        sys.exit(explain(received[0] if received else signal.SIGINT))
    finally:
        signal.set_wakeup_fd(wakeup)
        os.close(writer)
        if not received:
            atexit.unregister(end)
            for each, handler in before.items():
                signal.signal(each, handler)
