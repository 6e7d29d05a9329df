"""The layers: the paper's equations, torch's conventions, and a scale that lasts through depth."""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import lpunits
from lpunits import (
    GlobalLpPool,
    LpLinear,
    LpPool,
    LpPool1d,
    LpPool2d,
    LpPool3d,
    MaxoutLinear,
    lp_pool,
    param_groups,
    reference,
)
from lpunits.start import STARTS

INF = math.inf


class TestLpLinear:
    def test_is_the_equation_of_the_paper(self):
        layer = LpLinear(20, 6, 4, order=[1.5, 2, 2.5, 3, 4, 8], bias=False)
        nn.init.normal_(layer.center)
        x = torch.randn(9, 20)
        truth = reference.lp_linear(x, layer.weight, layer.center, layer.rho)
        torch.testing.assert_close(layer(x), truth)

    def test_shapes_of_parameters_and_orders(self):
        layer = LpLinear(20, 6, 4, bias=True)
        shapes = {name: tuple(w.shape) for name, w in layer.named_parameters()}
        assert shapes == {"weight": (4, 6, 20), "center": (4, 6), "rho": (6,), "bias": (6,)}
        assert layer.order.shape == (6,)

    def test_bias_is_added_after_the_root_and_center_can_be_left_out(self):
        layer = LpLinear(20, 6, 4, bias=True, center=False, start="zero")
        assert layer.center is None
        x = torch.randn(9, 20)
        before = layer(x)
        nn.init.constant_(layer.bias, -5.0)
        torch.testing.assert_close(layer(x), before - 5)

    @pytest.mark.parametrize("shape", [(20,), (0, 20), (3, 20), (2, 3, 20), (2, 1, 5, 20)])
    def test_any_number_of_leading_dimensions(self, shape):
        layer = LpLinear(20, 6, 4)
        x = torch.randn(shape)
        assert layer(x).shape == (*shape[:-1], 6)
        rows = [layer(row) for row in x.reshape(-1, 20)]
        if rows:
            torch.testing.assert_close(layer(x).reshape(-1, 6), torch.stack(rows))

    def test_device_and_dtype(self):
        layer = LpLinear(20, 6, 4, bias=True, dtype=torch.float64)
        assert {w.dtype for w in layer.parameters()} == {torch.float64}
        assert layer(torch.randn(2, 20, dtype=torch.float64)).dtype == torch.float64
        meta = LpLinear(20, 6, 4, device="meta")
        assert {w.device.type for w in meta.parameters()} == {"meta"}
        meta.to_empty(device="cpu").reset_parameters()
        assert torch.equal(meta.order, torch.full((6,), 3.0))

    def test_reset_parameters_draws_new_weights_and_sets_the_rest_back(self):
        layer = LpLinear(20, 6, 4, order=2.5, bias=True)
        before = layer.weight.clone()
        for parameter in layer.parameters():
            nn.init.normal_(parameter)
        layer.reset_parameters()
        assert torch.equal(layer.order, torch.full((6,), 2.5))
        assert (layer.bias == layer.bias[0]).all()
        assert not torch.equal(layer.weight, before)
        zero = LpLinear(20, 6, 4, bias=True, start="zero")
        assert not zero.center.any()
        assert not zero.bias.any()

    def test_a_start_at_zero_draws_only_its_weights_from_the_global_generator(self):
        torch.manual_seed(3)
        LpLinear(20, 6, 4, start="zero")
        after = torch.rand(())
        torch.manual_seed(3)
        torch.rand(4, 6, 20)
        assert torch.equal(after, torch.rand(()))

    def test_parametrization_of_weight_and_order(self):
        layer = LpLinear(20, 6, 4)
        parametrize.register_parametrization(layer, "weight", nn.Tanh())
        parametrize.register_parametrization(layer, "rho", nn.Hardtanh(-2, 2))
        layer(torch.randn(3, 20)).sum().backward()
        assert layer.parametrizations.weight.original.grad.abs().sum() > 0
        assert layer.parametrizations.rho.original.grad.abs().sum() > 0
        names = {g["name"]: len(g["params"]) for g in param_groups(layer, 0.1)}
        assert names == {"weights": 2, "orders": 1, "centers": 1}


