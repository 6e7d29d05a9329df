r"""A deep transition over a whole sequence, as one differentiable operation.

.. math:: h_t = \tanh(W s_t + b), \quad s_t = f(U h_{t-1} + V x_t + c)

Automatic differentiation of a loop spends most of its time on bookkeeping. Here everything that
does not depend on the previous state is one product over all steps, before the loop forward (the
input) or behind parts of the loop backward (the weights); inside there are the two recurrent
products and the units.

The rows of a sequence lie in the order of a :class:`~torch.nn.utils.rnn.PackedSequence`: first the
first step of every sequence, then the second of those that have one, the longest sequences first.
So step t works on the first ``batch_sizes[t]`` rows of the state, and there is no padding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from lpunits.functional import inside_a_transform, lp_pool
from lpunits.ops import ops

ELEMENTWISE = ("relu", "sigmoid", "tanh")
ROWS_OF_A_PART = 1024  # enough for products at full speed, few enough to stay in a cache
FEW_STEPS = 8  # below, turning the weights round costs more than it saves


@dataclass(frozen=True)
class Layer:
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

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """What autograd has to know of."""
        return self.weight, self.bias, self.order, self.mask


def recur(
    x: Tensor,
    h: Tensor,
    batch_sizes: Sequence[int],
    V: Tensor,
    layers: Sequence[Layer],
    W: Tensor,
    b: Tensor | None,
    recompute: bool = False,
) -> tuple[Tensor, Tensor]:
    """The states ``(rows, hidden)`` after every step, and the last one of each sequence.

    With ``recompute`` nothing but the states is kept for the backward, which then makes the
    projections again, for a part of the sequence at a time.
    """
    plan = _Plan(tuple(batch_sizes), tuple((la.kind, la.filters) for la in layers), recompute)
    tensors = [t for layer in layers for t in layer.tensors]
    if torch.compiler.is_compiling() or inside_a_transform(x, h, V, W, b, *tensors):
        return _differentiable(plan, x, h, V, W, b, *tensors)
    return _Recurrence.apply(plan, x, h, V, W, b, *tensors)  # type: ignore[no-any-return, no-untyped-call]


@dataclass(frozen=True)
class _Plan:
    """What is not a tensor, and where the rows of each step are."""

    batch_sizes: tuple[int, ...]
    units: tuple[tuple[str, int], ...]  # kind and filters of each layer
    recompute: bool

    @property
    def even(self) -> bool:
        """Whether all sequences are equally long."""
        return self.batch_sizes[0] == self.batch_sizes[-1]

    def layers(self, tensors: Sequence[Tensor | None]) -> list[Layer]:
        """The layers again, from their tensors."""
        return [
            Layer(*self.units[i // 4], *tensors[i : i + 4])  # type: ignore[arg-type]
            for i in range(0, len(tensors), 4)
        ]

    def steps(self, t: Tensor) -> tuple[Tensor, ...]:
        """The rows of each step."""
        steps: tuple[Tensor, ...] = t.split(self.batch_sizes)
        return steps

    def masks(self, mask: Tensor | None) -> tuple[Tensor | None, ...]:
        """The mask of each step."""
        if mask is None:
            return (None,) * len(self.batch_sizes)
        if len(mask) == sum(self.batch_sizes):
            return self.steps(mask)
        return tuple(mask[:n] for n in self.batch_sizes)

    def parts(self) -> list[tuple[slice, slice]]:
        """The sequence in parts of not many rows: which steps, and which rows."""
        ends = list(accumulate(self.batch_sizes, initial=0))
        parts, start = [], 0
        for stop in range(1, len(ends)):
            if stop == len(ends) - 1 or ends[stop + 1] - ends[start] > ROWS_OF_A_PART:
                parts.append((slice(start, stop), slice(ends[start], ends[stop])))
                start = stop
        return parts

    def last(self, states: Tensor) -> Tensor:
        """The state in which each sequence ends; ``states`` are those after each step."""
        if self.even:
            return states[-self.batch_sizes[0] :].clone()
        ends, done = [], 0
        for rows in reversed(self.steps(states)):
            ends.append(rows[done:])
            done = len(rows)
        return torch.cat(ends)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        plan: _Plan,
        x: Tensor,
        h: Tensor,
        V: Tensor,
        W: Tensor,
        b: Tensor | None,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        # Nothing in here is recorded, so that no operator need look whether it should be.
        with torch._C._AutoDispatchBelowAutograd():
            return _Recurrence._forward(ctx, plan, x, h, V, W, b, *tensors)

    @staticmethod
    def _forward(
        ctx: Any,
        plan: _Plan,
        x: Tensor,
        h: Tensor,
        V: Tensor,
        W: Tensor,
        b: Tensor | None,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        layers, initial = plan.layers(tensors), h
        few = len(plan.batch_sizes) < FEW_STEPS
        Us, Wt = [_turned(layer.weight, few) for layer in layers], _turned(W, few)
        z = [linear(x, V, layers[0].bias)]  # V x_t + c for all t; U h joins inside the loop
        z += [_rows_of(layer.bias, len(x), layer.weight) for layer in layers[1:]]
        s = [x.new_empty(len(x), len(la.weight) // la.filters) for la in layers]
        out = _rows_of(b, len(x), W)  # likewise, b is there before the loop
        masks = [plan.masks(layer.mask) for layer in layers]
        zs, ss = list(map(plan.steps, z)), list(map(plan.steps, s))
        groups = [plan.steps(_groups(la, t)) for la, t in zip(layers, z, strict=True)]
        even = plan.even
        for t, h_t in enumerate(plan.steps(out)):
            s_t = h if even else h[: len(h_t)]
            for i, layer in enumerate(layers):
                zs[i][t].addmm_(s_t, Us[i])
                s_t = _pool(layer, groups[i][t], out=ss[i][t])
                _drop(s_t, masks[i][t])
            h = h_t.addmm_(s_t, Wt).tanh_()
        ctx.plan = plan
        kept = [] if plan.recompute else [*z, *s]
        ctx.save_for_backward(out, x, initial, V, W, b, *tensors, *kept)
        ctx.set_materialize_grads(False)
        return out, plan.last(out)

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, grad_last: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        plan: _Plan = ctx.plan
        out, *inputs = ctx.saved_tensors
        deep = len(plan.units)
        inputs, kept = inputs[: 5 + 4 * deep], inputs[5 + 4 * deep :]
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            return None, *_graph(plan, inputs, ctx.needs_input_grad[1:], (grad, grad_last))
        with torch._C._AutoDispatchBelowAutograd():
            found = _backward(plan, inputs, ctx.needs_input_grad[1:], out, kept, grad, grad_last)
        return None, *found


def _backward(
    plan: _Plan,
    inputs: Sequence[Any],
    needs: Sequence[bool],
    out: Tensor,
    kept: Sequence[Tensor],
    grad: Tensor | None,
    grad_last: Tensor | None,
) -> list[Tensor | None]:
    """The gradients of the inputs that need one, part by part from the end of the sequence.

    What a part leaves behind goes into the gradients of the weights in one product, so that the
    gradients of the projections are never kept for more than a part.
    """
    x, h, V, W, _, *tensors = inputs
    layers, deep = plan.layers(tensors), len(plan.units)
    found = [torch.zeros_like(t) if need else None for t, need in zip(inputs, needs, strict=True)]
    dx, _, dV, dW, db, *by_layer = found
    dU, dc, dp, _ = (by_layer[i::4] for i in range(4))
    dh = torch.zeros_like(h) if grad_last is None else grad_last.clone()
    dhs = [dh] * len(plan.batch_sizes) if plan.even else [dh[:n] for n in plan.batch_sizes]
    hs, grads = plan.steps(out), grad if grad is None else plan.steps(grad)
    masks = [plan.masks(layer.mask) for layer in layers]
    tanh_backward = torch.ops.aten.tanh_backward.grad_input
    from_the_top = list(enumerate(layers))[::-1]
    parts = plan.parts()
    most = max(rows.stop - rows.start for _, rows in parts)
    new_a = W.new_empty(most, len(W))
    new_z = [layer.weight.new_empty(most, len(layer.weight)) for layer in layers]
    for steps, rows in reversed(parts):
        sizes = plan.batch_sizes[steps]
        # The state that each row of input meets.
        before = torch.cat([r[:n] for r, n in zip([h, *hs][steps], sizes, strict=True)])
        if kept:
            zs = [t[rows] for t in kept[:deep]]
            ss = [t[rows] for t in kept[deep:]]
        else:
            zs, ss = _again(x[rows], before, V, layers, [mask[steps] for mask in masks])
        da = new_a[: len(before)]
        dzs = [t[: len(before)] for t in new_z]
        a_steps = da.split(sizes)
        z_steps = [t.split(sizes) for t in dzs]
        groups = [_groups(la, t).split(sizes) for la, t in zip(layers, zs, strict=True)]
        dgroups = [_groups(la, t).split(sizes) for la, t in zip(layers, dzs, strict=True)]
        for k, t in reversed(list(enumerate(range(steps.start, steps.stop)))):
            # Rows behind those of the next step have ended here: they hold their part of grad_last.
            dh_t = dhs[t]
            if grads is not None:
                dh_t += grads[t]
            ds = tanh_backward(dh_t, hs[t], grad_input=a_steps[k]).mm(W)
            for i, layer in from_the_top:
                _drop(ds, masks[i][t])
                _pool_backward(layer, ds, groups[i][k], dgroups[i][k], dp[i])
                if i:
                    ds = z_steps[i][k].mm(layer.weight)
            torch.mm(z_steps[0][k], layers[0].weight, out=dh_t)

        if dx is not None:
            torch.mm(dzs[0], V, out=dx[rows])
        _collect(dV, None, dzs[0], x[rows])
        _collect(dW, db, da, ss[-1])
        for i, below in enumerate([before, *ss[:-1]]):
            _collect(dU[i], dc[i], dzs[i], below)
    return [dx, dh, *found[2:]]


def _collect(by_weight: Tensor | None, by_bias: Tensor | None, dy: Tensor, inputs: Tensor) -> None:
    """Add what a part of the sequence says about weights and bias to their gradients."""
    if by_weight is not None:
        by_weight.addmm_(dy.t(), inputs)
    if by_bias is not None:
        by_bias += dy.sum(0)


def _turned(weight: Tensor, few: bool) -> Tensor:
    """The weights as a right factor; laid out for it, they make a product a third faster."""
    return weight.t() if few else weight.t().contiguous()


def _rows_of(bias: Tensor | None, rows: int, weight: Tensor) -> Tensor:
    """The bias in every row of a new tensor."""
    if bias is None:
        return weight.new_zeros(rows, len(weight))
    return bias.repeat(rows, 1)


def _drop(s: Tensor, mask: Tensor | None) -> None:
    """Dropout, in place."""
    if mask is not None:
        s *= mask


def _groups(layer: Layer, z: Tensor) -> Tensor:
    """``(rows, filters, units)``, and ``(rows, units)`` for elementwise units."""
    return z if layer.kind in ELEMENTWISE else z.view(len(z), layer.filters, -1)


def _pool(layer: Layer, z: Tensor, out: Tensor | None = None) -> Tensor:
    """The units' values, ``(rows, units)``, from their groups of projections."""
    u: Tensor
    if layer.kind == "lp":
        if out is None:
            return ops.lp_pool.default(z, layer.order, None, 1)  # type: ignore[no-any-return]
        u = ops.lp_pool.out(z, layer.order, None, 1, out=out)
    elif layer.kind == "maxout":
        u = torch.amax(z, 1, out=out)
    elif layer.kind == "relu":
        u = torch.threshold(z, 0, 0, out=out)
    else:
        u = getattr(torch, layer.kind)(z, out=out)
    return u


