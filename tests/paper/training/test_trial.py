"""The key of a trial: the same for the same trial, and for no other."""

import math
from dataclasses import dataclass, field, make_dataclass

import pytest
from configs import Sum

from lpunits.paper.statistics import spread
from lpunits.paper.training.trial import Trial


def test_equal_trials_have_equal_keys_and_others_have_not():
    trials = [
        Trial(Sum(), 0),
        Trial(Sum(), 1),
        Trial(Sum(2.0), 0),
        Trial(Sum(mode="raise"), 0),
        Trial(Sum(needs=("a", "b")), 0),
        Trial(Sum(needs=("a",)), 0),
    ]
    assert len({trial.key for trial in trials}) == len(trials)
    assert Trial(Sum(1.0, "add"), 0).key == trials[0].key
    assert trials[0].key.startswith("sum-")


def test_a_new_field_with_a_default_leaves_the_keys_of_old_records():
    old = make_dataclass("Net", [("data", str), ("lr", float, 0.1)], frozen=True)
    new = make_dataclass(
        "Net", [("data", str), ("lr", float, 0.1), ("smoothing", float, 0.0)], frozen=True
    )
    assert Trial(old("a", 0.2), 3).key == Trial(new("a", 0.2), 3).key
    assert Trial(old("a", 0.2), 3).key != Trial(new("a", 0.2, 0.1), 3).key


def test_values_are_strict_json():
    @dataclass(frozen=True)
    class Config:
        order: float = math.inf
        orders: tuple[float, ...] = (2.0, math.inf)
        nested: dict[str, float] = field(default_factory=lambda: {"a": math.inf})

    assert Trial(Config(), 0).values == {
        "order": "inf",
        "orders": [2.0, "inf"],
        "nested": {"a": "inf"},
    }


@pytest.mark.parametrize(
    ("values", "form", "expected"),
    [
        ([1.0, 3.0], ".1f", "2.0 ± 1.4 (n = 2)"),
        ([0.5], ".0%", "50% (n = 1)"),
    ],
)
def test_spread(values, form, expected):
    assert spread(values, form) == expected
