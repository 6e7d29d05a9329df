import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from lpunits import MLP, LpLinear, LpPool, MaxoutLinear, geometry

ORDERS = [1.0, 1.3, 2.0, 4.7, 50.0, math.inf]


def layer(weight, center, order=2.0, **options) -> LpLinear:
    """A layer of one unit, from its filters and centres."""
    made = LpLinear(2, 1, len(weight), order=order, dtype=torch.float64, bias=False, **options)
    with torch.no_grad():
        made.weight.copy_(torch.tensor(weight, dtype=torch.float64).unsqueeze(1))
        made.center.copy_(torch.tensor(center, dtype=torch.float64).unsqueeze(1))
    return made


def value(model: nn.Module, points) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(np.ascontiguousarray(points))).numpy()


@pytest.mark.parametrize("order", ORDERS)
def test_two_filters(order):
    model = layer([[2.0, 1.0], [-0.5, 1.0]], [0.3, -0.7], order)
    (unit,) = geometry.units(model)
    assert unit.order == pytest.approx(order, rel=1e-12)
    np.testing.assert_allclose(unit.filters @ unit.center, [0.3, -0.7], atol=1e-12)
    np.testing.assert_allclose(unit.filters @ unit.axes.T, np.eye(2), atol=1e-12)
    (curve,) = unit.curve(1.5)
    np.testing.assert_allclose(value(model, curve)[:, 0], 1.5, rtol=1e-12)
    assert (curve[0] == curve[-1]).all()
    # The value is a mean: along an axis only one of two projections is left, N^(1/p) times as far.
    tips = unit.meet(unit.axes, 1.5)
    far = 1.5 * (1 if math.isinf(order) else 2 ** (1 / order))
    np.testing.assert_allclose(tips, unit.center + far * unit.axes, rtol=1e-9)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_points_on_the_curve_give_the_level_back(data):
    """Any number of filters, dependent or not, any order, far centres, long and short filters."""
    filters = data.draw(st.integers(1, 5))
    entry = st.floats(-1, 1, width=32)
    W = np.array(data.draw(st.lists(st.tuples(entry, entry), min_size=filters, max_size=filters)))
    c = data.draw(st.lists(st.floats(-3, 3, width=32), min_size=filters, max_size=filters))
    if data.draw(st.booleans()):
        W = np.outer(W[:, 0], [0.6, -0.8])  # all filters parallel
    assume(np.linalg.norm(W) > 1e-2)
    sizes = np.linalg.svd(W, compute_uv=False)
    assume(len(sizes) < 2 or sizes[-1] > 1e-3 or sizes[-1] < 1e-12)
    order = data.draw(st.sampled_from(ORDERS))
    above = data.draw(st.floats(1e-2, 5))
    model = layer(W.tolist(), c, order)
    (unit,) = geometry.units(model)
    level = unit.lowest + above
    curves = unit.curve(level)
    closed = len(sizes) == 2 and sizes[-1] > 1e-3
    assert len(curves) == (1 if closed else 2)
    for curve in curves:
        np.testing.assert_allclose(value(model, curve)[:, 0], level, atol=1e-6, rtol=1e-6)
    # The centre is lowest: nothing on the curves, nor any of many other points, is lower.
    somewhere = np.random.default_rng(0).normal(unit.center, 2, (300, 2))
    near = unit.center + 1e-3 * (somewhere - unit.center)
    assert value(model, np.concatenate([somewhere, near])).min() >= unit.lowest - 1e-9


def test_three_filters_are_lowest_where_their_norm_says():
    """Filters x, y, x + y with centres 0, 0, 1: the minimum is 1/3, at inf in the middle."""
    W, c = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0, 1.0]
    for order, lowest in ((1.0, 1 / 3), (2.0, 1 / 3), (math.inf, 1 / 3)):
        (unit,) = geometry.units(layer(W, c, order))
        assert unit.lowest == pytest.approx(lowest, rel=1e-9)
    np.testing.assert_allclose(unit.center, [1 / 3, 1 / 3], atol=1e-6)


def test_parallel_filters_bound_a_strip():
    (unit,) = geometry.units(layer([[1.0, 1.0], [2.0, 2.0]], [1.0, 2.0], 2.0))
    np.testing.assert_allclose(unit.center, [0.5, 0.5])
    lines = unit.curve(1.0, reach=7.0)
    for line in lines:
        assert np.linalg.norm(line[1] - line[0]) == pytest.approx(14)
        assert (line[1] - line[0]).sum() == pytest.approx(0, abs=1e-12)
    # sqrt((t^2 + 4 t^2) / 2) = 1 where x + y = 1 + t
    assert sorted(line[0].sum() - 1 for line in lines) == pytest.approx([-(0.4**0.5), 0.4**0.5])


