"""The command ``lpunits predict``: a model of `lpunits fit` and another table."""

import csv
import io
import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from lpunits.files import write_atomically
from lpunits.paper.fitting import folder, scores
from lpunits.paper.fitting.reading import Table, read


def predict(
    model: Path,
    data: Path,
    /,
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    separator: str | None = None,
) -> None:
    """Predict the rows of a table with a model of `lpunits fit`.

    The result is a csv file: a prediction for each row, in the order of the table, and for classes
    the probability of each.

    Args:
        model: The folder of the model.
        data: A csv or parquet file with the columns that the model was fitted on.
        out: The file for the result; by default it is printed.
        separator: What is between two values of a csv file; by default it is guessed.
    """
    if out is not None and (out.is_dir() or (out.exists() and out.samefile(data))):
        what = "a folder" if out.is_dir() else "the table itself"
        raise ValueError(f"{out} is {what}, another file for the result is expected")
    loaded = folder.load(model)
    table = read(data, separator)
    head, rows, notes = loaded.predict(table)
    for note in notes:
        print(f"lpunits: {note}", file=sys.stderr)
    if loaded.target.name in table.columns and None not in table.columns[loaded.target.name]:
        _print_scores(loaded, table)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    if out is not None:
        write_atomically(out, text.getvalue().encode())
        print(f"{len(rows):,} predictions: {out}")
        return
    try:
        sys.stdout.write(text.getvalue())
        sys.stdout.flush()
    except BrokenPipeError:  # as by `| head`, which stops reading
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_scores(loaded: folder.Model, table: Table) -> None:
    """The scores, if the table has the target, too."""
    try:
        y = loaded.target.of(table)
    except ValueError:
        return  # the predictions do not depend on it
    if loaded.target.task == "classification" and not set(y) <= set(loaded.target.classes):
        return
    X, _ = loaded.encode(table)
    values, _ = scores.EVALUATE[loaded.target.task](loaded.estimator, X, y)
    text = ", ".join(f"{name} {scores.number(value, name)}" for name, value in values.items())
    print(f"lpunits: the table has the target: {text}", file=sys.stderr)