def _pool_backward(layer: Layer, ds: Tensor, z: Tensor, dz: Tensor, dp: Tensor | None) -> None:
    """Writes the gradient in z into ``dz``, and adds the one in the order to ``dp``."""
    if layer.kind == "lp":
        by_order = ops.lp_pool_backward_into_.default(ds, z, layer.order, 1, dp is not None, dz)
        if dp is not None:
            dp += by_order
    elif layer.kind == "maxout":
        largest = z == z.amax(1, keepdim=True)
        torch.mul(largest, (ds / largest.sum(1)).unsqueeze(1), out=dz)
    elif layer.kind == "relu":
        torch.mul(ds, z > 0, out=dz)
    else:
        slope = getattr(torch.ops.aten, f"{layer.kind}_backward").grad_input
        slope(ds, _pool(layer, z), grad_input=dz)


def _again(
    x: Tensor,
    before: Tensor,
    V: Tensor,
    layers: Sequence[Layer],
    masks: Sequence[tuple[Tensor | None, ...]],
) -> tuple[list[Tensor], list[Tensor]]:
    """The projections and the units' values of some steps, from the states that they meet."""
    z: list[Tensor] = []
    s: list[Tensor] = []
    for i, layer in enumerate(layers):
        z.append(linear(s[-1] if i else before, layer.weight, layer.bias))
        if i == 0:
            z[0].addmm_(x, V.t())
        s.append(_pool(layer, _groups(layer, z[i])))
        if layer.mask is not None:
            s[i] *= torch.cat(masks[i])  # type: ignore[arg-type]
    return z, s


