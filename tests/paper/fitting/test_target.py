"""What is to be predicted: classes or numbers, or a sentence."""

from pathlib import Path

import pytest

from lpunits.paper.fitting.reading import Table
from lpunits.paper.fitting.target import find

ROWS = 60


def table(values, **others):
    others = others or {"a": [str(i * i) for i in range(len(values))]}
    return Table(Path("t.csv"), {**others, "y": list(values)})


@pytest.mark.parametrize(
    ("values", "task", "classes"),
    [
        (["no", "yes"] * 30, "classification", ("no", "yes")),
        (["0", "1"] * 30, "classification", ("0", "1")),
        (["1", "1.0", "2"] * 20, "classification", ("1", "2")),
        ([str(i % 10) for i in range(ROWS)], "classification", tuple("0123456789")),
        ([str(i % 11) for i in range(ROWS)], "regression", ()),
        (["0.5", "1"] * 30, "regression", ()),
        ([str(i * 1.5) for i in range(ROWS)], "regression", ()),
    ],
)
def test_the_task_is_guessed(values, task, classes):
    found = find(table(values), "y")
    assert (found.task, found.classes) == (task, classes)


def test_the_task_can_be_chosen():
    assert find(table(["0", "1"] * 30), "y", "regression").task == "regression"
    found = find(table(["0.5", "1"] * 30), "y", "classification")
    assert found.classes == ("0.5", "1")
    assert set(found.of(table(["0.5", "1.00"]))) == {"0.5", "1"}
    whole = [str(i) for i in range(ROWS)]
    assert find(table(whole), "y", "regression").of(table(whole))[-1] == ROWS - 1


def test_large_whole_numbers_stay_different_classes():
    values = [str(2**60), str(2**60 + 1)] * 30
    assert len(find(table(values), "y", "classification").classes) == 2


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (["1", "2", "3"], "has 3 rows, at least 20 are needed"),
        (["x"] * ROWS, "is 'x' in every row"),
        (["5.5"] * ROWS, "is '5.5' in every row"),
        (["5.5", "5.50"] * 30, "is 5.5 in every row"),
        (["0", None] * 30, "is missing in 30 of 60 rows, first in row 2"),
        ([f"user {i}" for i in range(ROWS)], "looks like an identifier or a free text: 60 values"),
        ([str(i + 5) for i in range(ROWS)], "looks like an identifier, a whole number for each"),
        ([f"2024-02-{1 + i % 28}" for i in range(ROWS)], "is a date, and dates cannot be"),
        (["1.5", "2.5", "x"] * 20, "text among numbers: 'x' in row 3 and 19 more; --task"),
        ([str(10**400 + i) for i in range(ROWS)], "not finite among numbers"),
    ],
)
def test_what_cannot_be_predicted(values, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        find(table(values), "y")
    assert "\n" not in str(error.value)


def test_a_target_that_is_not_there_or_alone():
    with pytest.raises(ValueError, match=r"the target 'z' is no column, there are a, y"):
        find(table(["0", "1"] * 30), "z")
    with pytest.raises(ValueError, match="is the only column"):
        find(Table(Path("t.csv"), {"y": ["0", "1"] * 30}), "y")


def test_classes_that_come_as_one():
    with pytest.raises(ValueError, match="has one class, '1', it must have two"):
        find(table(["1", "1.0"] * 30), "y", "classification")
