"""What is to be predicted: classes or numbers, guessed from a column, or refused in a sentence."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from lpunits.paper.fitting.columns import DATE, is_id, numbers
from lpunits.paper.fitting.reading import Table, Values, number, shown

Task = Literal["classification", "regression"]
TASKS: tuple[Task, ...] = get_args(Task)
MOST_CLASSES = 10  # of whole numbers; more of them are a quantity
FEWEST_ROWS = 5  # of a class on average, for whole numbers; text needs fewer
SHORTEST = 20  # rows


@dataclass(frozen=True)
class Target:
    """The column to predict.

    Args:
        name: Its name.
        task: ``classification`` or ``regression``.
        why: What the task was guessed from.
        classes: The values of a classification, as text.
    """

    name: str
    task: Task
    why: str
    classes: tuple[str, ...] = ()

    def of(self, table: Table) -> npt.NDArray[Any]:
        """The targets of a table: text of classes, or numbers."""
        if self.task == "classification":
            return np.array(_labels(table.columns[self.name]), object)
        return numbers(table, self.name)


def find(table: Table, name: str, task: Task | None = None) -> Target:
    """The target of that name, checked; its task is guessed unless it is given."""
    where = f"{table.source}: the target {shown(name)!r}"
    if name not in table.columns:
        names = ", ".join(map(shown, list(table.columns)[:10]))
        more = ", ..." if len(table.columns) > 10 else ""
        raise ValueError(f"{where} is no column, there are {names}{more}")
    if len(table.columns) == 1:
        raise ValueError(f"{where} is the only column, there is nothing to predict it from")
    if len(table) < SHORTEST:
        rows = f"{len(table)} row{'s' * (len(table) != 1)}"
        raise ValueError(
            f"{table.source} has {rows}, at least {SHORTEST} are needed to train and to test"
        )
    values = table.columns[name]
    missing = [row for row, value in enumerate(values) if value is None]
    if missing:
        raise ValueError(
            f"{where} is missing in {len(missing)} of {len(table)} rows, first in "
            f"{table.place(missing[0])}: leave these rows out"
        )
    counts = Counter(values)
    if len(counts) == 1:
        raise ValueError(f"{where} is {shown(values[0] or '')!r} in every row, it must differ")
    guessed = _guess(table, name, counts) if task is None else (task, "as chosen")
    if guessed[0] == "regression":
        x = numbers(table, name, "; --task classification takes them as classes")
        if (np.diff(x) == 0).all():
            raise ValueError(f"{where} is {x[0]:g} in every row, it must differ")
        if task is None and is_id(name, x):
            raise ValueError(
                f"{where} looks like an identifier, a whole number for each row; "
                "--task regression predicts it nevertheless"
            )
        return Target(name, *guessed)
    labels = Counter(_labels(values))
    if len(labels) < 2:
        raise ValueError(f"{where} has one class, {next(iter(labels))!r}, it must have two")
    if 3 * len(labels) > len(table):
        what = "looks like an identifier or a free text"
        if all(DATE.fullmatch(label) for label in labels):
            what = "is a date, and dates cannot be predicted"
        raise ValueError(f"{where} {what}: {len(labels)} values in {len(table)} rows")
    return Target(name, *guessed, tuple(sorted(labels)))


def _guess(table: Table, name: str, counts: Counter[str | None]) -> tuple[Task, str]:
    found = [number(value) for value in counts]
    if 2 * sum(x is not None for x in found) < len(found):
        return "classification", f"text with {len(counts)} values"
    whole = all(x is not None and np.isfinite(x) and x == round(x) for x in found)
    few = len(counts) <= MOST_CLASSES and len(table) >= FEWEST_ROWS * len(counts)
    if whole and few:
        return "classification", f"whole numbers with {len(counts)} values"
    return "regression", f"numbers with {len(counts):,} values"


def _labels(values: Values) -> list[str]:
    """Classes as text. Numbers are classes by their value: 1 and 1.0 are one.

    >>> _labels(["1", "1.0", "2"]), _labels(["1", "two"])
    (['1', '1', '2'], ['1', 'two'])
    """
    texts = [value or "" for value in values]
    found = {text: number(text) for text in set(texts)}
    if not all(x is not None and abs(x) < 2**53 for x in found.values()):
        return texts  # beyond, different whole numbers are one float
    short = {text: f"{x:.0f}" if x == round(x or 0) else repr(x) for text, x in found.items()}
    return [short[text] for text in texts]
