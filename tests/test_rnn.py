"""The recurrent networks against a plain loop with automatic gradients."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad, jvp, vmap
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from lpunits import (
    DOTRNN,
    DTRNN,
    Dropout,
    LpLinear,
    MaxoutLinear,
    param_groups,
    recurrence,
    reference,
)
from lpunits.units import ACTIVATIONS

DOUBLE = torch.float64
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


@pytest.fixture
def short_parts(monkeypatch):
    """The backward takes a sequence in parts: here of so few rows that short ones have several."""
    monkeypatch.setattr(recurrence, "ROWS_OF_A_PART", 8)


def build(activation="lp", units=6, dtype=DOUBLE, **options):
    """A small network, whose biases and centres are not 0 and whose orders differ."""
    net = DTRNN(4, 5, units, activation=activation, dtype=dtype, **options)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith(("bias", "center")):
                parameter.uniform_(-0.3, 0.3)
            elif name.endswith("rho"):
                parameter.uniform_(-1, 3)
    return net


def plain_loop(net, x, h, masks=None):
    """What the network has to compute, step by step: (steps, batch, inputs) to states."""

    def pooled(index, layer):
        def f(z):
            if index:
                z = nn.functional.linear(z, layer.weight.flatten(0, -2) / net.scales[index])
            if isinstance(layer, nn.Linear):
                u = getattr(torch, net.activation)(z + layer.bias)
            else:
                z = z.unflatten(-1, (layer.filters, layer.units))
                if isinstance(layer, MaxoutLinear):
                    u = reference.maxout(z + layer.bias, dim=-2)
                else:
                    order = reference.order(layer.rho)
                    u = reference.lp_pool(z, order, center=layer.center, dim=-2)
            return u if masks is None else u * masks[index]

        return f

    layers = [pooled(index, layer) for index, layer in enumerate(net.layers)]
    U = net.layers[0].weight.flatten(0, -2) / net.scales[0]
    W, b = net.hidden.weight / net.scales[-1], net.hidden.bias
    S = None if net.shortcut is None else net.shortcut.weight
    return reference.dtrnn(x, h, net.input.weight, layers, U, W, b, S)


def gradients(outputs, net, *inputs, upstream=None):
    learned = dict(net.named_parameters())
    g = torch.autograd.grad(outputs, (*inputs, *learned.values()), upstream)
    return dict(zip(("x", "h", *learned), g, strict=True))


def check(found, expected, dtype):
    """Relative to an entry plus the largest of all of them."""
    tolerance = TOLERANCE[dtype]
    for name, want in expected.items():
        size = want.abs().max().item()
        torch.testing.assert_close(
            found[name],
            want,
            rtol=tolerance,
            atol=tolerance * size,
            msg=lambda m, n=name: f"{n}: {m}",
        )


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("units", [6, (6, 7)], ids=["one layer", "two layers"])
@pytest.mark.parametrize("shortcut", [False, True], ids=["", "shortcut"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("steps", [1, 12])
def test_states_and_all_gradients_are_those_of_a_plain_loop(
    activation, units, shortcut, recompute, dtype, steps
):
    net = build(activation, units, dtype, recompute=recompute, shortcut=shortcut)
    x = torch.randn(steps, 3, 4, dtype=dtype, requires_grad=True)
    h = torch.randn(1, 3, 5, dtype=dtype, requires_grad=True)
    out, last = net(x, h)
    true = plain_loop(net, x, h[0])
    assert torch.equal(last[0], out[-1])
    upstream = (torch.randn_like(out), torch.randn_like(last))
    expected = gradients((true, true[-1:]), net, x, h, upstream=upstream)
    found = gradients((out, last), net, x, h, upstream=upstream)
    check({"states": out} | found, {"states": true} | expected, dtype)


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("shortcut", [False, True], ids=["", "shortcut"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_packed_and_padded_sequences(activation, shortcut, recompute, dtype):
    net = build(activation, (6, 7), dtype, recompute=recompute, shortcut=shortcut)
    lengths = [3, 9, 1, 9, 4]
    xs = [torch.randn(n, 4, dtype=dtype, requires_grad=True) for n in lengths]
    h = torch.randn(1, 5, 5, dtype=dtype, requires_grad=True)
    trues = [plain_loop(net, x.unsqueeze(1), h[:, i])[:, 0] for i, x in enumerate(xs)]
    upstream = [torch.randn(n, 5, dtype=dtype) for n in lengths]
    ends = torch.randn(1, 5, 5, dtype=dtype)
    loss = sum(
        (t * g).sum() + (t[-1] * e).sum() for t, g, e in zip(trues, upstream, ends[0], strict=True)
    )
    parameters = dict(net.named_parameters())
    wanted = (*xs, h, *parameters.values())
    names = [*map(str, range(5)), "h", *parameters]
    expected = dict(zip(names, torch.autograd.grad(loss, wanted), strict=True))

    packed, last = net(pack_sequence(xs, enforce_sorted=False), h)
    out, _ = pad_packed_sequence(packed)
    for i, true in enumerate(trues):
        torch.testing.assert_close(last[0, i], true[-1])
        check({"": out[: lengths[i], i]}, {"": true}, dtype)
    loss = sum((out[:n, i] * upstream[i]).sum() for i, n in enumerate(lengths))
    found = torch.autograd.grad(loss + (last * ends).sum(), wanted)
    check(dict(zip(names, found, strict=True)), expected, dtype)

    padded = nn.utils.rnn.pad_sequence(xs)  # gives the same, and 0 where there is nothing
    again, last_again = net(padded, h, lengths=lengths)
    assert torch.equal(again, out)
    assert torch.equal(last_again, last)
    net.batch_first = True
    again, _ = net(padded.transpose(0, 1), h, lengths=torch.tensor(lengths))
    assert torch.equal(again.transpose(0, 1), out)


def test_padding_costs_nothing():
    net = build(dtype=torch.float32)
    with torch.profiler.profile(record_shapes=True) as profile:
        net(torch.randn(100, 3, 4), lengths=[100, 2, 1])
    rows = [e.input_shapes[0][0] for e in profile.events() if e.name == "aten::addmm_"]
    assert sum(rows) == 2 * 103  # the recurrent product, and the one to the state


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("per", ["step", "sequence"])
@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
def test_dropout(per, recompute):
    net = build(units=(6, 7), dropout=0.4, dropout_per=per, recompute=recompute)
    x = torch.randn(50, 3, 4, dtype=DOUBLE, requires_grad=True)
    h = torch.randn(1, 3, 5, dtype=DOUBLE, requires_grad=True)
    generator = torch.get_rng_state()
    out, _ = net(x, h)
    torch.set_rng_state(generator)
    shape = (150,) if per == "step" else (3,)
    masks = [Dropout(0.4)(torch.ones(*shape, n, dtype=DOUBLE)) for n in (6, 7)]
    assert 0.2 < (masks[0] == 0).double().mean() < 0.6
    true, state = [], h[0]
    for t in range(50):
        now = [m[3 * t : 3 * t + 3] if per == "step" else m for m in masks]
        state = plain_loop(net, x[t : t + 1], state, now)[0]
        true.append(state)
    true = torch.stack(true)
    torch.testing.assert_close(out, true, rtol=1e-10, atol=1e-10)
    upstream = torch.randn_like(out)
    found = gradients(out, net, x, h, upstream=upstream)
    check(found, gradients(true, net, x, h, upstream=upstream), DOUBLE)
    net.eval()
    torch.testing.assert_close(net(x, h)[0], plain_loop(net, x, h[0]))


@pytest.mark.parametrize("shortcut", [False, True], ids=["", "shortcut"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradcheck(activation, shortcut):
    net = build(activation, (3, 4), shortcut=shortcut)

    def f(x, h, *parameters):
        given = dict(zip(dict(net.named_parameters()), parameters, strict=True))
        return functional_call(net, given, (x, h))

    x, h = torch.randn(3, 2, 4, dtype=DOUBLE), torch.randn(1, 2, 5, dtype=DOUBLE)
    args = [t.detach().clone().requires_grad_() for t in (x, h, *net.parameters())]
    # fast_mode: along random directions, since entry by entry takes ten seconds.
    assert torch.autograd.gradcheck(f, args, check_forward_ad=True, fast_mode=True)


@pytest.mark.parametrize("shortcut", [False, True], ids=["", "shortcut"])
def test_second_derivatives(shortcut):
    net = build(units=3, shortcut=shortcut)
    x = torch.randn(3, 2, 4, dtype=DOUBLE, requires_grad=True)

    def second(run):
        out = run(x)
        (first,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), (x, *net.parameters()))

    ours = second(lambda x: net(x)[0])
    true = second(lambda x: plain_loop(net, x, torch.zeros(2, 5, dtype=DOUBLE)))
    for found, expected in zip(ours, true, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("shortcut", [False, True], ids=["", "shortcut"])
def test_transforms_of_torch(shortcut):
    net = build(shortcut=shortcut)
    x, h = torch.randn(4, 3, 4, dtype=DOUBLE), torch.zeros(3, 5, dtype=DOUBLE)
    true = plain_loop(net, x, h)
    each = vmap(lambda x: net(x)[0], in_dims=1, out_dims=1)(x)  # the batch by vmap
    torch.testing.assert_close(each, true)
    by_x = grad(lambda x: net(x)[0].square().sum())(x)
    by_x_true = grad(lambda x: plain_loop(net, x, h).square().sum())(x)
    torch.testing.assert_close(by_x, by_x_true)
    along = (torch.randn_like(x),)
    _, moved = jvp(lambda x: net(x)[0], (x,), along)
    _, moved_true = jvp(lambda x: plain_loop(net, x, h), (x,), along)
    torch.testing.assert_close(moved, moved_true)


def test_compiled_and_under_autocast():
    net, x = build(dtype=torch.float32), torch.randn(3, 2, 4)
    with torch.no_grad():
        compiled = torch.compile(net, backend="aot_eager", fullgraph=True)(x)[0]
    torch.testing.assert_close(compiled, net(x)[0], rtol=1e-5, atol=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(net(x.bfloat16().float())[0], net(x.bfloat16())[0])


@pytest.mark.parametrize("orders", [(1.0, 1.5, 3.0, 1e4, math.inf)])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_two_thousand_steps_with_orders_up_to_infinity(orders, dtype):
    net = DTRNN(4, 5, 5, 3, order=orders, dtype=dtype)
    x = torch.randn(2000, 2, 4, dtype=dtype) * torch.rand(2000, 2, 1, dtype=dtype).round()
    x.requires_grad_()
    out, _ = net(x)
    out.square().mean().backward()
    assert out.isfinite().all()
    assert out.std() > 0.01
    assert all(p.grad.isfinite().all() for p in (x, *net.parameters()))


@settings(deadline=None, max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    cut=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_a_sequence_can_be_cut_anywhere(lengths, cut, seed):
    """The state carries everything: parts, steps and packs give what the whole gives."""
    torch.manual_seed(seed)
    net = build()
    x = torch.randn(7, len(lengths), 4, dtype=DOUBLE)
    whole, last = net(x)
    head, state = net(x[:cut])
    tail, end = net(x[cut:], state)
    torch.testing.assert_close(torch.cat([head, tail]), whole)
    torch.testing.assert_close(end, last)
    state = None
    for t in range(7):
        out, state = net.step(x[t], state)
        torch.testing.assert_close(out, whole[t])
    padded, ends = net(x, lengths=lengths)
    for i, n in enumerate(lengths):
        torch.testing.assert_close(padded[:n, i], whole[:n, i])
        torch.testing.assert_close(ends[0, i], whole[n - 1, i])
        assert not padded[n:, i].any()


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: DTRNN(4, 5, 6, **o),
        lambda **o: DOTRNN(4, 5, 3, 6, 2, 7, 2, **o),
    ],
    ids=["DTRNN", "DOTRNN"],
)
def test_shapes_are_those_of_torch(make):
    net, theirs = make(), nn.RNN(4, 5)
    first = make(batch_first=True)
    first.load_state_dict(net.state_dict())
    width = 3 if isinstance(net, DOTRNN) else 5
    for shape in ((7, 2, 4), (1, 1, 4), (7, 4)):
        x = torch.randn(shape)
        (out, last), (like, like_last) = net(x), theirs(x)
        assert out.shape == (*like.shape[:-1], width)
        assert last.shape == like_last.shape
        out_again, _ = net(x, last.new_zeros(last.shape))
        assert torch.equal(out_again, out)
        if x.ndim == 3:
            torch.testing.assert_close(first(x.transpose(0, 1))[0].transpose(0, 1), out)
    packed, _ = net(pack_sequence([torch.randn(3, 4), torch.randn(2, 4)]))
    assert packed.data.shape == (5, width)
    for n in (net, first):
        assert n.step(torch.randn(2, 4))[0].shape == (2, width)
        assert n.step(torch.randn(4))[0].shape == (width,)
        assert n.step(torch.randn(4))[1].shape == (1, 5)


def test_the_deep_output_is_what_it_says():
    net = DOTRNN(4, 5, 3, 6, 2, 7, 2, dtype=DOUBLE)
    x = torch.randn(6, 2, 4, dtype=DOUBLE)
    states, _ = net.rnn(x)
    maxout, readout = net.output
    z = torch.einsum("fui,tbi->tbfu", maxout.weight, states) + maxout.bias
    true = z.amax(-2) @ readout.weight.t() + readout.bias
    torch.testing.assert_close(net(x)[0], true)


def test_the_output_can_drop_more_than_the_transition():
    def rates(net):
        return net.rnn.dropout, [m.p for m in net.output if isinstance(m, Dropout)]

    assert rates(DOTRNN(4, 5, 3, 6, dropout=0.1)) == (0.1, [0.1])
    assert rates(DOTRNN(4, 5, 3, 6, dropout=0.1, output_dropout=0.5)) == (0.1, [0.5])
    assert rates(DOTRNN(4, 5, 3, 6, dropout=0.1, output_dropout=0)) == (0.1, [])


def test_a_wrong_use_of_the_output_in_place_is_noticed():
    net = build()
    out, _ = net(torch.randn(5, 2, 4, dtype=DOUBLE))
    out.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_what_is_kept_for_the_backward():
    """Linear in the sequence; with recompute, the input and the states and nothing else."""

    def kept(steps, recompute):
        net = DTRNN(4, 50, 50, 2, recompute=recompute)
        x, sizes = torch.randn(steps, 2, 4), {}

        def pack(t):
            sizes[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            out = net(x)[0]
        assert out.requires_grad
        return sum(sizes.values())

    for recompute, values in ((False, 4 + 50 * 4), (True, 4 + 50)):
        difference = kept(200, recompute) - kept(100, recompute)
        assert difference == pytest.approx(100 * 2 * 4 * values, rel=0.01)


def test_orders_have_their_own_rate_and_states_travel():
    net = DOTRNN(4, 5, 3, [6, 6], 2, 7, 2)
    names = {g["name"]: len(g["params"]) for g in param_groups(net, 0.1)}
    assert names["orders"] == 2
    assert names["centers"] == 2
    twin = copy.deepcopy(net)
    other = DOTRNN(4, 5, 3, [6, 6], 2, 7, 2)
    other.load_state_dict(net.state_dict())
    x = torch.randn(3, 2, 4)
    assert torch.equal(net(x)[0], twin(x)[0])
    assert torch.equal(net(x)[0], other(x)[0])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("shortcut", [False, True], ids=["", "shortcut"])
def test_a_new_network_neither_forgets_nor_explodes(activation, dropout, shortcut):
    """Signals and gradients survive 20 steps, and the states are not saturated."""
    net = DTRNN(88, 100, 100, activation=activation, dropout=dropout, shortcut=shortcut).eval()
    x = (torch.rand(50, 20, 88) < 0.05).float()
    h = torch.zeros(1, 20, 100, requires_grad=True)
    out, _ = net(x, h)
    assert 0.1 < out[-1].std(0).mean() < 0.6
    (g,) = torch.autograd.grad(out[20].square().sum(), h)
    assert 1e-3 * (activation != "sigmoid") < g.norm() < 20


def test_layers_are_the_ones_of_the_package():
    net = DTRNN(4, 5, [6, 7], [2, 3], order=4.0, bias=False)
    assert [type(layer) for layer in net.layers] == [LpLinear, LpLinear]
    assert all(layer.center is None for layer in net.layers)
    assert net.hidden.bias is None
    assert not any(p.requires_grad for n, p in DTRNN(4, 5, 6, activation="l2").named_buffers())
    assert "activation='lp'" in repr(net)
    assert "shortcut" not in dict(net.named_modules())
    assert DOTRNN(4, 5, 3, 6, shortcut=True).rnn.shortcut.weight.shape == (5, 5)
