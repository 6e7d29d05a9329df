"""Tables in files: csv and parquet, read as columns of text, in which None is a missing value.

csv is read by Python's own module: others fill the end of a short line with missing values, and
rename a column whose name comes twice, without a word.
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MISSING = {"", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "?"}  # in any case
SEPARATORS = (",", ";", "\t", "|")
HEAD = 2**22  # characters: the first line is in them
# A parquet file of some KB can stand for any number of equal values.
MOST_VALUES, MOST_TEXT = 2**26, 2**30  # bytes of text
DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
OTHER_FILES = {
    b"PK\x03\x04": "an Excel or zip file",
    b"\x1f\x8b": "a gzip file",
    b"\xd0\xcf\x11\xe0": "an old Excel file",
    b"%PDF": "a PDF file",
}

Values = list[str | None]


@dataclass(frozen=True)
class Table:
    """A table as text.

    Args:
        source: Its file.
        columns: The values by column; None is missing.
        lines: Where each row begins in a csv file; without, rows are counted from 1.
    """

    source: Path
    columns: dict[str, Values]
    lines: Sequence[int] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def place(self, row: int) -> str:
        """Where a row is, for a sentence."""
        return f"line {self.lines[row]}" if self.lines else f"row {row + 1}"


def read(path: Path, separator: str | None = None) -> Table:
    """The table of a csv or parquet file.

    Args:
        path: The file. What it contains decides how it is read, not its name.
        separator: What is between two values of a csv file; by default the one of ``,``, ``;``,
            tab and ``|`` that the first line has most of.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder, a csv or parquet file is expected")
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    if not data.strip():
        raise ValueError(f"{path} is empty, a table with a line of names is expected")
    if data.startswith(b"PAR1"):
        return _parquet(path, data)
    for start, what in OTHER_FILES.items():
        if data.startswith(start):
            raise ValueError(f"{path} is {what}, a csv or parquet file is expected")
    return _csv(path, _text(path, data), separator)


def shown(text: str) -> str:
    r"""A name of a file, fit for a terminal and a sentence: short, without control characters.

    >>> shown("price"), shown("a\x1b[31m"), len(shown("x" * 1000))
    ('price', 'a\\x1b[31m', 60)
    """
    plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return plain if len(plain) <= 60 else f"{plain[:59]}…"


def _text(path: Path, data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"{path} is UTF-16, save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}, line {line}: the byte 0x{data[error.start]:02x} is not UTF-8, "
            "save the file as UTF-8"
        ) from error
    if "\0" in text:
        raise ValueError(f"{path} has bytes of 0, a csv file is text")
    return text


def _csv(path: Path, text: str, separator: str | None) -> Table:
    if separator is not None and (len(separator) != 1 or separator in '"\r\n'):
        raise ValueError(f"separator must be one character, got {separator!r}")
    text = text.rstrip("\r\n")
    separator = separator or max(SEPARATORS, key=lambda s: _width(path, text, s))
    names = _names(path, text, separator)
    _check_names(path, names)
    rows, lines, line = [], [], 0
    try:
        reader = _reader(text, separator)
        for row in reader:
            begin, line = line + 1, reader.line_num
            if not row:
                if len(names) > 1:
                    continue  # an empty line
                row = [""]
            if len(row) != len(names):
                raise ValueError(
                    f"{path}, line {begin}: {len(row)} values, but the first line names "
                    f"{len(names)} columns"
                )
            rows.append(row)
            lines.append(begin)
    except csv.Error as error:
        raise ValueError(f"{path}, line {line + 1}: not valid csv ({error})") from error
    if len(rows) == 1:
        raise ValueError(f"{path} has names of columns, but no row of values")
    columns = [_missing(values[1:]) for values in zip(*rows, strict=True)]
    if separator == ";":
        columns = [_decimal_points(values) for values in columns]
    return Table(path, dict(zip(names, columns, strict=True)), lines[1:])


def _reader(text: str, separator: str):  # type: ignore[no-untyped-def]
    return csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True
    )


def _width(path: Path, text: str, separator: str) -> int:
    """How many columns a separator makes; none where the quotes of the first line forbid it."""
    try:
        return len(_names(path, text, separator))
    except ValueError:
        return 0


def _names(path: Path, text: str, separator: str) -> list[str]:
    """The names of the first line; a column without one is called by its number."""
    try:
        first: list[str] = next(_reader(text[:HEAD], separator))
    except csv.Error as error:
        raise ValueError(f"{path}, line 1: not valid csv ({error})") from error
    return [name.strip() or f"column {place}" for place, name in enumerate(first, 1)]


def _check_names(path: Path, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{path} has {names.count(twice)} columns of the name {shown(twice)!r}")
    if all(number(name) is not None for name in names) and not all(map(str.isdecimal, names)):
        raise ValueError(
            f"{path}: the first line must name the columns, got the numbers "
            f"{', '.join(map(shown, names[:3]))}"
        )


def _missing(values: Sequence[str]) -> Values:
    stripped = map(str.strip, values)
    return [None if value.lower() in MISSING else value for value in stripped]


def _decimal_points(values: Values) -> Values:
    """Numbers with a decimal comma, as files with semicolons have them, with a point."""
    present = [value for value in values if value is not None]
    if any("," in value for value in present) and all(map(DECIMAL_COMMA.fullmatch, present)):
        return [value and value.replace(",", ".") for value in values]
    return values


def number(text: str | None) -> float | None:
    """The number that a text is, or None.

    >>> number("-1.5e3"), number("12 kg"), number("1_000")
    (-1500.0, None, None)
    """
    try:
        return None if text is None or "_" in text else float(text)
    except ValueError:
        return None


def _parquet(path: Path, data: bytes) -> Table:
    try:
        import polars
    except ImportError as error:
        raise ValueError(
            f"{path} is a parquet file, to read it install lpunits[parquet] (or save it as csv)"
        ) from error
    try:
        rows = polars.scan_parquet(io.BytesIO(data))
        values = rows.select(polars.len()).collect().item() * len(rows.collect_schema())
        if values > MOST_VALUES:
            raise ValueError(f"{path}: at most {MOST_VALUES:,} values are expected, got {values:,}")
        frame = rows.collect()
        for name, kind in frame.schema.items():
            if kind.is_nested() or kind in (polars.Binary, polars.Object):
                raise ValueError(
                    f"{path}: the column {shown(name)!r} holds {kind}, a number or text for each "
                    "row is expected"
                )
            if kind == polars.Boolean:  # as csv files have it
                words = {True: "True", False: "False"}
                word = polars.col(name).replace_strict(words, return_dtype=polars.String)
                frame = frame.with_columns(word)
        text = frame.cast(polars.String)
        size = sum(int(column.str.len_bytes().sum()) for column in text)
        if size > MOST_TEXT:
            raise ValueError(f"{path}: at most {MOST_TEXT:,} bytes are expected, got {size:,}")
        columns = text.to_dict(as_series=False)
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path}: not a valid parquet file ({reason})") from error
    if not columns or not frame.height:
        raise ValueError(f"{path} has no row of values")
    return Table(path, {name: _missing([v or "" for v in vs]) for name, vs in columns.items()})
