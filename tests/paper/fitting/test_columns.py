"""What becomes of columns: numbers, categories, or nothing, and the remark about it."""

import json
from pathlib import Path

import numpy as np
import pytest

from lpunits.paper.fitting.columns import (
    MOST_LEVELS,
    as_json,
    encode,
    from_json,
    learn,
    numbers,
)
from lpunits.paper.fitting.reading import Table

ROWS = 40


def table(**columns):
    return Table(Path("t.csv"), {name: list(values) for name, values in columns.items()})


def learned(values, given=None, rows=None, name="a"):
    made = table(**{name: values})
    rows = np.arange(len(values)) if rows is None else np.array(rows)
    (column,) = learn(made, [name], rows, {} if given is None else {name: given})
    return column


def test_numbers_are_filled_by_the_median_of_the_training_rows_and_flagged():
    values = ["1", None, "3", "5", "100"] * 8
    column = learned(values, rows=range(4))
    assert (column.kind, column.fill, column.flagged) == ("number", 3.0, True)
    assert column.why == "1 missing, filled by the median"
    notes = []
    X = column.encode(table(a=["7", None]), notes)
    assert X.tolist() == [[7.0, 0.0], [3.0, 1.0]]
    assert notes == ["1 value of a missing"]
    assert column.features == ["a", "a is missing"]


def test_without_missing_values_there_is_no_flag():
    column = learned(["1", "2"] * 20)
    assert column.features == ["a"]
    notes = []
    assert column.encode(table(a=[None]), notes).tolist() == [[1.5]]
    assert notes == ["1 value of a missing"]


def test_categories_are_zeros_and_ones_and_unknown_ones_are_all_zero():
    column = learned(["x"] * 5 + ["y"] * 3 + [None] * 2 + ["once"])
    assert column.levels == ("x", "y", None)
    assert column.features == ["a = x", "a = y", "a = missing"]
    assert "3 of 4 values, 1 rows have another" in column.why
    notes = []
    X = column.encode(table(a=["y", None, "new", "once"]), notes)
    assert X.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert notes == ["2 values of a rare or new"]


def test_a_category_keeps_its_most_frequent_values():
    values = [f"v{i}" for i in range(100) for _ in range(2 + (i < 30))]
    column = learned(values)
    assert len(column.levels) == MOST_LEVELS
    assert set(column.levels) == {f"v{i}" for i in range(30)}
    assert column.why == "30 of 100 values, 140 rows have another"


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("a", ["x"] * ROWS, "one value alone"),
        ("a", [None] * ROWS, "no value at all"),
        ("a", [str(i + 7) for i in range(ROWS)], "a number for each row, as an id has"),
        ("user_id", [str(i * i) for i in range(ROWS)], "a number for each row, as an id has"),
        ("a", [f"2024-01-{1 + i % 28:02d}" for i in range(ROWS)], "dates"),
        ("a", [f"{1 + i % 28}.12.2024 10:00" for i in range(ROWS)], "dates"),
        ("a", [f"some text {i}" for i in range(ROWS)], "text that is different in most rows"),
    ],
)
def test_what_is_left_out_and_why(name, values, why):
    column = learned(values, name=name)
    assert (column.kind, column.why) == ("out", why)
    assert column.features == []


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("a", [str(i * i) for i in range(ROWS)]),  # whole and different, but no id by its name
        ("user_id", [str(i % 7) for i in range(ROWS)]),
        ("humid", [str(3 * i) for i in range(ROWS)]),
    ],
)
def test_what_is_no_id(name, values):
    assert learned(values, name=name).kind == "number"


def test_kinds_can_be_chosen():
    ids = [str(i) for i in range(ROWS)]
    assert learned(ids, given="number").kind == "number"
    assert learned(["1", "2"] * 20, given="category").levels == ("1", "2")
    assert learned(["1", "2"] * 20, given="out").why == "as chosen"
    assert learned(ids, given="category").kind == "out"  # every value came once
    with pytest.raises(ValueError, match="'a' has text among numbers: 'x' in row 1"):
        learned(["x", "y"] * 20, given="number")


def test_text_among_numbers_is_refused_with_its_place():
    made = Table(Path("t.csv"), {"a": ["1", "12 kg", "3", "x"]}, [2, 3, 5, 6])
    with pytest.raises(ValueError, match="text among numbers: '12 kg' in line 3 and 1 more"):
        numbers(made, "a")
    with pytest.raises(ValueError, match="--column a=category or --column a=out"):
        learned(["1"] * 30 + ["2"] * 9 + ["x"])
    with pytest.raises(ValueError, match="a value that is not finite among numbers: '1000"):
        learned(["1"] * 39 + [str(10**400)])


def test_columns_return_from_json_and_encode_the_same():
    made = table(
        **{"a": ["1.1", None] * 20, '"<b>': ["x", "é"] * 20, "c": ["0"] * ROWS},
    )
    columns = learn(made, made.columns, np.arange(ROWS), {})
    again = from_json(json.loads(json.dumps(as_json(columns))))
    assert again == columns
    assert np.array_equal(encode(made, again)[0], encode(made, columns)[0])
    assert encode(made, again)[1] == ["a", "a is missing", '"<b> = x', '"<b> = é']