class TestOrders:
    ORDERS = (1.0, 1.1, 1.5, 2.0, 2.16, 2.5, 3.0, 3.44, 4.0, 5.81, 8.0, 10.0, 100.0, 1e4, INF)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("learn", [True, False])
    def test_start_exactly_where_they_should(self, dtype, learn):
        for order in self.ORDERS:
            for units in (1, 7, 64):
                layer = LpPool(units, order=order, learn_order=learn, dtype=dtype)
                assert torch.equal(layer.order, torch.full((units,), order).to(dtype))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_start_within_the_last_digits_wherever_that_is(self, dtype):
        orders = 1 + 10 ** torch.linspace(-4, 5, 5000, dtype=dtype)
        layer = LpPool(5000, order=orders.tolist(), dtype=dtype)
        torch.testing.assert_close(
            layer.order.detach(), orders, rtol=2 * torch.finfo(dtype).eps, atol=0
        )

    def test_learned_orders_are_parameters_and_fixed_ones_a_buffer(self):
        assert isinstance(LpPool(3).rho, nn.Parameter)
        fixed = LpPool(3, learn_order=False)
        assert list(fixed.parameters()) == []
        assert "rho" in fixed.state_dict()
        assert list(LpPool(3, order=INF).parameters()) == []

    def test_an_infinite_order_stays_while_its_neighbour_learns(self):
        layer = LpLinear(2, 2, 2, order=[2, INF])
        optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, weight_decay=0.1)
        for _ in range(10):
            optimizer.zero_grad()
            layer(torch.randn(16, 2)).square().sum().backward()
            optimizer.step()
        assert layer.order[1] == INF
        assert layer.order[0] != 2
        assert all(w.isfinite().all() for w in layer.parameters())

    def test_are_shown_by_repr(self):
        assert "order=3, learn_order=True" in repr(LpLinear(4, 3, 2))
        assert "order=2..inf" in repr(LpLinear(4, 2, 2, order=[2, INF]))
        assert "learn_order=False" in repr(GlobalLpPool(4, learn_order=False))
        assert "order=3, learn_order=True" in repr(LpLinear(4, 3, 2, device="meta"))

    def test_learn_the_norm_that_made_the_data(self):
        z = torch.randn(512, 5)
        target = lp_pool(z, 6.0)
        pool = LpPool(1, order=2.0)
        optimizer = torch.optim.Adam(pool.parameters(), lr=0.1)
        for _ in range(300):
            optimizer.zero_grad()
            (pool(z.unsqueeze(1)).squeeze() - target).square().mean().backward()
            optimizer.step()
        assert pool.order.item() == pytest.approx(6.0, rel=1e-3)


@pytest.mark.parametrize("order", [2.0, 3.0, 4.0, 6.0, 8.0])
@pytest.mark.parametrize("shift", [0.0, 5.0], ids=["centred", "shifted"])
@pytest.mark.parametrize("start", STARTS)
def test_a_deep_stack_keeps_the_variance_of_its_input(order, shift, start):
    """The variance over the samples of each unit; required: a factor of 3 after ten layers."""
    x = torch.randn(1024, 64) + shift
    for _ in range(10):
        y = LpLinear(64, 64, 4, order=order, start=start)(x).detach()
        assert 2 / 3 < y.var(0).mean() / x.var(0).mean() < 3 / 2
        x = y
    assert 1 / 3 < x.var(0).mean() < 3


@pytest.mark.parametrize("start", STARTS)
def test_maxout_linear_keeps_the_variance_too(start):
    x = torch.randn(1024, 64)
    for _ in range(10):
        y = MaxoutLinear(64, 64, 4, start=start)(x).detach()
        assert 2 / 3 < y.var(0).mean() / x.var(0).mean() < 3 / 2
        x = y


