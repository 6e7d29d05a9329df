r"""A deep transition over a whole sequence, as one operator.

.. math:: h_t = \tanh(W s_t + S h_{t-1} + b), \quad s_t = f(U h_{t-1} + V x_t + c)

Automatic differentiation of a loop spends most of its time on bookkeeping. Here everything that
does not depend on the previous state is one product over many steps: the input before the forward
loop, the gradients of the weights after each part of the backward loop. Inside the loops are the
recurrent products and the units. The shortcut S may be absent.

Rows are in the order of a :class:`~torch.nn.utils.rnn.PackedSequence`: the first step of every
sequence, then the second of those that have one, and so on, the longest sequences first. So step t
works on the first ``batch_sizes[t]`` rows of the state, and there is no padding.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from lpunits.arguments import inside_a_transform
from lpunits.ops import ops
from lpunits.units import ELEMENTWISE, pool, pool_backward

ROWS_OF_A_PART = 1024  # enough for products at full speed, few enough to stay in a cache
SHORT = 8  # steps; for fewer, a transposed copy of the weights costs more than it saves


class Layer(NamedTuple):
    """One intermediate layer: its weights ``(filters * units, inputs)`` and how it pools.

    ``bias`` is (filters * units,), ``order`` (units,) for Lp units. ``mask`` is what dropout
    multiplies with: a row per row of the state, the same at every step, or a row per row of input.
    """

    kind: str  # lp, maxout or one of ELEMENTWISE
    filters: int
    weight: Tensor
    bias: Tensor | None
    order: Tensor | None
    mask: Tensor | None


def recur(
    x: Tensor,
    h: Tensor,
    batch_sizes: Tensor | None,
    V: Tensor,
    layers: Sequence[Layer],
    W: Tensor,
    b: Tensor | None,
    S: Tensor | None,
    recompute: bool = False,
) -> tuple[Tensor, Tensor]:
    """The states ``(rows, hidden)`` after every step, and the last one of each sequence.

    Without ``batch_sizes`` all sequences are equally long. With ``recompute`` only the states are
    kept for the backward pass, which recomputes the projections, one part of the sequence at a
    time.
    """
    inputs = [x, h, V, W, b, S, *(t for _, _, *tensors in layers for t in tensors)]
    kinds, filters = [layer.kind for layer in layers], [layer.filters for layer in layers]
    if (
        torch._C._get_tracing_state()  # torch.jit has no lists of optional tensors
        or torch._C._are_functorch_transforms_active()
        or inside_a_transform(*inputs)
    ):
        return _differentiable(inputs, batch_sizes, kinds, filters)
    states, last, _ = ops.recurrence(inputs, batch_sizes, kinds, filters, recompute)
    return states, last


# ---------------------------------------------------------------- the rows of each step


def _sizes(x: Tensor, h: Tensor, batch_sizes: Tensor | None) -> tuple[int, ...]:
    """How many rows each step has."""
    rows, batch = x.shape[0], h.shape[0]
    if batch_sizes is None:
        return (batch,) * (rows // batch)
    sizes = batch_sizes.tolist()
    if sum(sizes) != rows or sizes[:1] != [batch] or sizes != sorted(sizes, reverse=True):
        raise ValueError(
            f"input must be a PackedSequence whose batch sizes fall and add up to its rows, "
            f"got {rows} rows, {batch} states and the batch sizes {brief(batch_sizes)}"
        )
    return tuple(sizes)


def brief(sizes: Tensor) -> str:
    """The first numbers of a tensor, for a message."""
    values = sizes.tolist()
    if not isinstance(values, list) or len(values) <= 10:
        return str(values)
    return f"[{', '.join(map(str, values[:10]))}, ...]"


def _layers(
    kinds: Sequence[str], filters: Sequence[int], tensors: Sequence[Tensor | None]
) -> list[Layer]:
    """The layers, from their tensors."""
    fours = (tensors[i : i + 4] for i in range(0, len(tensors), 4))
    return [Layer(*it, *four) for *it, four in zip(kinds, filters, fours, strict=True)]  # type: ignore[arg-type]


def _masks(mask: Tensor | None, sizes: tuple[int, ...]) -> Sequence[Tensor | None]:
    """The mask of each step."""
    if mask is None:
        return (None,) * len(sizes)
    if mask.shape[0] == sum(sizes):
        return mask.split_with_sizes(sizes)
    return [mask[:n] for n in sizes]


def _parts(sizes: tuple[int, ...]) -> list[tuple[slice, slice]]:
    """The sequence in parts of at most ROWS_OF_A_PART rows, if possible: steps and rows of each."""
    ends = list(accumulate(sizes, initial=0))
    parts, start = [], 0
    for stop in range(1, len(ends)):
        if stop == len(ends) - 1 or ends[stop + 1] - ends[start] > ROWS_OF_A_PART:
            parts.append((slice(start, stop), slice(ends[start], ends[stop])))
            start = stop
    return parts


def _last(states: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """The state in which each sequence ends; ``states`` are those after each step."""
    if sizes[0] == sizes[-1]:
        return states[-sizes[0] :].clone()
    ends, done = [], 0
    for rows in reversed(states.split_with_sizes(sizes)):
        ends.append(rows[done:])
        done = len(rows)
    return torch.cat(ends)


# ---------------------------------------------------------------- the loops


def _forward(
    inputs: Sequence[Any],
    batch_sizes: Tensor | None,
    kinds: Sequence[str],
    filters: Sequence[int],
    recompute: bool,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The states, the last one of each sequence, and what is kept for the backward pass."""
    x, h, V, W, b, S, *tensors = inputs
    layers, sizes = _layers(kinds, filters, tensors), _sizes(x, h, batch_sizes)
    short, even = len(sizes) < SHORT, sizes[0] == sizes[-1]
    Us, Wt = [_transposed(layer.weight, short) for layer in layers], _transposed(W, short)
    St = None if S is None else _transposed(S, short)
    z = [linear(x, V, layers[0].bias)]  # V x_t + c for all t; U h joins inside the loop
    z += [_rows_of(layer.bias, x.shape[0], layer.weight) for layer in layers[1:]]
    s = [x.new_empty(x.shape[0], la.weight.shape[0] // la.filters) for la in layers]
    states = _rows_of(b, x.shape[0], W)  # likewise, b is there before the loop
    masks = [_masks(layer.mask, sizes) for layer in layers]
    zs, ss = [t.split_with_sizes(sizes) for t in z], [t.split_with_sizes(sizes) for t in s]
    groups = [_groups(la, t).split_with_sizes(sizes) for la, t in zip(layers, z, strict=True)]
    for t, h_t in enumerate(states.split_with_sizes(sizes)):
        s_t = before = h if even else h[: len(h_t)]
        for i, layer in enumerate(layers):
            zs[i][t].addmm_(s_t, Us[i])
            s_t = pool(layer.kind, groups[i][t], layer.order, out=ss[i][t])
            _drop(s_t, masks[i][t])
        if St is not None:
            h_t.addmm_(before, St)
        h = h_t.addmm_(s_t, Wt).tanh_()
    return states, _last(states, sizes), [] if recompute else [*z, *s]


def _backward(
    grad: Tensor | None,
    grad_last: Tensor | None,
    states: Tensor,
    kept: Sequence[Tensor],
    inputs: Sequence[Any],
    batch_sizes: Tensor | None,
    kinds: Sequence[str],
    filters: Sequence[int],
    needs: Sequence[bool],
) -> list[Tensor]:
    """The gradients of the inputs that need one, part by part from the end of the sequence.

    Each part adds to the gradients of the weights by one product, so that the gradients of the
    projections are never kept for more than one part.
    """
    x, h, V, W, _, S, *tensors = inputs
    layers, sizes = _layers(kinds, filters, tensors), _sizes(x, h, batch_sizes)
    found = [
        torch.zeros_like(t, memory_format=torch.contiguous_format) if need else None
        for t, need in zip(inputs, needs, strict=True)
    ]
    dx, _, dV, dW, db, dS, *by_layer = found
    dU, dc, dp, _ = (by_layer[i::4] for i in range(4))
    dh = torch.zeros_like(h, memory_format=torch.contiguous_format)
    if grad_last is not None:
        dh.copy_(grad_last)
    dhs = [dh] * len(sizes) if sizes[0] == sizes[-1] else [dh[:n] for n in sizes]
    hs = states.split_with_sizes(sizes)
    grads = None if grad is None else grad.split_with_sizes(sizes)
    masks = [_masks(layer.mask, sizes) for layer in layers]
    tanh_backward = torch.ops.aten.tanh_backward.grad_input
    from_the_top = list(enumerate(layers))[::-1]
    parts = _parts(sizes)
    most = max(rows.stop - rows.start for _, rows in parts)
    new_a = W.new_empty(most, W.shape[0])
    new_z = [layer.weight.new_empty(most, layer.weight.shape[0]) for layer in layers]
    for steps, rows in reversed(parts):
        now = sizes[steps]
        # The previous state of each row.
        before = torch.cat([r[:n] for r, n in zip([h, *hs][steps], now, strict=True)])
        if kept:
            zs = [t[rows] for t in kept[: len(layers)]]
            ss = [t[rows] for t in kept[len(layers) :]]
        else:
            zs, ss = _recomputed(x[rows], before, V, layers, [mask[steps] for mask in masks])
        da = new_a[: before.shape[0]]
        dzs = [t[: before.shape[0]] for t in new_z]
        a_steps = da.split_with_sizes(now)
        z_steps = [t.split_with_sizes(now) for t in dzs]
        groups = [_groups(la, t).split_with_sizes(now) for la, t in zip(layers, zs, strict=True)]
        dgroups = [_groups(la, t).split_with_sizes(now) for la, t in zip(layers, dzs, strict=True)]
        for k, t in reversed(list(enumerate(range(steps.start, steps.stop)))):
            # Rows after those of the next step end here: they still hold their part of grad_last.
            dh_t = dhs[t]
            if grads is not None:
                dh_t += grads[t]
            ds = tanh_backward(dh_t, hs[t], grad_input=a_steps[k]).mm(W)
            for i, layer in from_the_top:
                _drop(ds, masks[i][t])
                pool_backward(layer.kind, ds, groups[i][k], layer.order, dgroups[i][k], dp[i])
                if i:
                    ds = z_steps[i][k].mm(layer.weight)
            torch.mm(z_steps[0][k], layers[0].weight, out=dh_t)
            if S is not None:
                dh_t.addmm_(a_steps[k], S)

        if dx is not None:
            torch.mm(dzs[0], V, out=dx[rows])
        _collect(dV, None, dzs[0], x[rows])
        _collect(dW, db, da, ss[-1])
        _collect(dS, None, da, before)
        for i, below in enumerate([before, *ss[:-1]]):
            _collect(dU[i], dc[i], dzs[i], below)
    found[1] = dh
    return [t for t, need in zip(found, needs, strict=True) if need]  # type: ignore[misc]


def _collect(by_weight: Tensor | None, by_bias: Tensor | None, dy: Tensor, inputs: Tensor) -> None:
    """Add the part of the sequence to the gradients of weights and bias."""
    if by_weight is not None:
        by_weight.addmm_(dy.t(), inputs)
    if by_bias is not None:
        by_bias += dy.sum(0)


def _transposed(weight: Tensor, short: bool) -> Tensor:
    """The weights as a right factor; a contiguous copy makes the products a third faster."""
    return weight.t() if short else weight.t().contiguous()


def _rows_of(bias: Tensor | None, rows: int, weight: Tensor) -> Tensor:
    """The bias in every row of a new tensor."""
    if bias is None:
        return weight.new_zeros(rows, weight.shape[0])
    return weight.new_empty(rows, weight.shape[0]).copy_(bias)


def _drop(s: Tensor, mask: Tensor | None) -> None:
    """Dropout, in place."""
    if mask is not None:
        s *= mask


def _groups(layer: Layer, z: Tensor) -> Tensor:
    """``(rows, filters, units)``, and ``(rows, units)`` for elementwise units."""
    return z if layer.kind in ELEMENTWISE else z.reshape(z.shape[0], layer.filters, -1)


def _recomputed(
    x: Tensor,
    before: Tensor,
    V: Tensor,
    layers: Sequence[Layer],
    masks: Sequence[tuple[Tensor | None, ...]],
) -> tuple[list[Tensor], list[Tensor]]:
    """The projections and the values of the units of some steps, from the previous states."""
    z: list[Tensor] = []
    s: list[Tensor] = []
    for i, layer in enumerate(layers):
        z.append(linear(s[-1] if i else before, layer.weight, layer.bias))
        if i == 0:
            z[0].addmm_(x, V.t())
        group = _groups(layer, z[i])
        out = x.new_empty(x.shape[0], group.shape[-1])
        s.append(pool(layer.kind, group, layer.order, out=out))
        if layer.mask is not None:
            s[i] *= torch.cat(masks[i])  # type: ignore[arg-type]
    return z, s


def _differentiable(
    inputs: Sequence[Any],
    batch_sizes: Tensor | None,
    kinds: Sequence[str],
    filters: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """The same in plain operations, for every transform of torch."""
    x, h, V, W, b, S, *tensors = inputs
    layers, sizes, states = _layers(kinds, filters, tensors), _sizes(x, h, batch_sizes), []
    masks = [_masks(layer.mask, sizes) for layer in layers]
    for t, Vx in enumerate(linear(x, V).split_with_sizes(sizes)):
        s = h[: sizes[t]]
        for i, layer in enumerate(layers):
            z = linear(s, layer.weight, layer.bias)
            s = pool(layer.kind, _groups(layer, z if i else z + Vx), layer.order)
            mask = masks[i][t]
            s = s if mask is None else s * mask
        past = 0 if S is None else linear(h[: sizes[t]], S)
        h = (linear(s, W, b) + past).tanh()
        states.append(h)
    together = torch.cat(states)
    return together, _last(together, sizes)


# ---------------------------------------------------------------- the operators

# The inputs are x, h, V, W, b, S and the tensors of each layer.
_ARGUMENTS = "Tensor?[] inputs, Tensor? batch_sizes, str[] kinds, int[] filters"
_library = torch.library.Library("lpunits", "FRAGMENT")
for _schema in (
    f"recurrence({_ARGUMENTS}, bool recompute) -> (Tensor states, Tensor last, Tensor[] kept)",
    "recurrence_backward(Tensor? grad, Tensor? grad_last, Tensor states, Tensor[] kept, "
    f"{_ARGUMENTS}, bool[] needs) -> Tensor[]",  # the gradients that are needed and no others
):
    _library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))


class _Recurrence(torch.autograd.Function):
    """The operator with its gradients; ``rest`` are the arguments that have none."""

    @staticmethod
    def forward(ctx: Any, rest: tuple[Any, ...], *inputs: Tensor | None) -> tuple[Tensor, ...]:
        # Nothing in here is recorded, which saves every operator the check.
        with torch._C._AutoDispatchBelowAutograd():
            states, last, kept = ops.recurrence.default(inputs, *rest)
        ctx.rest = rest
        ctx.save_for_backward(states, *inputs, *kept)
        ctx.mark_non_differentiable(*kept)
        ctx.set_materialize_grads(False)
        return states, last, *kept

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        needs, rest = ctx.needs_input_grad[1:], ctx.rest[:-1]
        states, *saved = ctx.saved_tensors
        inputs, kept = saved[: len(needs)], saved[len(needs) :]
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            pairs = zip(_differentiable(inputs, *rest), grads[:2], strict=True)
            outputs, upstream = zip(*((y, g) for y, g in pairs if g is not None), strict=True)
            wanted = [t for t, need in zip(inputs, needs, strict=True) if need]
            found = torch.autograd.grad(outputs, wanted, upstream, create_graph=True)
        else:
            found = ops.recurrence_backward.default(*grads[:2], states, kept, inputs, *rest, needs)
        gradients = iter(found)
        return None, *(next(gradients) if need else None for need in needs)


def _with_gradients(inputs: Sequence[Any], *rest: Any) -> tuple[Tensor, Tensor, list[Tensor]]:
    states, last, *kept = _Recurrence.apply(rest, *inputs)  # type: ignore[no-untyped-call]
    return states, last, kept


def _unrecorded_backward(*arguments: Any) -> list[Tensor]:
    with torch._C._AutoDispatchBelowAutograd():  # compiled graphs call the operator outside of it
        return _backward(*arguments)


def _shapes(inputs: Sequence[Any], *rest: Any) -> tuple[Tensor, Tensor, list[Tensor]]:
    (x, h, _, W, _, _, *tensors), (*_, filters, recompute) = inputs, rest
    widths = [weight.shape[0] for weight in tensors[::4]]
    widths += [width // n for width, n in zip(widths, filters, strict=True)]
    kept = [] if recompute else [x.new_empty(x.shape[0], width) for width in widths]
    return x.new_empty(x.shape[0], W.shape[0]), h.new_empty(h.shape), kept


def _shapes_of_gradients(*arguments: Any) -> list[Tensor]:
    inputs, needs = arguments[4], arguments[-1]
    return [t.new_empty(t.shape) for t, need in zip(inputs, needs, strict=True) if need]


_library.impl("recurrence", _forward, "CompositeExplicitAutograd")
_library.impl("recurrence", _with_gradients, "Autograd")
_library.impl("recurrence_backward", _unrecorded_backward, "CompositeExplicitAutograd")
torch.library.register_fake("lpunits::recurrence", _shapes, lib=_library)
torch.library.register_fake("lpunits::recurrence_backward", _shapes_of_gradients, lib=_library)
