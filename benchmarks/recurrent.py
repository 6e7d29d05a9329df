"""A recurrent network over a whole sequence, against torch's networks and against a loop.

88 inputs, a state of 400, 400 units with 2 filters: about as many operations as a GRU of 400.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from lpunits import DTRNN, LpLinear, lp_pool, reference
from timing import BOTH, OURS, Case, Contestant, Result, Settings, measure

QUESTION = "recurrent"
INPUTS, HIDDEN, UNITS, FILTERS = 88, 400, 400, 2
SHAPES = tuple((batch, steps) for batch in (16, 64) for steps in (100, 400))
SMALL = "batch 16"
LARGE = "batch 64"
PADDED = "padding"
PRODUCTS = "matrix products"


def run(settings: Settings) -> list[Result]:
    """Every batch and length; then a padded batch against its packed form.

    Nothing is compiled: torch.compile refuses nn.GRU, and unrolls our loop for minutes.
    """
    settings = replace(settings, compile=False)
    results = []
    for batch, steps in SHAPES:
        steps = max(2, steps // settings.shrink)
        found = contestants(torch.randn(steps, batch, INPUTS))
        case = Case(QUESTION, f"batch {batch}", f"{steps} steps", None, found, (BOTH,))
        results += measure(case, settings)
    return results + measure(_padding(settings), settings)


def contestants(x: Tensor) -> list[Contestant]:
    """Ours, torch's, and the loop with automatic gradients: with our operator, and without."""
    torch.manual_seed(0)
    ours = DTRNN(INPUTS, HIDDEN, UNITS, FILTERS)
    frugal = DTRNN(INPUTS, HIDDEN, UNITS, FILTERS, recompute=True)
    frugal.load_state_dict(ours.state_dict())
    upstream = torch.randn(*x.shape[:2], HIDDEN)
    exact = _truth(ours, x, upstream)
    rows = [
        (OURS, lambda x: ours(x)[0], ours, exact),
        ("recomputed", lambda x: frugal(x)[0], frugal, exact),
        ("loop", partial(loop, ours, lp_pool), ours, exact),
        ("loop, naive formula", partial(loop, ours, reference.lp_pool), ours, exact),
    ]
    for cell in (nn.GRU, nn.LSTM, nn.RNN):
        net = cell(INPUTS, HIDDEN)
        rows.append((f"nn.{cell.__name__}", lambda x, net=net: net(x)[0], net, ()))
    found = [
        Contestant(name, function, (x,), tuple(net.parameters()), upstream, expected)
        for name, function, net, expected in rows
    ]
    return [*found, Contestant(PRODUCTS, products(x))]


def products(x: Tensor) -> Callable[[], Tensor]:
    """The matrix products of ours, nothing else."""
    steps, batch, _ = x.shape
    rows = x.flatten(0, 1)
    V, U = torch.randn(FILTERS * UNITS, INPUTS), torch.randn(FILTERS * UNITS, HIDDEN)
    W = torch.randn(HIDDEN, UNITS)
    Ut, Wt = U.t().contiguous(), W.t().contiguous()  # as ours lays them out, which is faster
    h, by_h = torch.randn(2, steps, batch, HIDDEN)
    f, by_f = torch.randn(2, steps, batch, UNITS)
    z, by_z = torch.randn(2, steps, batch, FILTERS * UNITS)

    def run() -> Tensor:
        torch.mm(rows, V.t(), out=z.flatten(0, 1))
        for t in range(1, steps):
            torch.addmm(z[t], h[t - 1], Ut, out=z[t])
            torch.mm(f[t], Wt, out=h[t])
        for t in range(steps - 1, 0, -1):
            torch.mm(by_h[t], W, out=by_f[t])
            torch.addmm(by_h[t - 1], by_z[t], U, out=by_h[t - 1])
        torch.mm(by_z[1:].flatten(0, 1).t(), h[:-1].flatten(0, 1))
        torch.mm(by_h.flatten(0, 1).t(), f.flatten(0, 1))
        return torch.mm(by_z.flatten(0, 1).t(), rows)

    return run


def loop(net: DTRNN, pool: Callable[..., Tensor], x: Tensor) -> Tensor:
    """The network as one would write it: step by step, with automatic gradients."""
    layer = net.layers[0]
    assert isinstance(layer, LpLinear)

    def f(z: Tensor) -> Tensor:
        z = z.unflatten(-1, (layer.filters, layer.units))
        return pool(z, layer.order, center=layer.center, dim=-2)

    h = x.new_zeros(x.shape[1], HIDDEN)
    U, W = layer.weight.flatten(0, 1) / net.scales[0], net.hidden.weight / net.scales[-1]
    b = net.hidden.bias
    return reference.dtrnn(x, h, net.input.weight, [f], U, W, b)


def _truth(net: DTRNN, x: Tensor, upstream: Tensor) -> tuple[Tensor, ...]:
    """Value and gradients, by the reference in double precision."""
    twin = DTRNN(INPUTS, HIDDEN, UNITS, FILTERS, dtype=torch.double)
    twin.load_state_dict(net.state_dict())
    out = loop(twin, reference.lp_pool, x.double())
    gradients = torch.autograd.grad(out, tuple(twin.parameters()), upstream.double())
    return (out.detach(), *gradients)


def _padding(settings: Settings) -> Case:
    """Sixteen sequences of 25, 50, ... 400 steps: what the padding would cost, and does not."""
    longest = max(16, 400 // settings.shrink)
    lengths = [longest * k // 16 for k in range(16, 0, -1)]
    torch.manual_seed(0)
    net, gru = DTRNN(INPUTS, HIDDEN, UNITS, FILTERS), nn.GRU(INPUTS, HIDDEN)
    x = torch.randn(longest, 16, INPUTS)
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths)
    rows, all_rows = torch.randn(len(packed.data), HIDDEN), torch.randn(longest, 16, HIDDEN)
    learned, theirs = tuple(net.parameters()), tuple(gru.parameters())
    return Case(
        QUESTION,
        PADDED,
        f"lengths {lengths[-1]} to {lengths[0]}",
        None,
        [
            Contestant(OURS, lambda: net(packed)[0].data, (), learned, rows),
            Contestant("ours, padding and all", lambda: net(x)[0], (), learned, all_rows),
            Contestant("nn.GRU, packed", lambda: gru(packed)[0].data, (), theirs, rows),
        ],
        (BOTH,),
    )
