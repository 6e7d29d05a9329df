"""The commands ``lpunits data ...``: list, fetch, verify and show datasets."""

from pathlib import Path

from cyclopts import App
from rich import box
from rich.console import Console
from rich.table import Table

from lpunits.paper import data

app = App(name="data", help="The datasets of the paper: list, fetch, verify, show.")


@app.default
def list_all() -> None:
    """List the datasets: description, size, licence, whether it is here, how to get it."""
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
    """Download a dataset from its official source and verify it.

    Args:
        name: The dataset, as `lpunits data` lists it.
    """
    paths = data.fetch(name)
    for path in paths:
        print(f"{path}: OK")
    if not paths:
        print(f"{name}: nothing to fetch, it is part of lpunits")


@app.command
def verify(*names: str) -> None:
    """Read every file completely and verify it. Exit code 1 if a file is damaged.

    Args:
        names: The datasets to verify; by default all.
    """
    found: dict[Path, str | None] = {}
    for name in names or data.DATASETS:
        found |= data.verify(name)
    for path, error in found.items():
        print(error or f"{path}: OK")
    if wrong := [str(path) for path, error in found.items() if error]:
        raise data.DataError(f"{len(wrong)} of {len(found)} files are damaged")
    if not found:
        print("there is no file to verify: see `lpunits data`")


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
