"""The figures of Section 4, from trials that are really run."""

import json
import math
import re

import numpy as np
import pytest
import torch

from lpunits.paper.data import load
from lpunits.paper.experiments import fig1, fig2, fig3, fig4ab, plane
from lpunits.paper.experiments.plane import Plane, best, trained
from lpunits.paper.training.job import Job
from lpunits.paper.training.trial import Result, Trial


def result(config: Plane, seed: int, folder) -> Result:
    """A finished trial; its outcome has been to JSON and back, as in a record."""
    outcome = json.loads(json.dumps(config.run(seed, Job(folder)), allow_nan=False))
    return Result(Trial(config, seed), {"outcome": outcome})


@pytest.mark.parametrize(
    ("activation", "units"), [("lp", 3), ("l2", 3), ("maxout", 3), ("relu", 6), ("sigmoid", 6)]
)
def test_projections_are_counted_alike(activation, units):
    net = Plane("curve", activation, 6).net()
    filters = getattr(net[0], "filters", 1)
    assert net[0].weight.numel() // 2 == 6
    assert net[-1].in_features == units == 6 // filters


def test_three_lp_units_learn_the_curve(tmp_path):
    run = result(Plane("curve", "lp", 6), 1, tmp_path)
    assert run.outcome["train_errors"] == 0
    assert run.outcome["test_errors"] < 50
    assert run.outcome["stopped"] == "target"
    initial, final = (run.outcome["orders"][when] for when in ("initial", "final"))
    assert initial == pytest.approx([3, 3, 3])
    assert max(abs(a - b) for a, b in zip(initial, final, strict=True)) > 0.1
    # The net of the record is the one that was trained.
    train = load("curve").train
    wrong = (trained(run)(train.features)[:, 0] > 0).long() != train.targets
    assert not wrong.any()


def test_the_same_seed_gives_the_same_outcome_and_another_another(tmp_path):
    config = Plane("curve", "relu", 4, points=300, steps=5)
    first = config.run(0, Job(tmp_path))
    assert config.run(0, Job(tmp_path)) == first
    assert config.run(1, Job(tmp_path))["net"] != first["net"]


def test_orders_that_stay_stay(tmp_path):
    run = result(fig3.PANELS[1], 0, tmp_path)
    assert run.outcome["orders"] == {"initial": [2.0, "inf"], "final": [2.0, "inf"]}
    assert trained(run)[0].order.tolist() == [2.0, math.inf]
    section = fig3.section([run])
    assert "orders 2, ∞: " in section.verdict
    assert [p.name for p in section.pictures] == ["fig3"]


def test_a_unit_encloses_a_class_and_a_rectifier_cuts(tmp_path):
    runs = [result(config, 1, tmp_path) for config in fig2.PANELS.values()]
    section = fig2.section(runs)
    for name, run in zip(fig2.PANELS, runs, strict=True):
        train, test = run.outcome["train_errors"], run.outcome["test_errors"]
        assert f"the {name} {train} and {test}" in section.verdict
    assert [h.verdict for h in section.headlines] == ["reproduced"]
    assert not fig2.section(runs[2:]).headlines
    # The picture shows the whole of a shape, and of equally good nets the one with the smallest.
    left, right, bottom, top = plane.around(runs, 50)
    for run in runs[:2]:
        for curve in plane.outlines(run):
            assert (curve > (left, bottom)).all()
            assert (curve < (right, top)).all()
    # On a circle around everything an Lp unit gives one class at opposite points, a line does not.
    angle = torch.linspace(0, 2 * math.pi, 101)[:-1]
    circle = 1e4 * torch.stack([angle.cos(), angle.sin()], 1)
    for run in runs:
        inside = trained(run)(circle)[:, 0] > 0
        opposite = inside.roll(50) == inside
        assert bool(opposite.float().mean() > 0.9) == (run.config.activation == "lp")


def test_errors_are_counted_and_the_best_run_is_shown(tmp_path):
    runs = [
        result(Plane("curve", kind, 4, points=300, steps=steps), seed, tmp_path)
        for kind in ("lp", "relu")
        for steps, seed in ((4, 0), (15, 1))
    ]
    section = fig4ab.section(runs)
    for kind, paper in (("lp", 0), ("relu", 64)):
        found = [r.outcome["train_errors"] for r in runs if r.config.activation == kind]
        chosen = best(r for r in runs if r.config.activation == kind)
        assert chosen.outcome["train_errors"] == min(found)
        counted = f"{min(found)} training errors on 300 points (the paper's example: {paper})"
        assert counted in section.verdict
    assert [h.verdict for h in section.headlines] == ["reproduced", "reproduced"]


def test_the_unit_drawn_in_fig1_has_the_value_that_is_written_at_it():
    drawn = fig1.unit(fig1.FILTERS, fig1.CENTERS, fig1.ORDER)
    (curve,) = drawn.curve(1.0)
    assert abs(drawn(curve) - 1).max() < 1e-12
    assert re.search(r"with an error of (0e\+00|\de-1[56])\.", fig1.section([]).verdict)


@pytest.mark.parametrize("order", fig1.ORDERS)
def test_the_curves_of_fig1_meet_in_four_points_and_are_inside_the_picture(order):
    unit = fig1.unit(((1.0, 0.0), (0.0, 1.0)), (0.0, 0.0), order)
    corners = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    assert unit(corners) == pytest.approx(1)
    (curve,) = unit.curve(1.0)
    assert abs(curve).max() < 2.1


@pytest.mark.parametrize("name", ["L2 unit", "L∞ unit"])
def test_what_a_unit_encloses_is_inside_the_picture_of_fig2(name, tmp_path):
    trials = plane.gaussian_trials([fig2.PANELS[name]], "quick")
    drawn = plane.compact([result(trial.config, trial.seed, tmp_path) for trial in trials])
    left, right, bottom, top = extent = plane.around([drawn], 2)
    for curve in plane.outlines(drawn, extent):
        assert left < curve[:, 0].min() < curve[:, 0].max() < right
        assert bottom < curve[:, 1].min() < curve[:, 1].max() < top


def test_of_equally_good_nets_the_one_with_the_smallest_shape_is_drawn(tmp_path):
    config = fig2.PANELS["L2 unit"]
    runs = [result(config, seed, tmp_path) for seed in range(3)]
    for run in runs:
        run.outcome["train_errors"] = 2
    sizes = [max(np.ptp(c, axis=0).max() for c in plane.outlines(run)) for run in runs]
    assert plane.compact(runs) is runs[int(np.argmin(sizes))]
    best_alone = result(config, 0, tmp_path)
    best_alone.outcome["train_errors"] = 1
    assert plane.compact([*runs, best_alone]) is best_alone
