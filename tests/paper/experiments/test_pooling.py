"""The experiments on bags, on graphs and on one order for all channels."""

import math

import pytest
import torch

from lpunits.paper.experiments import bags, gem, graphs
from lpunits.paper.experiments.bags import BagNet, Bags
from lpunits.paper.experiments.graphs import Batch, Graphs
from lpunits.paper.training.job import Job
from lpunits.paper.training.networks import Convolutional
from lpunits.paper.training.trial import Result, Trial


@pytest.mark.parametrize("rule", bags.RULES)
def test_bags_of_every_size_are_half_positive(rule):
    x, mask, y = bags.drawn(rule, 4000, torch.Generator().manual_seed(0))
    assert set(mask.sum(1).tolist()) == set(range(5, 31))
    assert not x[~mask].any()
    for size in (5, 17, 30):
        assert y[mask.sum(1) == size].mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("pool", bags.POOLS)
def test_padding_does_not_change_a_bag(pool):
    x, mask, _ = bags.drawn("max", 20, torch.Generator().manual_seed(0))
    net = BagNet(pool)
    disturbed = torch.where(mask.unsqueeze(-1), x, 7.0)
    torch.testing.assert_close(net(x, mask), net(disturbed, mask))


def test_a_rule_is_learned(tmp_path):
    found = Bags("mean", "mean", tested=1000).run(0, Job(tmp_path))
    assert found["test_error"] < 0.1
    assert found["orders"] == []


def bag_results(errors):
    return [
        Result(
            Trial(Bags("max", pool), seed),
            {"outcome": {"test_error": e, "train_error": e, "orders": [3.0, 5.0]}},
        )
        for pool, found in errors.items()
        for seed, e in enumerate(found)
    ]


def test_the_verdict_on_bags_says_what_was_found():
    errors = {"learned": [0.10, 0.11], "mean": [0.20, 0.21], "attention": [0.05, 0.06]}
    verdict = bags.section(bag_results(errors)).verdict
    assert verdict == (
        "Where the largest decides, the error of the learned order is 10.50%: "
        "lower than mean (p = 1), higher than attention."
    )
    (table,) = bags.section(bag_results({"learned": [0.1]})).tables
    assert table.rows[0][-1] == "4.00 (3.50 to 4.50)"


def test_graphs_are_apart_and_every_node_has_an_edge_to_itself():
    batch = Batch.drawn(50, torch.Generator().manual_seed(0))
    assert torch.equal(batch.graph[batch.source], batch.graph[batch.target])
    assert (batch.source == batch.target).sum() >= len(batch.x)
    assert torch.bincount(batch.graph).min() >= 5


def test_learned_orders_find_the_true_ones(tmp_path):
    found = Graphs("learned", graphs=100, steps=300).run(1, Job(tmp_path))
    away = torch.tensor(found["found"]) - torch.tensor(found["true"])
    assert found["parameters"] == 8
    assert away.abs().median() < 0.1
    assert torch.tensor(found["true"]).sub(1).abs().median() > 1  # they start at 1
    mean = Graphs("mean", graphs=100, steps=300).run(1, Job(tmp_path))
    assert found["test_error"] < mean["test_error"] / 3


def test_the_verdict_on_graphs_counts_the_orders_that_were_found():
    outcome = {"true": [[1.0, 2.0]] * 2, "found": [[1.05, 3.0], [1.0, 2.0]], "parameters": 8}
    learned = Result(Trial(Graphs("learned"), 0), {"outcome": {**outcome, "test_error": 0.1}})
    mean = Result(Trial(Graphs("mean"), 0), {"outcome": {**outcome, "test_error": 0.05}})
    verdict = graphs.section([learned, mean]).verdict
    assert verdict.startswith("Of 4 orders, 3 are found within 0.1")
    assert verdict.endswith("Its error is higher than that of mean (p = 1).")
    assert "not been run" in graphs.section([mean]).verdict


def test_one_order_for_all_channels():
    shared = Convolutional("digits", channels=(4, 8), shared=True).model((8, 8), 10)
    assert shared[-2].rho.numel() == 1
    assert torch.equal(shared[-2].order, torch.full((8,), 3.0))
    kinds = [gem.pool(t.config) for t in gem.trials("smoke")]
    assert kinds == [gem.LEARNED, gem.SHARED, "average (p = 1)", "p = 3", "max (p = ∞)"]
    assert {t.config.data for t in gem.trials("paper")} == {"mnist", "fer2013"}
    assert math.isinf(gem.trials("smoke")[-1].config.order)
