"""A unit finds the order of the norm that made its data."""

import pytest

from lpunits.paper.experiments.toy import Toy
from lpunits.paper.training.job import Job


@pytest.mark.parametrize("order", [1.2, 2.0, 4.0])
def test_a_unit_finds_the_order_of_the_norm_that_made_the_data(order, tmp_path):
    outcome = Toy(order, starts=6).run(0, Job(tmp_path))
    assert outcome["learned_order"] == pytest.approx(order, rel=0.15)
    assert outcome["train_errors"] == 0
    assert outcome["test_error"] < 0.01
