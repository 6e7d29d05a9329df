"""diagnose: its statistics are right, and its warnings name the problem."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from lpunits import DTRNN, MLP, GlobalLpPool, LpLinear, diagnose, param_groups


def step(net, x, lr=1e-3, optimizer=torch.optim.Adam, groups=True):
    y = torch.randint(3, (len(x),))
    given = param_groups(net, lr) if groups else [net[-1].weight]
    loss = lambda scores: cross_entropy(scores, y)  # noqa: E731
    return diagnose(net, x, loss=loss, optimizer=optimizer(given, lr))


def test_a_healthy_network_has_no_warning():
    found = step(MLP(20, [32, 32], 3, dropout=0.2), torch.randn(64, 20))
    assert [layer.name for layer in found.layers] == ["0", "2"]
    assert found.warnings == []


def test_the_numbers_are_those_of_the_layer():
    layer = LpLinear(6, 5, 2, order=[1.01, 2, 3, 4, math.inf])
    x = torch.randn(100, 6)
    u = layer(x)
    (report,) = diagnose(layer, x).layers
    assert report.mean == pytest.approx(u.mean().item(), rel=1e-5)
    expected = u.var(0, correction=0).mean().sqrt().item()
    assert report.spread == pytest.approx(expected, rel=1e-5)
    assert (report.dead, report.saturated, report.update) == (0, None, None)
    assert report.orders == (pytest.approx(1.01), math.inf)
    assert report.flat == 1 / 4  # of the learned ones


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_the_update_is_that_of_a_real_step(optimizer):
    net = MLP(6, [5], 3)
    x, y = torch.randn(30, 6), torch.randint(3, (30,))
    chosen = optimizer(param_groups(net, 0.01))
    for _ in range(3):  # Adam has state then
        chosen.zero_grad()
        cross_entropy(net(x), y).backward()
        chosen.step()
    found = diagnose(net, x, loss=lambda z: cross_entropy(z, y), optimizer=chosen)
    before = {name: p.detach().clone() for name, p in net[0].named_parameters()}
    orders = net[0].order.detach()
    chosen.zero_grad()
    cross_entropy(net(x), y).backward()
    chosen.step()
    moved = sum((p - before[name]).square().sum() for name, p in net[0].named_parameters())
    size = sum(p.square().sum() for p in before.values())
    assert found.layers[0].update == pytest.approx((moved / size).sqrt().item(), rel=1e-4)
    moved = (net[0].order - orders).abs().mean().item()
    assert found.layers[0].order_update == pytest.approx(moved, rel=1e-3)


def test_model_optimiser_gradients_and_random_numbers_stay_as_they_are():
    net = MLP(6, [5], 3, dropout=0.5, normalization="batch")
    x, y = torch.randn(30, 6), torch.randint(3, (30,))
    chosen = torch.optim.Adam(param_groups(net, 0.01))
    state = {name: t.clone() for name, t in net.state_dict().items()}
    generator = torch.get_rng_state()
    diagnose(net, x, loss=lambda z: cross_entropy(z, y), optimizer=chosen)
    assert torch.equal(generator, torch.get_rng_state())
    assert all(torch.equal(t, state[name]) for name, t in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    assert not chosen.state
    assert not net[0]._forward_hooks


def test_a_saturated_state_is_said():
    rnn = DTRNN(4, 8, units=5)
    nn.init.constant_(rnn.hidden.bias, 30.0)
    found = diagnose(rnn, torch.randn(10, 3, 4))
    assert found.layers[0].saturated == 1
    (warning,) = [w for w in found.warnings if "saturated" in w]
    assert warning.startswith("100% of the state of the model (DTRNN) is saturated: lower the")
    packed = nn.utils.rnn.pack_sequence([torch.randn(5, 4), torch.randn(3, 4)])
    assert diagnose(rnn, packed).layers[0].saturated == 1


@pytest.mark.parametrize(
    ("net", "x", "words"),
    [
        (nn.Sequential(nn.Linear(4, 8), nn.ReLU()), -1e3 * torch.ones(9, 4), "every sample"),
        (LpLinear(4, 8, 2), 1e-5 * torch.randn(9, 4) + 1, "a spread of"),
        (LpLinear(4, 8, 2, order=1.001), torch.randn(9, 4), "order_scale in param_groups"),
        (LpLinear(4, 8, 2), torch.full((9, 4), math.nan), "not finite"),
        (nn.Sequential(nn.Sigmoid()), 20 * torch.randn(9, 4), "of the outputs of 0 (Sigmoid)"),
    ],
    ids=["dead", "mean", "flat", "nan", "sigmoid"],
)
def test_what_is_wrong_is_said_in_words(net, x, words):
    assert words in " ".join(diagnose(net, x).warnings)


def test_steps_that_are_too_large_or_none_are_said():
    assert "lower the learning rate" in " ".join(
        step(MLP(6, [5], 3), torch.randn(9, 6), lr=1.0).warnings
    )
    found = step(MLP(6, [5], 3), torch.randn(9, 6), groups=False)
    assert "does not learn" in " ".join(found.warnings)
    assert "param_groups" in " ".join(found.warnings)


def test_channels_of_pooling_layers_are_their_units():
    layer = GlobalLpPool(3, keepdim=True)
    x = torch.randn(8, 3, 4, 4)
    x[:, 1] = 1.0
    assert diagnose(layer, x).layers[0].dead == pytest.approx(1 / 3)


def test_printed_it_is_a_table():
    found = step(MLP(6, [5], 3), torch.randn(9, 6), lr=1.0)
    header, row, *warnings = str(found).splitlines()
    assert header.split()[:4] == ["layer", "kind", "mean", "spread"]
    assert row.startswith("0      LpLinear")
    assert warnings == found.warnings


def test_bad_arguments_get_a_sentence():
    net = MLP(6, [5], 3)
    with pytest.raises(TypeError, match="inputs must be at least one batch"):
        diagnose(net)
    with pytest.raises(TypeError, match="optimizer must be given together with loss, got None"):
        diagnose(net, torch.randn(2, 6), loss=torch.sum)
    with pytest.raises(ValueError, match="model must have a layer of units"):
        diagnose(nn.Linear(3, 3), torch.randn(2, 3))
