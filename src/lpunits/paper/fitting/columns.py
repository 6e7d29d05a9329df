"""What becomes of the columns of a table: numbers for a network, or nothing, and why."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from lpunits import sealed
from lpunits.paper.fitting.reading import Table, Values, number, shown

Kind = Literal["number", "category", "out"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MOST_LEVELS = 30  # of a category
FEWEST_ROWS = 2  # of a level: nothing can be learned from a value that came once
DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}([T ].*)?")
ID = re.compile(r"(.*[_\W])?(id|index|key|nr|no|row|column \d+)|unnamed.*", re.IGNORECASE)
MORE = "choose --column {0}=category or --column {0}=out"


@dataclass(frozen=True)
class Column:
    """A column, and what it becomes.

    Args:
        name: Its name in the file.
        kind: ``number``: itself, a missing one by ``fill``; ``category``: a column of zeros and
            ones for each of its ``levels``, all zero for any other value; ``out``: nothing.
        why: The reason, or another remark, in a few words.
        fill: The median of the training rows.
        flagged: Whether a further column marks where the number was missing.
        levels: The values of a category; None stands for a missing one.
    """

    name: str
    kind: Kind
    why: str = ""
    fill: float = 0.0
    flagged: bool = False
    levels: tuple[str | None, ...] = ()

    @property
    def features(self) -> list[str]:
        """The names of what it becomes."""
        if self.kind == "number":
            return [self.name, f"{self.name} is missing"][: 1 + self.flagged]
        return [f"{self.name} = {'missing' if v is None else v}" for v in self.levels]

    def encode(self, table: Table, notes: list[str]) -> npt.NDArray[np.float64]:
        """Its features, ``(rows, features)``; what was filled or is not known is noted."""
        values = table.columns[self.name]
        if self.kind == "category":
            known = {level: place for place, level in enumerate(self.levels)}
            found = np.array([known.get(value, -1) for value in values])
            if unknown := int((found < 0).sum()):
                notes.append(f"{_places(unknown)} of {shown(self.name)} rare or new")
            return np.asarray(found[:, None] == np.arange(len(self.levels)), np.float64)
        x = numbers(table, self.name)
        missing = np.isnan(x)
        if missing.any():
            notes.append(f"{_places(int(missing.sum()))} of {shown(self.name)} missing")
        filled = np.where(missing, self.fill, x)
        return np.stack([filled, missing.astype(np.float64)][: 1 + self.flagged], 1)


def learn(
    table: Table, names: Iterable[str], rows: npt.NDArray[np.intp], kinds: Mapping[str, Kind]
) -> list[Column]:
    """What becomes of columns. Their kinds are those of the file, all else is of some rows alone.

    Args:
        table: The table.
        names: The columns.
        rows: The rows to train on: medians and categories are theirs.
        kinds: The kinds of columns that are not to be guessed.
    """
    return [_learn(table, name, rows, kinds.get(name)) for name in names]


def encode(
    table: Table, columns: Sequence[Column]
) -> tuple[npt.NDArray[np.float64], list[str], list[str]]:
    """The table as numbers, the names of its columns, and notes on what was filled."""
    notes: list[str] = []
    used = [column for column in columns if column.kind != "out"]
    X = np.concatenate([column.encode(table, notes) for column in used], axis=1)
    return X, [feature for column in used for feature in column.features], notes


def numbers(table: Table, name: str, hint: str = "") -> npt.NDArray[np.float64]:
    """A column as numbers, in which NaN is missing; text and infinity are a ValueError."""
    values = table.columns[name]
    known = {text: number(text) for text in set(values)}  # once for each, as text repeats
    bad = {text for text, x in known.items() if text and (x is None or not math.isfinite(x))}
    wrong = [row for row, text in enumerate(values) if text in bad] if bad else []
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        what = "text" if number(values[wrong[0]]) is None else "a value that is not finite"
        raise ValueError(
            f"{table.source}: the column {shown(name)!r} has {what} among numbers: "
            f"{shown(values[wrong[0]] or '')!r} in {table.place(wrong[0])}{more}{hint}"
        )
    found = {text: math.nan if x is None else x for text, x in known.items()}
    return np.array([found[text] for text in values])


def _learn(table: Table, name: str, rows: npt.NDArray[np.intp], given: Kind | None) -> Column:
    values = table.columns[name]
    if given == "out":
        return Column(name, "out", "as chosen")
    counts = Counter(value for value in values if value is not None)
    if len(set(values)) < 2:  # a missing value is one, too
        return Column(name, "out", "one value alone" if counts else "no value at all")
    if given is None:
        kind, why = _guess(table, name, counts)
    else:
        kind, why = given, "as chosen"
    if kind == "out":
        return Column(name, "out", why)
    if kind == "category":
        return _category(name, [values[row] for row in rows], why)
    x = numbers(table, name)[rows]
    missing = np.isnan(x)
    if missing.all():
        return Column(name, "out", "no value in the rows to train on")
    share = f"{int(missing.sum())} missing, filled by the median" if missing.any() else ""
    fill = float(np.median(x[~missing]))
    return Column(name, "number", "; ".join(filter(None, (why, share))), fill, bool(missing.any()))


def _guess(table: Table, name: str, counts: Counter[str]) -> tuple[Kind, str]:
    """The kind of a column, and why."""
    present = counts.total()
    numeric = sum(times for value, times in counts.items() if number(value) is not None)
    if 2 * numeric >= present:
        x = numbers(table, name, f"; {MORE.format(shown(name))}")
        return ("out", "a number for each row, as an id has") if is_id(name, x) else ("number", "")
    dates = sum(times for value, times in counts.items() if DATE.fullmatch(value))
    if 10 * dates >= 9 * present:
        return "out", "dates"
    if len(counts) > MOST_LEVELS and 2 * len(counts) > present:
        return "out", "text that is different in most rows"
    return "category", ""


def is_id(name: str, x: npt.NDArray[np.float64]) -> bool:
    """Whether numbers look like an identifier: whole, all different, and named or counted so.

    >>> is_id("price", np.array([3., 4., 5.])), is_id("user_id", np.array([7., 3., 9.]))
    (True, True)
    >>> is_id("price", np.array([3., 5., 4.])), is_id("humid", np.array([7., 3., 9.]))
    (False, False)
    """
    if np.isnan(x).any() or (x != np.round(x)).any() or len(np.unique(x)) < len(x):
        return False
    return bool(ID.fullmatch(name)) or bool((np.diff(x) == 1).all())


def _category(name: str, values: Values, why: str) -> Column:
    """A category: the most frequent values of the rows to train on, in a fixed order."""
    counts = Counter(values)
    frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0] or ""))
    levels = [value for value, times in frequent if times >= FEWEST_ROWS][:MOST_LEVELS]
    if not levels:
        return Column(name, "out", "every value came once")
    rest = counts.total() - sum(counts[level] for level in levels)
    parts = [why] if why else []
    if counts[None]:
        parts.append(f"{counts[None]} missing, a value of its own" * (None in levels))
    if rest:
        parts.append(f"{len(levels)} of {len(counts)} values, {rest} rows have another")
    return Column(name, "category", "; ".join(filter(None, parts)), levels=tuple(levels))


def _places(count: int) -> str:
    return f"{count:,} value{'s' * (count != 1)}"


def as_json(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Columns for a JSON file."""
    return [{**vars(column), "levels": list(column.levels)} for column in columns]


def from_json(found: Sequence[Mapping[str, Any]]) -> list[Column]:
    """The columns of a JSON file."""
    return [sealed.made(Column, values) for values in found]
