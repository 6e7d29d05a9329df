"""Momentum descent with a bound: against torch's, against its definition, compiled and plain."""

import copy
import math

import pytest
import torch
from torch import nn

from lpunits import MLP
from lpunits.optim import SGD, sgd


def model(dtype=torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return MLP(37, [19, 11], 5, filters=3, dtype=dtype)


def steps(optimizer, net, count=6):
    torch.manual_seed(1)
    for _ in range(count):
        for parameter in net.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    return [parameter.detach() for parameter in net.parameters()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("momentum", [0.0, 0.7])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_without_a_bound_it_is_torchs(dtype, momentum, weight_decay):
    ours, theirs = model(dtype), model(dtype)
    options = {"lr": 0.05, "momentum": momentum, "weight_decay": weight_decay}
    found = steps(SGD(ours.parameters(), **options), ours)
    expected = steps(torch.optim.SGD(theirs.parameters(), **options), theirs)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [3, 16, 700, 5000])
def test_the_compiled_step_is_the_plain_one(threads, size, monkeypatch):
    results = []
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for fused in (True, False):
            if not fused:
                monkeypatch.setattr(sgd, "compiled", False)
            torch.manual_seed(0)
            net = nn.Linear(size, 23)
            optimizer = SGD(net.parameters(), 0.3, momentum=0.9, weight_decay=0.01, max_norm=0.8)
            results.append(steps(optimizer, net))
    finally:
        torch.set_num_threads(before)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("max_norm", [None, 0.8])
def test_weights_in_another_order_of_memory_take_the_same_steps(max_norm):
    results = []
    for transposed in (False, True):
        net = model()
        if transposed:
            weight = net[0].weight
            weight.data = weight.data.permute(2, 0, 1).contiguous().permute(1, 2, 0)
            assert not weight.is_contiguous()
        optimizer = SGD(net.parameters(), 0.3, momentum=0.9, weight_decay=0.01, max_norm=max_norm)
        torch.manual_seed(1)
        for _ in range(6):
            for parameter in net.parameters():
                parameter.grad = torch.empty_like(parameter).copy_(torch.randn(parameter.shape))
            optimizer.step()
        results.append([parameter.detach() for parameter in net.parameters()])
    # The same bits where both are compiled; with a bound the other order takes plain torch.
    rtol, atol = (1e-5, 1e-6) if max_norm else (0, 0)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol)


def test_no_filter_outgrows_the_bound_and_short_ones_and_biases_are_left_alone():
    net = nn.Linear(40, 3)
    with torch.no_grad():
        net.weight[0], net.weight[1], net.bias[:] = 1.0, 0.01, 9.0
    direction = net.weight[0].detach().clone()
    optimizer = SGD(net.parameters(), 0.1, momentum=0.5, max_norm=2.0)
    net.weight.grad, net.bias.grad = torch.zeros_like(net.weight), torch.zeros_like(net.bias)
    optimizer.step()
    torch.testing.assert_close(net.weight[0].detach(), direction * (2 / math.sqrt(40)))
    assert net.weight[1].eq(0.01).all()
    assert net.bias.eq(9).all()


def test_groups_have_rates_and_bounds_of_their_own():
    a, b = (nn.Parameter(torch.ones(2, 4)) for _ in range(2))
    groups = [{"params": [a], "lr": 0.0, "max_norm": 1.0}, {"params": [b], "lr": 0.5}]
    optimizer = SGD(groups, 0.1)
    a.grad, b.grad = torch.ones_like(a), torch.ones_like(b)
    optimizer.step()
    torch.testing.assert_close(a.detach(), torch.full((2, 4), 0.5))
    torch.testing.assert_close(b.detach(), torch.full((2, 4), 0.5))


def test_it_goes_on_from_a_saved_state():
    whole, first = model(), model()
    expected = steps(SGD(whole.parameters(), 0.1, momentum=0.9, max_norm=1.0), whole, 6)
    optimizer = SGD(first.parameters(), 0.1, momentum=0.9, max_norm=1.0)
    torch.manual_seed(1)
    gradients = [[torch.randn_like(p) for p in first.parameters()] for _ in range(6)]
    for k, step in enumerate(gradients):
        if k == 3:
            saved = copy.deepcopy((first.state_dict(), optimizer.state_dict()))
            first = model()
            optimizer = SGD(first.parameters(), 0.5)
            first.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        for parameter, gradient in zip(first.parameters(), step, strict=True):
            parameter.grad = gradient
        optimizer.step()
    for a, b in zip(first.parameters(), expected, strict=True):
        assert torch.equal(a.detach(), b)


def test_all_weights_of_a_convolutions_channel_are_one_filter(monkeypatch):
    for compiled in (True, False):
        monkeypatch.setattr(sgd, "compiled", compiled and sgd.compiled)
        weight = nn.Parameter(torch.ones(3, 4, 5, 5))
        weight.grad = torch.zeros_like(weight)
        SGD([weight], 0.1, max_norm=2.0).step()
        torch.testing.assert_close(weight.detach(), torch.full((3, 4, 5, 5), 0.2))


def test_a_closure_and_parameters_without_a_gradient():
    net = nn.Linear(3, 2)
    frozen = net.bias.detach().clone()
    optimizer = SGD(net.parameters(), 0.1)

    def closure():
        optimizer.zero_grad()
        loss = net.weight.square().sum()
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert optimizer.step(closure) < first
    assert torch.equal(net.bias.detach(), frozen)


def test_a_weight_that_is_not_contiguous_takes_the_plain_step():
    weight = nn.Parameter(torch.randn(6, 4).t())
    weight.grad = torch.ones(4, 6)
    before = weight.detach().clone()
    SGD([weight], 0.1).step()
    torch.testing.assert_close(weight.detach(), before - 0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "lr must be a number of at least 0, got -1.0"),
        ({"lr": "fast"}, "lr must be a number of at least 0, got 'fast'"),
        ({"lr": 0.1, "momentum": math.nan}, "momentum must be a number of at least 0, got nan"),
        ({"lr": 0.1, "weight_decay": -0.1}, "weight_decay must be a number of at least 0"),
        ({"lr": 0.1, "max_norm": 0}, "max_norm must be a number above 0 or None, got 0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        SGD([nn.Parameter(torch.ones(1))], **options)