def test_levels_that_are_never_reached_and_units_that_are_constant():
    (unit,) = geometry.units(layer([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0, 1.0]))
    assert unit.curve(0.9 * unit.lowest) == []
    assert unit.curve(-1.0) == []
    (flat,) = geometry.units(layer([[0.0, 0.0], [0.0, 0.0]], [3.0, 4.0]))
    assert flat.lowest == pytest.approx(math.sqrt(12.5))
    assert flat.curve(5.0) == []


def test_units_behind_linear_layers_and_with_a_bias():
    lp = LpLinear(5, 3, 4, bias=True)
    nn.init.normal_(lp.bias)
    nn.init.normal_(lp.center)
    model = nn.Sequential(nn.Linear(2, 5), nn.BatchNorm1d(5), lp, nn.ReLU(), LpLinear(3, 2, 2))
    model(torch.randn(100, 2))  # gives the normalisation its numbers
    found = geometry.units(model)
    assert [unit.name for unit in found] == ["2[0]", "2[1]", "2[2]"]
    first = nn.Sequential(*list(model)[:3]).double().eval()
    for j, unit in enumerate(found):
        level = unit.lowest + 1
        (curve,) = unit.curve(level)
        np.testing.assert_allclose(value(first, curve)[:, j], level, atol=1e-6)
    assert next(model.parameters()).dtype == torch.float64  # of the part that shares them


@pytest.mark.parametrize(("dim", "shape"), [(-1, (3, 4)), (-2, (4, 3)), (1, (4, 3)), (2, (3, 4))])
def test_pooled_projections(dim, shape):
    pool = LpPool(3, order=[1.0, 3.0, math.inf], dim=dim)
    model = nn.Sequential(nn.Linear(2, 12), nn.Unflatten(1, shape), pool).double()
    for j, unit in enumerate(geometry.units(model)):
        (curve,) = unit.curve(unit.lowest + 0.5)
        np.testing.assert_allclose(value(model, curve)[:, j], unit.lowest + 0.5, atol=1e-6)


@pytest.mark.parametrize("model", [MLP(3, [2], 2), MLP(2, [2], 2, activation="relu")])
def test_models_without_such_units(model):
    with pytest.raises(ValueError, match=r"model must (take inputs|have Lp units)"):
        geometry.units(model)


def test_the_model_is_left_alone():
    model = MLP(2, [3], 2, dropout=0.5)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    geometry.units(model)
    geometry.levels(model, (-1, 1, -1, 1))
    assert model.training
    assert not any(module._forward_pre_hooks for module in model.modules())
    for name, t in model.state_dict().items():
        assert torch.equal(t, before[name])
        assert t.dtype == torch.float32


def test_the_boundary_is_where_two_classes_are_equal():
    model = nn.Sequential(layer([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]), nn.Linear(1, 1).double())
    with torch.no_grad():
        model[1].weight.fill_(-1.0)
        model[1].bias.fill_(0.5)
    points = geometry.boundary(model, (-1, 1, -1, 1))
    radius = np.hypot(*points.T)
    np.testing.assert_allclose(radius, 0.5 * math.sqrt(2), atol=1e-4)
    assert geometry.levels(model, (-1, 1, -1, 1)) == pytest.approx([0.5], abs=1e-4)

    three = nn.Linear(2, 3).double()
    between = geometry.boundary(three, (-9, 9, -9, 9))
    best, second, _ = torch.from_numpy(value(three, between)).sort(-1, descending=True).values.T
    torch.testing.assert_close(best, second, atol=0.1, rtol=0)


def test_drawing_puts_everything_into_the_axes():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    model = MLP(2, [2], 3, order=[2, math.inf])
    extent = (-2.0, 2.0, -2.0, 2.0)
    for unit in geometry.units(model):
        geometry.draw_unit(axes, unit, unit.lowest + 1, color="red", label=unit.name)
    drawn = 2 * (1 + 1 + 4)  # the curve, the centre, and two axes to both sides
    assert len(axes.lines) == drawn
    assert [text.get_text() for text in axes.texts] == ["0[0]", "0[1]"]
    geometry.draw_boundary(axes, model, extent)
    geometry.draw_points(axes, torch.randn(50, 2), torch.arange(50) % 3, ["red", "green", "blue"])
    assert len(axes.collections) == 3  # the lines between each class and the others
    assert len(axes.lines) == drawn + 3  # the points of each class
    maxout = nn.Sequential(MaxoutLinear(2, 3, 2), nn.Linear(3, 1))
    geometry.draw_boundary(axes, maxout, extent, colors="gray")


def test_it_is_part_of_the_library_and_imported_at_its_first_use():
    code = (
        "import sys, lpunits; assert 'lpunits.geometry' not in sys.modules; lpunits.geometry.units;"
        "assert 'lpunits.geometry' in sys.modules and not hasattr(lpunits, 'geometri')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_orders_below_1_have_no_superellipse():
    model = LpLinear(2, 1, 2, order=0.5, order_range=(0, 2))
    with pytest.raises(ValueError, match=r"the order of unit \[0\] must be at least 1, got 0.5"):
        geometry.units(model)
