"""Masks, windows, segments, jagged tensors; the pooling layers, and the orders of every module."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.testing import assert_close

import lpunits
from lpunits import (
    MLP,
    AdaptiveLpPool2d,
    GlobalLpPool,
    LpLinear,
    LpPool,
    LpPool2d,
    SegmentLpPool,
    freeze_orders,
    lp_pool,
    orders,
    param_groups,
    segment_lp_pool,
)

INF = math.inf
SPACE = (9, 10, 8)
WINDOWS = [
    (k, s, w, d)
    for k, s, w, d in itertools.product((2, 3, 4), (1, 2, 3), (0, 1, 2), (1, 2))
    if w <= k // 2
]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("include", [True, False])
def test_windows_are_torchs_at_order_1_and_inf(dims, ceil_mode, include):
    z = torch.rand(2, 3, *SPACE[:dims])
    pool = getattr(lpunits, f"lp_pool{dims}d")
    options = {"ceil_mode": ceil_mode, "count_include_pad": include}
    for k, s, w, d in WINDOWS:
        top = getattr(functional, f"max_pool{dims}d")(z, k, s, w, d, ceil_mode)
        assert torch.equal(pool(z, INF, k, s, w, dilation=d, **options), top)
        if d == 1:
            mean = getattr(functional, f"avg_pool{dims}d")(z, k, s, w, **options)
            assert_close(pool(z, 1, k, s, w, **options), mean)


def test_with_ceil_mode_a_window_may_be_larger_than_the_image():
    z = torch.rand(2, 3, 4, 3)
    for k, s in (((5, 4), 3), ((6, 3), (4, 1))):
        top = functional.max_pool2d(z, k, s, ceil_mode=True)
        mean = functional.avg_pool2d(z, k, s, ceil_mode=True)
        assert torch.equal(lpunits.lp_pool2d(z, INF, k, s, ceil_mode=True), top)
        assert_close(lpunits.lp_pool2d(z, 1, k, s, ceil_mode=True), mean)
        by_vmap = torch.vmap(lambda t, k=k, s=s: lpunits.lp_pool2d(t, 1, k, s, ceil_mode=True))
        assert_close(by_vmap(z), mean)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 11])
def test_adaptive_windows_are_torchs_at_order_1_and_inf(dims, size):
    z = torch.rand(2, 3, *SPACE[:dims])
    pool = getattr(lpunits, f"adaptive_lp_pool{dims}d")
    assert_close(pool(z, 1, size), getattr(functional, f"adaptive_avg_pool{dims}d")(z, size))
    assert torch.equal(
        pool(z, INF, size), getattr(functional, f"adaptive_max_pool{dims}d")(z, size)
    )
    assert_close(pool(z[0], 0.5, size), pool(z, 0.5, size)[0])


def test_padding_counts_as_zeros_or_not_at_all():
    z = torch.rand(1, 1, 4) + 1
    assert lpunits.lp_pool1d(z, -1, 3, 1, 1)[0, 0, [0, -1]].tolist() == [0, 0]
    without = lpunits.lp_pool1d(z, -1, 3, 1, 1, count_include_pad=False)
    assert_close(without[0, 0, 0], lp_pool(z[0, 0, :2], -1))


@pytest.mark.parametrize("p", [-INF, -3.0, 0.0, 0.5, 1.0, 2.5, INF])
def test_several_dimensions_are_one_flattened(p):
    z = torch.randn(4, 5, 6, 7)
    mask = torch.rand(4, 1, 6, 7) < 0.7
    flat = (t.expand_as(z).movedim(1, 2).flatten(2) for t in (z, mask))
    expected = lp_pool(next(flat), p, mask=next(flat))
    assert_close(lp_pool(z, p, dim=(1, -1), mask=mask), expected)
    kept = lp_pool(z, torch.full((4, 1, 6, 1), p), dim=(3, 1), keepdim=True, mask=mask)
    assert_close(kept, expected[:, None, :, None])


def test_at_zero_the_order_has_the_slope_of_the_variance_and_nothing_jumps():
    z = torch.rand(5, 6, dtype=torch.float64) + 0.1
    p = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    u = lp_pool(z, p)
    (slope,) = torch.autograd.grad(u.sum(), p, create_graph=True)
    variance = z.log().var(1, correction=0)
    assert_close(u, z.log().mean(1).exp())
    assert_close(slope, u * variance / 2)
    for near in (1e-300, -1e-300, 1e-12, -1e-12):
        assert_close(lp_pool(z, near), u.detach(), rtol=1e-11, atol=0)
    assert torch.autograd.gradgradcheck(lp_pool, (z.requires_grad_(), p))
    assert torch.autograd.gradcheck(lp_pool, (z, p), check_forward_ad=True)


@pytest.mark.parametrize("p", [-2.0, 0.0, 0.5, 3.0])
def test_second_derivatives_with_weights(p):
    z = (torch.rand(3, 4, dtype=torch.float64) + 0.2).requires_grad_()
    weight = (torch.rand(3, 4, dtype=torch.float64) + 0.1).requires_grad_()
    order = torch.tensor(p, dtype=torch.float64, requires_grad=True)

    def pool(z, order, weight):
        return lp_pool(z, order, weight=weight)

    assert torch.autograd.gradcheck(pool, (z, order, weight))
    assert torch.autograd.gradgradcheck(pool, (z, order, weight))


class TestSegments:
    index = torch.randint(0, 7, (60,), generator=torch.Generator().manual_seed(0))
    index[index == 3] = 4  # an empty group

    @pytest.mark.parametrize("width", [(), (3,), (20,), (4, 5)])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_are_groups_one_by_one(self, width, weighted):
        z = torch.randn(60, *width, requires_grad=True)
        weight = torch.rand(60, *[1] * len(width)) if weighted else None
        p = torch.tensor(0.7, requires_grad=True)
        u = segment_lp_pool(z, p, self.index, num_segments=9, weight=weight)
        each = [
            lp_pool(z[rows], p, dim=0, weight=None if weight is None else weight[rows])
            if len(rows)
            else torch.zeros(width)
            for rows in (torch.nonzero(self.index == g).flatten() for g in range(9))
        ]
        expected = torch.stack(each)
        assert_close(u, expected)
        grad = torch.randn_like(u)
        ours = torch.autograd.grad(u, (z, p), grad)
        assert_close(ours, torch.autograd.grad(expected, (z, p), grad))

    def test_offsets_another_dimension_and_the_same_from_an_index(self):
        z = torch.randn(3, 60, 4)
        sizes = torch.bincount(self.index)
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
        by_index = segment_lp_pool(z, 2, self.index, dim=1)
        rows = self.index.argsort(stable=True)
        assert torch.equal(segment_lp_pool(z[:, rows], 2, offsets=offsets, dim=1), by_index)

    def test_compiles_without_a_break_and_differentiates_twice(self):
        z = torch.randn(60, 12, dtype=torch.float64, requires_grad=True)

        def pool(z):
            return segment_lp_pool(z, 1.5, self.index, num_segments=7)

        assert_close(torch.compile(pool, fullgraph=True)(z), pool(z))
        (first,) = torch.autograd.grad(pool(z).sum(), z, create_graph=True)
        assert torch.autograd.grad(first.square().sum(), z)[0].isfinite().all()

    @pytest.mark.filterwarnings("ignore")  # torch calls its nested tensors a prototype
    def test_a_jagged_tensor_needs_no_mask(self):
        parts = [torch.randn(n, 4) for n in (3, 5, 1)]
        z = torch.nested.nested_tensor(parts, layout=torch.jagged)
        assert_close(lp_pool(z, 3.0, dim=1), torch.stack([lp_pool(t, 3.0, dim=0) for t in parts]))
        for u, part in zip(lp_pool(z, 3.0, dim=2).unbind(), parts, strict=True):
            assert_close(u, lp_pool(part, 3.0))


class TestLayers:
    def test_masks_and_lengths_of_global_pooling(self):
        pool, z = GlobalLpPool(4, order=2.5), torch.randn(3, 4, 9)
        lengths = torch.tensor([9, 4, 1])
        expected = torch.stack([pool(t[None, :, :n])[0] for t, n in zip(z, lengths, strict=True)])
        z[1, :, 4:], z[2, :, 1:] = math.nan, INF
        mask = torch.arange(9) < lengths[:, None]
        assert_close(pool(z, lengths=lengths), expected)
        assert_close(pool(z, mask), expected)
        assert_close(pool(z, mask.unsqueeze(1)), expected)
        assert_close(pool(z[1], lengths=lengths[1]), expected[1])

    @pytest.mark.parametrize("space", [(9,), (5, 6), (2, 3, 4), (2, 2, 2, 3)])
    @pytest.mark.parametrize("keepdim", [False, True])
    def test_global_pooling_of_any_space_and_without_a_batch(self, space, keepdim):
        pool, z = GlobalLpPool(4, keepdim=keepdim), torch.randn(3, 4, *space)
        expected = lp_pool(z.flatten(2), pool.order)
        shape = [1] * len(space) if keepdim else []
        assert_close(pool(z), expected.reshape(3, 4, *shape))
        known = GlobalLpPool(4, keepdim=keepdim, spatial=len(space))
        assert_close(known(z), expected.reshape(3, 4, *shape))
        assert_close(known(z[0]), expected[0].reshape(4, *shape))

    def test_a_square_image_with_as_many_channels_is_what_the_layer_was_told(self):
        z = torch.randn(4, 4, 4)
        assert_close(GlobalLpPool(4, spatial=2)(z), lp_pool(z, 3, dim=(1, 2)))  # one image
        assert_close(GlobalLpPool(4, spatial=1)(z), lp_pool(z, 3))  # four sequences
        assert_close(GlobalLpPool(4)(z), lp_pool(z, 3))  # a batch, as always
        assert_close(GlobalLpPool(4)(z[0]), lp_pool(z[0], 3))  # no room for one
        with pytest.raises(ValueError, match="spatial=2"):
            GlobalLpPool(4)(torch.randn(4, 7, 7))  # not by its sizes either

    def test_windows_of_layers_are_those_of_functions(self):
        z = torch.randn(2, 3, 9, 8)
        options = {"dilation": 2, "ceil_mode": True, "count_include_pad": False}
        layer = LpPool2d(3, 2, 3, 1, **options)
        assert_close(layer(z), lpunits.lp_pool2d(z, layer.order, 2, 3, 1, **options))
        layer = AdaptiveLpPool2d(3, (4, None))
        assert_close(layer(z[0]), lpunits.adaptive_lp_pool2d(z, layer.order, (4, 8))[0])

    def test_from_gem_and_from_a_power_mean(self):
        z = torch.rand(2, 5, 7, 7) + 0.01
        gem = z.pow(2.7).mean((2, 3)).pow(1 / 2.7)
        for source in (2.7, torch.tensor([2.7]), {"pool.p": nn.Parameter(torch.tensor([2.7]))}):
            assert_close(GlobalLpPool.from_gem(source, 5)(z), gem)
        pool = SegmentLpPool.from_power_mean({"p": torch.tensor([1.5, 2.0, 3.0])}, 3)
        assert_close(pool.order.detach(), torch.tensor([1.5, 2.0, 3.0]))
        assert pool(torch.rand(6, 3), torch.tensor([0, 0, 2, 1, 1, 0])).shape == (3, 3)

    def test_out_features_is_units(self):
        assert LpLinear(4, 3, 2).out_features == 3


RANGES = [(1, INF), (0.5, INF), (-INF, 4), (-INF, INF), (-2, 8), (0, 1)]


class TestOrders:
    @pytest.mark.parametrize("low_high", RANGES, ids=str)
    def test_start_and_are_set_exactly_inside_their_range(self, low_high):
        low, high = max(low_high[0], -50), min(low_high[1], 50)
        values = torch.linspace(low, high, 9)[1:-1]
        pool = LpPool(7, order=values.tolist(), order_range=low_high)
        assert_close(pool.order.detach(), values, rtol=3e-7, atol=3e-7)
        pool.rho.data.normal_(std=20)
        assert low_high[0] <= pool.order.min() <= pool.order.max() <= low_high[1]
        for given in (values, values.numpy(), values.tolist()):
            pool.order = given
            assert_close(pool.order.detach(), values, rtol=3e-7, atol=3e-7)
        pool(torch.randn(7, 5)).sum().backward()
        assert pool.rho.grad.isfinite().all()

    def test_infinite_ones_stay_at_both_ends(self):
        pool = LpPool(3, order=[-INF, 2, INF], order_range=(-INF, INF))
        z = torch.randn(3, 5)
        pool(z).sum().backward()
        assert pool.order.tolist() == [-INF, 2, INF]
        assert_close(pool(z)[0], z[0].abs().min())
        pool.order = 3.0
        assert pool.order.tolist() == [3, 3, 3]

    def test_can_be_drawn_from_a_pair_and_shared(self):
        drawn = LpLinear(4, 100, 2, order=(2.0, 6.0))
        assert 2 <= drawn.order.min() < 2.5
        assert 5.5 < drawn.order.max() <= 6
        before = drawn.order
        drawn.reset_parameters()
        assert not torch.equal(drawn.order, before)
        shared = LpLinear(4, 5, 2, order=2.5, shared=True)
        assert shared.rho.shape == (1,)
        assert shared.order.tolist() == [2.5] * 5
        shared(torch.randn(3, 4)).sum().backward()
        assert shared.rho.grad.shape == (1,)

    def test_are_listed_and_frozen(self):
        net = MLP(4, [3, 2], 2, order=[2.0, 5.0])
        assert {k: p.tolist() for k, p in orders(net).items()} == {"0": [2] * 3, "1": [5] * 2}
        assert list(orders(LpPool(2))) == ["order"]
        freeze_orders(net)
        assert not any(m.rho.requires_grad for m in net if isinstance(m, LpLinear))
        assert "orders" not in {g["name"] for g in param_groups(net, 0.1)}
        freeze_orders(net, False)
        assert all(m.rho.requires_grad for m in net if isinstance(m, LpLinear))

    def test_old_checkpoints_load(self):
        layer = LpLinear(2, 2, 2, order=[2, INF])
        state = {"rho": torch.tensor([0.5, 0.1]), "infinite": torch.tensor([False, True])}
        layer.load_state_dict(state, strict=False)
        assert_close(layer.order[0].item(), 1 + math.log(1 + math.exp(0.5)), rtol=1e-6, atol=0)
        assert layer.order[1] == INF

    def test_biases_and_gains_are_not_decayed(self):
        net = nn.Sequential(LpLinear(4, 3, 2, bias=True), nn.LayerNorm(3), nn.Linear(3, 2))
        groups = {g["name"]: g for g in param_groups(net, 0.1, weight_decay=0.01)}
        assert {name: g["weight_decay"] for name, g in groups.items()} == {
            "weights": 0.01, "orders": 0.0, "centers": 0.0, "biases": 0.0,
        }  # fmt: skip
        assert sorted(w.ndim for w in groups["weights"]["params"]) == [2, 3]
        assert len(groups["biases"]["params"]) == 4
        taken = [id(w) for g in groups.values() for w in g["params"]]
        assert sorted(taken) == sorted(id(w) for w in net.parameters())

    def test_numpy_arrays_are_checked_too(self):
        with pytest.raises(ValueError, match=r"order must be from 1 to inf, got 0\.5"):
            LpPool(2).order = np.array([2.0, 0.5])


def test_what_is_given_to_from_gem_comes_before_what_is_found():
    own = GlobalLpPool.from_gem({"p": torch.tensor([2.7])}, channels=3, shared=False)
    assert own.order.tolist() == pytest.approx([2.7] * 3)
    assert GlobalLpPool.from_gem(2.7, channels=3, order=4.0).order.unique().tolist() == [4.0]
    low = SegmentLpPool.from_power_mean(torch.tensor([1.0, 0.5]), channels=2)
    assert low.order.tolist() == [1.0, 0.5]


@pytest.mark.parametrize("name", ["mask", "weight", "low order", "adaptive", "windows", "lengths"])
def test_masks_weights_and_windows_compile_without_a_break(name):
    mask, weight = torch.rand(4, 1, 6, 6) < 0.8, torch.rand(4, 1, 6, 6)
    lengths, pool = torch.tensor([2, 3, 6, 1]), GlobalLpPool(8)
    function = {
        "mask": lambda z: lpunits.lp_pool(z, 3.0, dim=(2, 3), mask=mask),
        "weight": lambda z: lpunits.lp_pool(z, 3.0, dim=(2, 3), weight=weight, keepdim=True),
        "low order": lambda z: lpunits.lp_pool(z, -0.5, dim=(2, 3)),
        "adaptive": lambda z: lpunits.adaptive_lp_pool2d(z, torch.full((8,), 3.0), 4),
        "windows": lambda z: lpunits.lp_pool2d(z, 3.0, 3, 2, 1, count_include_pad=False),
        "lengths": lambda z: pool(z[:, :, 0], lengths=lengths),
    }[name]
    z = torch.randn(4, 8, 6, 6, requires_grad=True)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    (ours,), (theirs,) = (torch.autograd.grad(f(z).square().sum(), z) for f in (function, compiled))
    assert_close(theirs, ours)