@pytest.mark.parametrize("order", [1.5, 3.0, INF])
def test_before_dropout_a_unit_has_the_size_of_its_input_and_a_bias_takes_its_mean_away(order):
    layer = LpLinear(64, 512, 4, order=order, bias=True)
    layer.reset_parameters(small=True)
    u = layer(torch.randn(1024, 64)).detach()
    assert abs(u.mean().item()) < 0.1
    assert (u - layer.bias).square().mean().item() == pytest.approx(1.0, rel=0.1)


def test_before_dropout_the_biases_of_maxout_units_take_their_mean_away():
    layer = MaxoutLinear(64, 512, 4)
    layer.reset_parameters(small=True)
    assert abs(layer(torch.randn(1024, 64)).mean().item()) < 0.1


@pytest.mark.parametrize("activation", [LpLinear, MaxoutLinear])
def test_a_start_at_zero_is_homogeneous_and_a_spread_one_is_not(activation):
    x = torch.randn(9, 20)
    zero, spread = (activation(20, 6, 4, start=start) for start in STARTS[::-1])
    torch.testing.assert_close(zero(3 * x), 3 * zero(x))
    assert not torch.allclose(spread(3 * x), 3 * spread(x), rtol=0.05)
    with pytest.raises(ValueError, match=r"start must be one of .*, got 'warm'"):
        activation(20, 6, 4, start="warm")


def test_few_inputs_keep_all_of_their_directions():
    weight = LpLinear(2, 100, 2).weight
    assert torch.linalg.det(weight.transpose(0, 1)).abs().min() > 1e-6


def test_maxout_linear_is_the_largest_of_its_affine_pieces():
    layer = MaxoutLinear(20, 6, 4)
    nn.init.normal_(layer.bias)
    x = torch.randn(9, 20)
    pieces = torch.einsum("fui,bi->bfu", layer.weight, x) + layer.bias
    torch.testing.assert_close(layer(x), pieces.amax(1))
    assert MaxoutLinear(20, 6, 4, bias=False).bias is None


@pytest.mark.parametrize("kind", [LpLinear, MaxoutLinear])
@pytest.mark.parametrize("units", [2, 20])
def test_sparse_inputs_give_what_dense_ones_give(kind, units):
    layer = kind(50, units, 3)
    x = torch.randn(30, 50) * (torch.rand(30, 50) < 0.1)
    found = []
    for given in (x, x.to_sparse()):
        layer.zero_grad()
        u = layer(given)
        u.square().sum().backward()
        found.append((u.detach(), *(p.grad.clone() for p in layer.parameters())))
    for dense, sparse in zip(*found, strict=True):
        torch.testing.assert_close(dense, sparse, rtol=1e-4, atol=1e-5)


def test_lp_pool_module_pools_the_dimension_it_is_given():
    z = torch.randn(7, 4, 3)
    p = torch.tensor([1.5, 2.0, 4.0])
    pool = LpPool(3, order=p.tolist(), dim=1)
    torch.testing.assert_close(pool(z), lp_pool(z, p, dim=1))
    pool = LpPool(3, order=p.tolist())
    torch.testing.assert_close(pool(z.mT), lp_pool(z, p, dim=1))