def _differentiable(
    plan: _Plan,
    x: Tensor,
    h: Tensor,
    V: Tensor,
    W: Tensor,
    b: Tensor | None,
    *tensors: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The same in operations that every transform of torch can see through."""
    layers, out = plan.layers(tensors), []
    masks = [plan.masks(layer.mask) for layer in layers]
    for t, Vx in enumerate(plan.steps(linear(x, V))):
        s = h[: len(Vx)]
        for i, layer in enumerate(layers):
            z = linear(s, layer.weight, layer.bias)
            s = _pool_differentiable(layer, z if i else z + Vx)
            mask = masks[i][t]
            s = s if mask is None else s * mask
        h = linear(s, W, b).tanh()
        out.append(h)
    states = torch.cat(out)
    return states, plan.last(states)


def _pool_differentiable(layer: Layer, z: Tensor) -> Tensor:
    if layer.order is not None:
        return lp_pool(z.unflatten(1, (layer.filters, -1)), layer.order, dim=1)
    z = z if layer.kind in ELEMENTWISE else z.unflatten(1, (layer.filters, -1))
    return _pool(layer, z)


def _graph(
    plan: _Plan,
    inputs: Sequence[Tensor | None],
    needs: Sequence[bool],
    grads: Sequence[Tensor | None],
) -> Iterator[Tensor | None]:
    """The gradients as a graph of their own."""
    wanted = [t for t, need in zip(inputs, needs, strict=True) if need and t is not None]
    found = zip(_differentiable(plan, *inputs), grads, strict=True)  # type: ignore[arg-type]
    outputs, upstream = zip(*((y, g) for y, g in found if g is not None), strict=True)
    gradients = iter(
        torch.autograd.grad(outputs, wanted, upstream, create_graph=True, allow_unused=True)
    )
    return (next(gradients) if need else None for need in needs)
