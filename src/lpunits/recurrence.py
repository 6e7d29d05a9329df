r"""A deep transition over a whole sequence, as one differentiable operation.

.. math:: h_t = \tanh(W s_t + b), \quad s_t = f(U h_{t-1} + V x_t + c)

Automatic differentiation of a loop spends most of its time on bookkeeping. Here everything that
does not depend on the previous state is one product over all steps, before the loop forward (the
input) or behind the loop backward (the weights); inside there are the two recurrent products and
the units.

The rows of a sequence lie in the order of a :class:`~torch.nn.utils.rnn.PackedSequence`: first the
first step of every sequence, then the second of those that have one, the longest sequences first.
So step t works on the first ``batch_sizes[t]`` rows of the state, and there is no padding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from lpunits.functional import inside_a_transform, lp_pool
from lpunits.kernels import kernel_for, plain

ELEMENTWISE = ("relu", "sigmoid", "tanh")
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
    projections again, in one product over all steps.
    """
    plan = _Plan(tuple(batch_sizes), tuple((la.kind, la.filters) for la in layers), recompute)
    tensors = [t for layer in layers for t in layer.tensors]
    if inside_a_transform(x, h, V, W, b, *tensors):
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

    def before(self, h: Tensor, states: Tensor) -> Tensor:
        """The state that each row of input meets, from the initial ones and those after it."""
        steps = [h, *self.steps(states)]
        return torch.cat([rows[:n] for rows, n in zip(steps, self.batch_sizes, strict=False)])

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
        kernel, even = kernel_for(z[0]), plan.even
        for t, h_t in enumerate(plan.steps(out)):
            s_t = h if even else h[: len(h_t)]
            for i, layer in enumerate(layers):
                zs[i][t].addmm_(s_t, Us[i])
                s_t = _pool(kernel, layer, groups[i][t], out=ss[i][t])
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
        x, h, V, W, _, *tensors = inputs
        layers, before = plan.layers(tensors), plan.before(h, out)
        if not kept:
            kept = _again(plan, x, before, V, layers)
        z, s = kept[:deep], kept[deep:]

        da = torch.empty_like(out)
        dz = [torch.empty_like(t) for t in z]
        needs = ctx.needs_input_grad[1:]
        dp = [
            torch.zeros_like(layer.order) if layer.order is not None and needs[7 + 4 * i] else None
            for i, layer in enumerate(layers)
        ]
        dh = torch.zeros_like(h) if grad_last is None else grad_last.clone()
        grads = grad if grad is None else plan.steps(grad)
        masks = [plan.masks(layer.mask) for layer in layers]
        hs, das = plan.steps(out), plan.steps(da)
        dzs = list(map(plan.steps, dz))
        groups = [plan.steps(_groups(la, t)) for la, t in zip(layers, z, strict=True)]
        dgroups = [plan.steps(_groups(la, t)) for la, t in zip(layers, dz, strict=True)]
        kernel = kernel_for(z[0])
        dhs = [dh] * len(hs) if plan.even else [dh[:n] for n in plan.batch_sizes]
        tanh_backward = torch.ops.aten.tanh_backward.grad_input
        from_the_top = list(enumerate(layers))[::-1]
        for t in reversed(range(len(hs))):
            # Rows behind those of the next step have ended here: they hold their part of grad_last.
            dh_t = dhs[t]
            if grads is not None:
                dh_t += grads[t]
            ds = tanh_backward(dh_t, hs[t], grad_input=das[t]).mm(W)
            for i, layer in from_the_top:
                _drop(ds, masks[i][t])
                _pool_backward(kernel, layer, ds, groups[i][t], dgroups[i][t], dp[i])
                if i:
                    ds = dzs[i][t].mm(layer.weight)
            torch.mm(dzs[0][t], layers[0].weight, out=dh_t)

        def weights(needed: bool, dy: Tensor, inputs: Tensor) -> Tensor | None:
            return dy.t().mm(inputs) if needed else None

        found = [
            dz[0].mm(V) if needs[0] else None,
            dh,
            weights(needs[2], dz[0], x),
            weights(needs[3], da, s[-1]),
            da.sum(0) if needs[4] else None,
        ]
        for i, below in enumerate([before, *s[:-1]]):
            need_weight, need_bias = needs[5 + 4 * i : 7 + 4 * i]
            found.append(weights(need_weight, dz[i], below))
            found.append(dz[i].sum(0) if need_bias else None)
            found += [dp[i], None]
        return None, *found


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


def _pool(kernel: ModuleType, layer: Layer, z: Tensor, out: Tensor | None = None) -> Tensor:
    """The units' values, ``(rows, units)``, from their groups of projections."""
    u: Tensor
    if layer.kind == "lp":
        u = kernel.forward(z, layer.order, None, 1, out)
    elif layer.kind == "maxout":
        u = torch.amax(z, 1, out=out)
    elif layer.kind == "relu":
        u = torch.threshold(z, 0, 0, out=out)
    else:
        u = getattr(torch, layer.kind)(z, out=out)
    return u


def _pool_backward(
    kernel: ModuleType, layer: Layer, ds: Tensor, z: Tensor, dz: Tensor, dp: Tensor | None
) -> None:
    """Writes the gradient in z into ``dz``, and adds the one in the order to ``dp``."""
    if layer.kind == "lp":
        needs = (True, dp is not None, False)
        _, by_order, _ = kernel.backward(ds, z, layer.order, None, 1, needs, dz)
        if dp is not None:
            dp += by_order
    elif layer.kind == "maxout":
        largest = z == z.amax(1, keepdim=True)
        torch.mul(largest, (ds / largest.sum(1)).unsqueeze(1), out=dz)
    elif layer.kind == "relu":
        torch.mul(ds, z > 0, out=dz)
    else:
        slope = getattr(torch.ops.aten, f"{layer.kind}_backward").grad_input
        slope(ds, _pool(kernel, layer, z), grad_input=dz)


def _again(
    plan: _Plan, x: Tensor, before: Tensor, V: Tensor, layers: Sequence[Layer]
) -> list[Tensor]:
    """The projections and the units' values of all steps, from the states."""
    z: list[Tensor] = []
    s: list[Tensor] = []
    for i, layer in enumerate(layers):
        below = s[-1] if i else before
        z.append(linear(below, layer.weight, layer.bias))
        if i == 0:
            z[0].addmm_(x, V.t())
        s.append(_pool(kernel_for(z[i]), layer, _groups(layer, z[i])))
        if layer.mask is not None:
            masks = plan.masks(layer.mask)
            s[i] *= layer.mask if len(layer.mask) == len(x) else torch.cat(masks)  # type: ignore[arg-type]
    return [*z, *s]


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
    return _pool(plain, layer, z)


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
