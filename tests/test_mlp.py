"""MLP: the paper's networks and baselines behind one argument."""

import pytest
import torch
from torch import nn

from lpunits import MLP, LpLinear, MaxoutLinear
from lpunits.dropout import GaussianNoise
from lpunits.start import STARTS
from lpunits.units import ACTIVATIONS


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_kind_of_unit_learns_a_curved_boundary(activation):
    x = torch.randn(512, 2)
    y = (x.square().sum(1) > 1.2).long()
    net = MLP(2, [16, 16], 2, activation=activation)
    assert net(x).shape == (512, 2)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    assert (net(x).argmax(1) == y).float().mean() > 0.97


def test_layers_of_each_kind():
    kinds = {name: [type(m) for m in MLP(4, [3], 2, activation=name)] for name in ACTIVATIONS}
    assert kinds == {
        "lp": [LpLinear, nn.Linear],
        "l2": [LpLinear, nn.Linear],
        "maxout": [MaxoutLinear, nn.Linear],
        "relu": [nn.Linear, nn.ReLU, nn.Linear],
        "sigmoid": [nn.Linear, nn.Sigmoid, nn.Linear],
        "tanh": [nn.Linear, nn.Tanh, nn.Linear],
    }


def test_l2_is_lp_with_the_order_fixed_to_2():
    layer = MLP(4, [3], 2, activation="l2", order=5.0)[0]
    assert torch.equal(layer.order, torch.full((3,), 2.0))
    assert not isinstance(layer.rho, nn.Parameter)


def test_filters_for_all_layers_or_for_each():
    def filters(net):
        return [m.filters for m in net if isinstance(m, LpLinear)]

    assert filters(MLP(4, [3, 3], 2)) == [2, 2]
    assert filters(MLP(4, [3, 3], 2, filters=5)) == [5, 5]
    assert filters(MLP(4, [3, 3], 2, filters=[5, 4])) == [5, 4]


def test_dropout_stands_before_every_layer_that_it_concerns():
    net = MLP(4, [3, 3], 2, dropout=0.5, input_dropout=0.2)
    assert [m.p for m in net if isinstance(m, nn.Dropout)] == [0.2, 0.5, 0.5]
    assert isinstance(net[0], nn.Dropout)
    assert isinstance(net[-1], nn.Linear)


def test_noise_follows_the_inputs_and_every_hidden_layer_in_training_only():
    net = MLP(4, [3, 3], 2, normalization="batch", noise=0.5, input_noise=0.2)
    assert [m.std for m in net if isinstance(m, GaussianNoise)] == [0.2, 0.5, 0.5]
    assert isinstance(net[0], GaussianNoise)
    assert isinstance(net[2], nn.BatchNorm1d)
    assert isinstance(net[3], GaussianNoise)
    x = torch.randn(7, 4)
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))


@pytest.mark.parametrize("activation", ["lp", "l2", "maxout"])
@pytest.mark.parametrize("start", STARTS)
def test_hidden_layers_under_dropout_start_with_the_size_of_their_input(activation, start):
    """With a mean, which would become noise, only where the start asks for no bias."""
    options = {"activation": activation, "filters": 4, "dropout": 0.5, "start": start}
    h = torch.randn(1024, 64)
    for layer in MLP(64, [64, 64, 64], 10, **options).eval()[:-1]:
        h = layer(h)
        if start == "zero":
            assert 1 / 2 < h.square().mean() < 2
        else:
            assert h.mean().abs() < 0.3


def test_a_part_of_the_net_is_an_ordinary_sequential():
    net = MLP(4, [3, 5], 2)
    assert net[:-1](torch.randn(7, 4)).shape == (7, 5)
    assert isinstance(net[-1], nn.Linear)


def test_device_and_dtype():
    for activation in ACTIVATIONS:
        net = MLP(4, [3], 2, activation=activation, dtype=torch.float64)
        assert {w.dtype for w in net.parameters()} == {torch.float64}
