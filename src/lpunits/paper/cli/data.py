"""The commands ``lpunits data ...``: what there is, fetching, checking and showing it."""

from pathlib import Path

from cyclopts import App
from rich import box
from rich.console import Console
from rich.table import Table

from lpunits.paper import data

app = App(name="data", help="The datasets of the paper: list, fetch, verify, show.")


@app.default
def list_all() -> None:
    """List every dataset: what it is, its size and licence, whether it is here, how to get it."""
    table = Table(box=box.SIMPLE)
    for title in ("name", "here", "size"):
        table.add_column(title, no_wrap=True)
    table.add_column("what it is; its licence; how to get it")
    for name in data.DATASETS:
        info = data.info(name)
        here = "yes" if info.present else "no"
        table.add_row(name, here, info.size, f"{info.about}\n{info.licence}\n{info.how}\n")
    Console().print(table)


@app.command
def fetch(name: str) -> None:
    """Download a dataset from its official source, and check it.

    Args:
        name: The dataset, as `lpunits data` lists it.
    """
    paths = data.fetch(name)
    for path in paths:
        print(f"{path}: sound")
    if not paths:
        print(f"{name}: nothing to fetch, it is built in")


@app.command
def verify(*names: str) -> None:
    """Read every file that is here in full, and check it; exit with 1 if one is not sound.

    Args:
        names: The datasets to check; all of them if none is named.
    """
    found: dict[Path, str | None] = {}
    for name in names or data.DATASETS:
        found |= data.verify(name)
    for path, error in found.items():
        print(error or f"{path}: sound")
    if wrong := [str(path) for path, error in found.items() if error]:
        raise data.DataError(f"{len(wrong)} of {len(found)} files are not sound")
    if not found:
        print("there is no file to check: see `lpunits data`")


@app.command
def show(name: str, *, out: Path | None = None, seed: int = 0) -> None:
    """Write a sheet of samples as a PNG file.

    Args:
        name: The dataset, as `lpunits data` lists it.
        out: The file to write; by default the dataset's name with .png, in this folder.
        seed: Which samples.
    """
    from lpunits.paper.data import sheet

    print(sheet.draw(data.load(name), out or Path(f"{name}.png"), seed=seed))
