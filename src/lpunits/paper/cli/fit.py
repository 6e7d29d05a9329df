"""The command ``lpunits fit``: a model of your own table."""

import ast
import datetime
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from itertools import compress
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.markup import escape

from lpunits.files import make_folder
from lpunits.paper.cli import tables
from lpunits.paper.cli.folders import Settings
from lpunits.paper.fitting import card, folder
from lpunits.paper.fitting.fit import Fitted, Prepared, prepare
from lpunits.paper.fitting.fit import fit as fit_estimator
from lpunits.paper.fitting.reading import read, shown
from lpunits.paper.fitting.target import Task
from lpunits.paper.training.records import versions

Out = Annotated[Path, Parameter(name=["--out", "-o"])]
ColumnKinds = Annotated[
    list[str], Parameter(name="--column", consume_multiple=False, negative="", show_default=False)
]
SHOWN = 8  # names of columns of a kind


def fit(
    data: Path,
    /,
    *,
    target: str,
    out: Out = Path("model"),
    task: Task | None = None,
    column: ColumnKinds | None = None,
    test: float = 0.2,
    seed: int = 0,
    set_: Settings | None = None,
    compare: Annotated[bool, Parameter(negative="--no-compare")] = True,
    replace: Annotated[bool, Parameter(negative="")] = False,
    separator: str | None = None,
    verbose: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Fit a network of Lp units to a table.

    Args:
        data: A csv or parquet file.
        target: The column to predict.
        out: The folder for the model and its card.
        task: What to predict, classes or numbers; by default it is guessed.
        column: NAME=number, NAME=category or NAME=out for a column that is not to be guessed; can
            be repeated.
        test: The part of the rows for the scores.
        seed: Random seed of the split and of the training.
        set_: A parameter of LpClassifier or LpRegressor, as name=value; can be repeated.
        compare: Also fit a baseline and scikit-learn's estimators to the same rows.
        replace: Replace the model that the folder holds.
        separator: What is between two values of a csv file; by default it is guessed.
        verbose: Show every epoch, also where there is no terminal.
    """
    folder.check(out, replace)
    kinds: dict[str, Any] = _pairs("--column", "NAME=KIND", column or (), str.rpartition)
    texts = _pairs("--set", "name=value", set_ or ())
    settings = {name.strip(): _value(text.strip()) for name, text in texts.items()}
    table = read(data, separator)
    prepared = prepare(table, target, task=task, test=test, seed=seed, kinds=kinds)
    make_folder(out)  # an error must come before any training
    _print_prepared(prepared)
    fitted = fit_estimator(
        prepared,
        settings,
        compare=compare,
        verbose=verbose or sys.stderr.isatty(),
        show=lambda text: print(text, flush=True),
    )
    options = {
        "task": task,
        "column": column,
        "test": None if test == 0.2 else test,
        "seed": seed,
        "set": set_,
        "no-compare": not compare,
        "separator": separator,
    }
    command = _command(data, target, out, options)
    facts = {
        **fitted.facts(),
        "command": command,
        "folder": str(out),
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {**versions(), "scikit-learn": version("scikit-learn")},
    }
    folder.save(out, fitted, facts, card.render(fitted, command, facts))
    _print_fitted(fitted)
    print(f"card: {(out / folder.CARD).resolve().as_uri()}")
    print(f"next: {shlex.join(['lpunits', 'predict', str(out), 'new.csv'])}")


def _pairs(
    option: str,
    form: str,
    texts: Sequence[str],
    split: Callable[[str, str], tuple[str, str, str]] = str.partition,
) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = split(text, "=")
        if not equals:
            raise ValueError(f"{option} must be {form}, got {text!r}")
        found[name] = value
    return found


def _value(text: str) -> Any:
    """A value as Python writes it, otherwise text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _command(data: Path, target: str, out: Path, options: Mapping[str, Any]) -> str:
    """The command that repeats this one."""
    words = ["lpunits", "fit", str(data), "--target", target, "-o", str(out)]
    for name, given in options.items():
        for value in given if isinstance(given, list) else [given]:
            if value is True:
                words.append(f"--{name}")
            elif value is not None and value is not False:
                words += [f"--{name}", str(value)]
    return shlex.join(words)


def _print_prepared(prepared: Prepared) -> None:
    table, target = prepared.table, prepared.target
    other = "regression" if target.task == "classification" else "classification"
    both = target.why.startswith(("whole numbers", "numbers"))
    print(f"{table.source}: {len(table):,} rows, {len(table.columns)} columns")
    hint = f" (for {other}: --task {other})" if both else ""
    print(f"target {shown(target.name)}: {target.why}, {target.task}{hint}")
    print(f"columns: {card.summary(prepared.columns)}")
    for what, out in (("left out", True), ("filled or cut", False)):
        some = [c for c in prepared.columns if (c.kind == "out") == out and c.why]
        if some:
            more = f" and {len(some) - SHOWN} more" if len(some) > SHOWN else ""
            names = ", ".join(f"{shown(c.name)} ({c.why})" for c in some[:SHOWN])
            print(f"{what}: {names}{more}")
    train, test = len(prepared.split.y), len(prepared.split.y_test)
    kind = ", the classes in the same shares" if target.task == "classification" else ""
    print(f"split: {train:,} rows to train, {test:,} to test{kind}; seed {prepared.seed}")


def _print_fitted(fitted: Fitted) -> None:
    table = card.score_table(fitted)
    shows = [title != "training" for title in table.head]  # seconds are on the card
    head, *rows = (list(compress(row, shows)) for row in (table.head, *table.rows))
    print(f"validation rows: {fitted.validation}")
    tables.print_rows(head, [[escape(cell) for cell in row] for row in rows], shrinks=head[-1])