class TestSpatial:
    @pytest.mark.parametrize("kernel", [(2, 2, 0), (3, 2, 1), (3, 1, 0), ((3, 2), (1, 2), (1, 0))])
    def test_order_1_and_inf_are_torchs_average_and_maximum(self, kernel):
        z = torch.randn(2, 3, 9, 8).abs()
        torch.testing.assert_close(LpPool2d(3, *kernel, order=1.0)(z), nn.AvgPool2d(*kernel)(z))
        assert torch.equal(LpPool2d(3, *kernel, order=INF)(z), nn.MaxPool2d(*kernel)(z))

    def test_order_2_is_torchs_lp_pool_but_for_the_normalisation(self):
        z = torch.randn(2, 3, 9, 8)
        ours = LpPool2d(3, 2, order=2.0, learn_order=False)(z)
        torch.testing.assert_close(ours, nn.LPPool2d(2, 2)(z) / 2)

    @pytest.mark.parametrize(("layer", "dims"), [(LpPool1d, 1), (LpPool2d, 2), (LpPool3d, 3)])
    def test_orders_belong_to_channels_and_a_batch_is_optional(self, layer, dims):
        orders = [1.5, 3.0, INF]
        pool = layer(3, 2, stride=1, padding=1, order=orders)
        z = torch.randn(4, 3, *[5] * dims)
        u = pool(z)
        assert u.shape == (4, 3, *[6] * dims)
        torch.testing.assert_close(pool(z[0]), u[0])
        for channel, order in enumerate(orders):
            alone = layer(1, 2, stride=1, padding=1, order=order)(z[:, channel : channel + 1])
            torch.testing.assert_close(u[:, channel : channel + 1], alone)

    def test_channels_last_gives_the_same(self):
        pool = LpPool2d(3, 2)
        z = torch.randn(2, 3, 8, 8)
        torch.testing.assert_close(pool(z.to(memory_format=torch.channels_last)), pool(z))

    def test_gradients(self):
        pool = LpPool2d(2, 3, stride=2, padding=1, dtype=torch.float64)
        z = torch.randn(2, 2, 5, 6, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(pool, [z])


class TestGlobalLpPool:
    def test_is_gem_on_non_negative_input(self):
        z = torch.rand(2, 3, 7, 7) + 0.01
        gem = z.clamp(min=1e-6).pow(3).mean((2, 3)).pow(1 / 3)
        torch.testing.assert_close(GlobalLpPool(3)(z), gem)

    def test_keepdim_and_any_number_of_dimensions(self):
        assert GlobalLpPool(3, keepdim=True)(torch.randn(2, 3, 7, 7)).shape == (2, 3, 1, 1)
        assert GlobalLpPool(3)(torch.randn(2, 3, 7)).shape == (2, 3)
        assert GlobalLpPool(3)(torch.randn(2, 3, 2, 7, 7)).shape == (2, 3)

    def test_trains_where_gem_turns_nan(self):
        """Features after a ReLU: many exact zeros, large values, an order that has grown."""
        z = (1e4 * torch.randn(2, 3, 7, 7)).relu()
        gem = z.clamp(min=1e-6).pow(10.0).mean((2, 3)).pow(1 / 10.0)
        assert not gem.isfinite().all()
        pool = GlobalLpPool(3, order=10.0)
        u = pool(z)
        u.sum().backward()
        assert u.isfinite().all()
        assert pool.rho.grad.isfinite().all()


class TestParamGroups:
    def test_every_parameter_once_and_frozen_ones_never(self):
        shared = LpLinear(4, 4, 2)
        net = nn.Sequential(shared, shared, nn.Linear(4, 2), GlobalLpPool(2))
        net[2].bias.requires_grad_(False)
        groups = param_groups(net, 0.1)
        listed = [id(w) for g in groups for w in g["params"]]
        assert sorted(listed) == sorted(id(w) for w in net.parameters() if w.requires_grad)

    def test_orders_move_at_their_own_rate(self):
        layer = LpLinear(4, 4, 2)
        before = layer.rho.detach().clone()
        layer(torch.randn(8, 4)).sum().backward()
        groups = param_groups(layer, 0.1, order_scale=7.0, weight_decay=0.1)
        torch.optim.SGD(groups).step()
        torch.testing.assert_close(layer.rho, before - 0.7 * layer.rho.grad)

    def test_without_special_layers_there_is_one_group(self):
        assert [g["name"] for g in param_groups(nn.Linear(2, 2), 0.1)] == ["weights"]


def test_every_public_name_has_a_docstring_with_an_example():
    for name in lpunits.__all__:
        assert ">>> " in getattr(lpunits, name).__doc__, name
