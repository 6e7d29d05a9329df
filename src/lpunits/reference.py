"""The equations of the paper in plain torch, with automatic gradients.

The tests compare every implementation with these functions wherever plain arithmetic is accurate
enough. Do not train with them: a group of zeros has NaN gradients, and ``|z|^p`` overflows.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear, softplus


def order(rho: Tensor) -> Tensor:
    """``p = 1 + log(1 + e^rho)``: every order is above 1, where the triangle inequality holds."""
    return 1 + softplus(rho, threshold=40)


def lp_pool(z: Tensor, p: Tensor | float, *, center: Tensor | None = None, dim: int = -1) -> Tensor:
    """``(1/N sum_i |z_i - c_i|^p)^(1/p)`` over ``dim`` (the paper's Eq. 3).

    >>> lp_pool(torch.tensor([3.0, 4.0]), 2.0)
    tensor(3.5355)
    """
    a = (z if center is None else z - center).abs()
    out = a.select(dim, 0)
    p = torch.as_tensor(p, dtype=None if isinstance(p, Tensor) else z.dtype).expand(out.shape)
    finite = torch.where(p.isinf(), 1, p)
    powers = a.pow(finite.unsqueeze(dim % a.ndim))
    return torch.where(p.isinf(), a.amax(dim), powers.mean(dim).pow(1 / finite))


def lp_linear(x: Tensor, weight: Tensor, center: Tensor, rho: Tensor) -> Tensor:
    """A layer of Lp units: the norm of ``a_i = w_i . x``, of each unit's own order.

    ``weight`` is ``(filters, units, in_features)``, ``center`` is ``(filters, units)``.
    """
    filters, units, _ = weight.shape
    a = linear(x, weight.flatten(0, 1)).reshape(*x.shape[:-1], filters, units)
    return lp_pool(a, order(rho), center=center, dim=-2)


def maxout(z: Tensor, dim: int = -1) -> Tensor:
    """``max_i z_i`` over ``dim``: the unit that the Lp unit generalises."""
    return z.amax(dim)


def dtrnn(
    x: Tensor,
    h: Tensor,
    V: Tensor,
    layers: Sequence[Callable[[Tensor], Tensor]],
    U: Tensor,
    W: Tensor,
    b: Tensor,
    S: Tensor | None = None,
) -> Tensor:
    """``h_t = tanh(W f(U h_{t-1} + V x_t) + S h_{t-1} + b)`` for each step of x.

    x is ``(steps, batch, inputs)``; f applies ``layers`` one after the other; S is 0 if not given.
    """
    states = []
    for x_t in x:
        s = linear(h, U) + linear(x_t, V)
        for layer in layers:
            s = layer(s)
        h = torch.tanh(linear(s, W, b) + (0 if S is None else linear(h, S)))
        states.append(h)
    return torch.stack(states)
