"""torch's GRU as one operation over a packed sequence.

Hand-written because the baseline of Table 4 would otherwise train 1.4 to 1.9 times as long
(``nn.GRU``; JSB Chorales, Nottingham, MuseData; one thread).

As in :mod:`lpunits.recurrence`, everything that does not depend on the previous state is one
product over all steps. The derivatives of the gates depend on the states alone, which are known in
the backward pass. So its loop holds one elementwise and one matrix product, and the gradient of the
weights, which torch adds up step by step, is one product after it.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear
from torch.nn.utils.rnn import PackedSequence


class GRU(nn.GRU):
    """A :class:`torch.nn.GRU` of one layer: the same weights, the same values.

    >>> gru = GRU(3, 5)
    >>> states, last = gru(nn.utils.rnn.pack_sequence([torch.randn(4, 3), torch.randn(2, 3)]))
    >>> states.data.shape, last.shape
    (torch.Size([6, 5]), torch.Size([1, 2, 5]))
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """The states of all steps, and the last one of each sequence."""
        if not isinstance(input, PackedSequence) or input.sorted_indices is not None:
            return super().forward(input, hx)
        sizes: list[int] = input.batch_sizes.tolist()
        h = input.data.new_zeros(sizes[0], self.hidden_size) if hx is None else hx[0]
        weights = self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0
        states: Tensor = _Gated.apply(sizes, input.data, h, *weights)  # type: ignore[no-untyped-call]
        steps, ended = states.split(sizes), [*sizes[1:], 0]
        last = torch.cat([s[n:] for s, n in reversed(list(zip(steps, ended, strict=True)))])
        return input._replace(data=states), last.unsqueeze(0)


class _Gated(torch.autograd.Function):
    """With the gates r, z and n: ``h' = (1 - z) n + z h``, ``n = tanh(W x + b + r (U h + c))``."""

    @staticmethod
    def forward(
        ctx: Any, sizes: list[int], x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor, c: Tensor
    ) -> Tensor:
        hidden = U.shape[1]
        gates = linear(x, W, b)  # the state's part joins inside the loop
        recurrent, states = torch.empty_like(gates), x.new_empty(len(x), hidden)
        before, Ut = torch.empty_like(states), U.t().contiguous()
        for g, q, old, new in zip(
            *(t.split(sizes) for t in (gates, recurrent, before, states)), strict=True
        ):
            old.copy_(h[: len(old)])
            torch.addmm(c, old, Ut, out=q)
            rz, n = g.split([2 * hidden, hidden], 1)
            r, z = rz.add_(q[:, : 2 * hidden]).sigmoid_().chunk(2, 1)
            n.addcmul_(r, q[:, 2 * hidden :]).tanh_()
            h = torch.lerp(n, old, z, out=new)
        ctx.sizes = sizes
        ctx.save_for_backward(x, W, U, gates, recurrent[:, 2 * hidden :], before)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, W, U, gates, q, before = ctx.saved_tensors
        r, z, n = gates.chunk(3, 1)
        # The derivatives of a state with respect to r, z, and the U h + c inside n.
        by_n = (1 - z) * (1 - n * n)
        by_state = torch.stack([by_n * q * r * (1 - r), (before - n) * z * (1 - z), by_n * r], 1)
        dgates, dstates = torch.empty_like(by_state), torch.empty_like(before)
        dh = torch.zeros_like(before[: ctx.sizes[0]])
        steps = [t.split(ctx.sizes) for t in (grad, dstates, z, by_state, dgates)]
        for g, d, z_t, slope, dgate in reversed(list(zip(*steps, strict=True))):
            torch.add(dh[: len(g)], g, out=d)
            torch.mul(slope, d.unsqueeze(1), out=dgate)
            dh[: len(g)] = torch.addmm(d * z_t, dgate.flatten(1), U)
        dq = dgates.flatten(1)
        dU, dc = dq.t() @ before, dq.sum(0)
        torch.mul(by_n, dstates, out=dgates[:, 2])  # W x + b, unlike U h + c, is not gated by r
        dx = dq @ W if ctx.needs_input_grad[1] else None
        return None, dx, dh, dq.t() @ x, dU, dq.sum(0), dc
