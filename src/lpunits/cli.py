"""The command line: parses arguments, calls :mod:`lpunits.paper`. No logic of its own."""

import sys
from pathlib import Path

try:
    from cyclopts import App
except ImportError as error:  # pragma: no cover
    raise SystemExit("lpunits: the command line needs lpunits[paper]") from error

import lpunits
from lpunits import cli_data

app = App(
    name="lpunits",
    help="Learned-norm pooling: the experiments of the paper, one command each.",
    version=lpunits.__version__,
)
app.command(cli_data.app)


@app.command
def reproduce(*, out: Path = Path("reproduction")) -> None:
    """Run every experiment that needs no download, then write a report.

    Args:
        out: The folder for the report.
    """
    from lpunits.paper.reproduce import reproduce as run

    page = run(out)
    print(f"report: {page.resolve().as_uri()}")


def main(tokens: list[str] | None = None) -> None:
    """Run the command line; an error of the user's is one sentence and exit code 1."""
    try:
        app(sys.argv[1:] if tokens is None else tokens)
    except (ValueError, TypeError, OSError) as error:
        sys.exit(f"lpunits: {error}")
