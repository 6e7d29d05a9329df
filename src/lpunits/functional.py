r"""The two operations: :func:`lp_pool`, the mean of order p of a group, and :func:`maxout`.

They check their arguments and call an operator of :mod:`lpunits.ops`, eagerly and in compiled and
exported graphs. Where something has to see inside, a ``torch.func`` transform, forward-mode
differentiation, ONNX or a second derivative, the same numbers come from
:func:`lpunits.ops.plain.differentiable`, which is made of ordinary operations of torch.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lpunits.arguments import (
    check_floating,
    check_like_z,
    check_order_shape,
    checked_dim,
    checked_dims,
    checked_order,
    checked_weight,
    inside_a_transform,
    recorded,
)
from lpunits.ops import ops, plain
from lpunits.ops.rules import pool_vjp, save_pool
from lpunits.segments import pool_rows


def lp_pool(
    z: Tensor,
    p: Tensor | float,
    *,
    center: Tensor | None = None,
    dim: int | Sequence[int] = -1,
    keepdim: bool = False,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    r"""The mean of order p of the absolute values of each group: for p >= 1 a normalised Lp norm.

    .. math:: u = \Bigl( \frac{\sum_i w_i |z_i - c_i|^p}{\sum_i w_i} \Bigr)^{1/p}

    It is the mean of absolute values at p = 1, the root mean square at p = 2, the largest absolute
    value at p = inf, the geometric mean at p = 0, the harmonic mean at p = -1, and the smallest
    absolute value at p = -inf. It is exact for every input: no power of z is ever formed, so
    nothing overflows, and a group of zeros gives 0 with gradients of 0. At p = inf equal maxima
    share the gradient, as in :func:`torch.amax`. A group that holds a NaN gives NaN; one that holds
    an infinity gives inf if p >= 0. For p <= 0 a zero in the group gives 0, with gradients of 0.

    >>> import math
    >>> z = torch.tensor([[3.0, -4.0], [0.0, 0.0]])
    >>> lp_pool(z, 1), lp_pool(z, 2), lp_pool(z, math.inf)
    (tensor([3.5000, 0.0000]), tensor([3.5355, 0.0000]), tensor([4., 0.]))
    >>> lp_pool(z, 0), lp_pool(z, -math.inf)
    (tensor([3.4641, 0.0000]), tensor([3., 0.]))

    One order per unit, here for a batch of 7 with 5 filters for each of 3 units:

    >>> p = torch.tensor([1.0, 2.5, math.inf])
    >>> lp_pool(torch.randn(7, 5, 3), p, center=torch.zeros(5, 3), dim=1).shape
    torch.Size([7, 3])

    Sequences of several lengths, which share a tensor. What the mask leaves out counts for nothing,
    NaN and inf included, and gets a gradient of 0; of a sequence with nothing in it, the mean is 0:

    >>> z = torch.tensor([[3.0, 4.0, math.nan], [5.0, math.inf, math.nan]])
    >>> lp_pool(z, 2, mask=torch.arange(3) < torch.tensor([[2], [1]]))
    tensor([3.5355, 5.0000])

    A jagged tensor (``torch.nested``) needs no mask: its ragged dimension is pooled as it is.

    Args:
        z: The values, a tensor of any shape and floating dtype; the result has the same dtype.
        p: The order: a number from -inf to inf, or a tensor that broadcasts to the result (one per
            unit, one per sample).
        center: Subtracted from z before anything else; broadcasts to z.
        dim: The dimension that is pooled away, or several.
        keepdim: Whether the pooled dimensions stay, with size 1.
        mask: Booleans that broadcast to z: which entries count.
        weight: How much each entry counts, not negative; broadcasts to z. An entry of weight 0 is
            left out like one that is masked.
    """
    if isinstance(z, Tensor) and z.is_nested:
        return _pool_jagged(z, p, dim, keepdim, center=center, mask=mask, weight=weight)
    check_floating("z", z)
    dims = checked_dims(z.shape, dim)
    p = checked_order(p, z, dims, keepdim)
    if center is not None:
        check_floating("center", center)
        check_like_z("center", center, z)
    if mask is not None or weight is not None:
        weight = checked_weight(mask, weight, z)
    first = dims[0]
    if len(dims) > 1:
        shape, rank = z.shape, z.ndim
        z = _merged(z, dims)
        p = _merged(p[(None,) * (rank - p.ndim)], dims) if p.ndim else p
        center = None if center is None else _merged(center.expand(shape), dims)
        weight = None if weight is None else _merged(weight.expand(shape), dims)
    if inside_a_transform(z, p, center, weight):
        u = plain.differentiable(z, p, center, first, weight)
    elif torch._C._are_functorch_transforms_active() or recorded():
        u = ops.lp_pool(z, p, center, first, weight)
    else:
        u = _LpPool.apply(z, p, center, first, weight)  # type: ignore[no-untyped-call]
    if keepdim:
        for d in dims:
            u = u.unsqueeze(d)
    return u


def maxout(z: Tensor, dim: int = -1) -> Tensor:
    r"""The largest value of each group: :math:`u = \max_i z_i`; equal maxima share the gradient.

    For non-negative values it is :func:`lp_pool` at p = inf.

    >>> maxout(torch.tensor([[3.0, -4.0], [-2.0, -1.0]]))
    tensor([ 3., -1.])
    """
    check_floating("z", z)
    return z.amax(checked_dims(z.shape, checked_dim(z.shape, dim)))


class _LpPool(torch.autograd.Function):
    """``ops.lp_pool`` with less around it than what torch puts around an operator.

    For a few values that takes a third of the time.
    """

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, p: Tensor, center: Tensor | None, dim: int, weight: Tensor | None
    ) -> Tensor:
        save_pool(ctx, (z, p, center, dim, weight))
        with torch._C._AutoDispatchBelowAutograd():
            return ops.lp_pool.default(z, p, center, dim, weight)  # type: ignore[no-any-return]

    backward = staticmethod(pool_vjp)


def _merged(t: Tensor, dims: Sequence[int]) -> Tensor:
    """The dimensions as one, where the first of them is."""
    first, last = dims[0], dims[0] + len(dims) - 1
    return t.movedim(tuple(dims), tuple(range(first, last + 1))).flatten(first, last)


def _pool_jagged(
    z: Any, p: Tensor | float, dim: int | Sequence[int], keepdim: bool, **others: Tensor | None
) -> Tensor:
    """The ragged dimension of a jagged tensor, or one that is behind it."""
    if z.layout != torch.jagged or z._ragged_idx != 1 or z.lengths() is not None:
        raise TypeError(
            "z must be an ordinary tensor, or a jagged one, ragged along dimension 1 and without "
            f"gaps, got a nested one with layout {z.layout}"
        )
    for name, t in others.items():
        if t is not None:
            raise TypeError(f"{name} must be None where z is nested, got {type(t).__name__}")
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    pooled = tuple(d % z.ndim if -z.ndim <= d < z.ndim else d for d in dims)
    values, offsets = z.values(), z.offsets()
    if pooled == (1,):
        if isinstance(p, Tensor):
            check_order_shape(p, torch.Size((len(offsets) - 1, *values.shape[1:])))
        else:
            p = checked_order(p, values, (), False)
        u = pool_rows(values, p, offsets)
        return u.unsqueeze(1) if keepdim else u
    if any(d < 2 for d in pooled):
        raise ValueError(f"dim must be 1 or dimensions behind it where z is nested, got {dim!r}")
    u = lp_pool(values, p, dim=tuple(d - 1 for d in pooled), keepdim=keepdim)
    return torch.nested.nested_tensor_from_jagged(u, offsets)
