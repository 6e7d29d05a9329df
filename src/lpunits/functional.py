r"""The two operations: :func:`lp_pool`, the normalised Lp norm of a group, and :func:`maxout`.

They check their arguments and call an operator of :mod:`lpunits.ops`, eagerly and in compiled and
exported graphs. Where something has to see inside, a ``torch.func`` transform, forward-mode
differentiation, ONNX or a second derivative, the same numbers come from
:func:`lpunits.ops.plain.differentiable`, which is made of ordinary operations of torch.
"""

from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from lpunits.ops import ops, plain
from lpunits.ops.rules import again, pool_gradients


def lp_pool(z: Tensor, p: Tensor | float, *, center: Tensor | None = None, dim: int = -1) -> Tensor:
    r"""The normalised Lp norm of the groups of values along one dimension.

    .. math:: u = \Bigl( \frac{1}{N} \sum_{i=1}^{N} |z_i - c_i|^p \Bigr)^{1/p}

    It is the mean of absolute values at p = 1, the root mean square at p = 2, and the largest
    absolute value at p = inf. It is exact for every input: no power of z is ever formed, so nothing
    overflows, and a group of zeros gives 0 with gradients of 0. At p = inf equal maxima share the
    gradient, as in :func:`torch.amax`. A group that holds a NaN gives NaN, one that holds an
    infinity gives inf.

    >>> import math
    >>> z = torch.tensor([[3.0, -4.0], [0.0, 0.0]])
    >>> lp_pool(z, 1), lp_pool(z, 2), lp_pool(z, math.inf)
    (tensor([3.5000, 0.0000]), tensor([3.5355, 0.0000]), tensor([4., 0.]))

    One order per unit, here for a batch of 7 with 5 filters for each of 3 units:

    >>> p = torch.tensor([1.0, 2.5, math.inf])
    >>> lp_pool(torch.randn(7, 5, 3), p, center=torch.zeros(5, 3), dim=1).shape
    torch.Size([7, 3])

    Args:
        z: The values, a tensor of any shape and floating dtype; the result has the same dtype.
        p: The order: a number from 1 to inf, or a tensor that broadcasts to the result (one per
            unit, one per sample). The entries of a tensor are taken as they are.
        center: Subtracted from z before anything else; broadcasts to z.
        dim: The dimension that is pooled away.
    """
    check_floating("z", z)
    dim = _checked_dim(z.shape, dim)
    p = _checked_order(p, z, dim)
    if center is not None:
        check_floating("center", center)
        _check_center(center.shape, z.shape)
        _check_device("center", center, z)
    if inside_a_transform(z, p, center):
        return plain.differentiable(z, p, center, dim)
    if torch._C._are_functorch_transforms_active() or recorded():
        return ops.lp_pool(z, p, center, dim)  # type: ignore[no-any-return]
    return _LpPool.apply(z, p, center, dim)  # type: ignore[no-any-return, no-untyped-call]


def maxout(z: Tensor, dim: int = -1) -> Tensor:
    r"""The largest value of each group: :math:`u = \max_i z_i`; equal maxima share the gradient.

    For non-negative values it is :func:`lp_pool` at p = inf.

    >>> maxout(torch.tensor([[3.0, -4.0], [-2.0, -1.0]]))
    tensor([ 3., -1.])
    """
    check_floating("z", z)
    return z.amax(_checked_dim(z.shape, dim))


class _LpPool(torch.autograd.Function):
    """``ops.lp_pool`` with less around it than what torch puts around an operator.

    For a few values that takes a third of the time. It saves its inputs and nothing else.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, p: Tensor, center: Tensor | None, dim: int) -> Tensor:
        ctx.save_for_backward(z, p, center)
        ctx.dim = dim
        with torch._C._AutoDispatchBelowAutograd():
            return ops.lp_pool.default(z, p, center, dim)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, p, center = ctx.saved_tensors
        needs = ctx.needs_input_grad[:3]
        if not torch.is_grad_enabled():
            if center is not None and needs[2] and center.shape == z.shape:
                # There is nothing to add up, so that the operator need not make sums.
                dz, dp, _ = pool_gradients(grad, z, p, center, ctx.dim, (True, needs[1], False))
                assert dz is not None
                return dz, dp, -dz.to(center.dtype), None
            return *pool_gradients(grad, z, p, center, ctx.dim, needs), None
        # The caller wants to differentiate the gradient again (create_graph=True).
        dim = ctx.dim
        function = lambda z, p, center: plain.differentiable(z, p, center, dim)  # noqa: E731
        return *again(function, (z, p, center), needs, grad), None


def lp_pool_windows(
    z: Tensor,
    p: Tensor,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
) -> Tensor:
    """:func:`lp_pool` of windows that slide over the last dimensions of z, an order per channel.

    z is ``(batch, channels, ...)``, with zeros around it that count.
    """
    _check_device("order", p, z)
    if torch._C._get_tracing_state() and torch.onnx.is_in_onnx_export():
        raise NotImplementedError(
            "torch.onnx.export(dynamo=False) has no windows of every size: use dynamo=True"
        )
    windows = (size, stride, padding, (1,) * len(size), False, True)
    if inside_a_transform(z, p):
        return plain.pool_nd(z, p, *windows)
    return ops.lp_pool_nd(z, p, *windows)  # type: ignore[no-any-return]


def inside_a_transform(*tensors: Tensor | None) -> bool:
    """Whether someone has to see what an operator is made of."""
    if torch._C._are_functorch_transforms_active() and not _batching():
        return True
    if recorded():
        return torch.onnx.is_in_onnx_export()
    return forward_ad._current_level >= 0 and any(
        t is not None and forward_ad.unpack_dual(t).tangent is not None for t in tensors
    )


def recorded() -> bool:
    """Whether a graph is being made of what is called."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


def _batching() -> bool:
    """Whether vmap is the only transform: there is a rule for it."""
    levels = torch._C._functorch.get_interpreter_stack()
    return levels is not None and all(
        level.key() == torch._C._functorch.TransformType.Vmap for level in levels
    )


def check_floating(name: str, value: object) -> None:
    """Raise TypeError unless the argument ``name`` is a floating-point tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a floating-point tensor, got {type(value).__name__}")
    if value.is_nested:
        raise TypeError(f"{name} must be an ordinary tensor, got a nested one: pool its parts")
    if not value.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got dtype {value.dtype}")


def _checked_dim(shape: torch.Size, dim: int) -> int:
    """``dim`` counted from the front."""
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise TypeError(f"dim must be an integer, got {dim!r}")
    if not -len(shape) <= dim < len(shape):
        raise ValueError(
            f"dim must be one of the {len(shape)} dimensions of z, which has the shape "
            f"{tuple(shape)}, got {dim}"
        )
    dim %= len(shape)
    if shape[dim] == 0:
        raise ValueError(f"z must hold at least one value along dim {dim}, got {tuple(shape)}")
    return dim


def _checked_order(p: Tensor | float, z: Tensor, dim: int) -> Tensor:
    """``p`` as a tensor that broadcasts against z, with size 1 along ``dim``."""
    if not isinstance(p, Tensor):
        if isinstance(p, bool) or not isinstance(p, Real):
            raise TypeError(f"p must be a number or a floating-point tensor, got {p!r}")
        if not p >= 1:
            raise ValueError(f"p must be a number from 1 to inf, got {p}")
        dtype = torch.float64 if z.dtype == torch.float64 else torch.float32
        return torch.full((), float(p), dtype=dtype, device=z.device)
    check_floating("p", p)
    _check_device("p", p, z)
    missing = _missing_dim(p.shape, z.shape, dim)
    return p if missing is None else p.unsqueeze(missing)


def _missing_dim(p_shape: torch.Size, z_shape: torch.Size, dim: int) -> int | None:
    """Where p needs one more dimension to broadcast against z, if anywhere."""
    out = z_shape[:dim] + z_shape[dim + 1 :]
    if not _broadcasts(p_shape, out):
        raise ValueError(
            f"p must broadcast to the shape {tuple(out)} of the result, "
            f"got the shape {tuple(p_shape)}"
        )
    behind = len(out) - dim  # dimensions of the result behind the pooled one
    return len(p_shape) - behind if len(p_shape) > behind else None


def _check_device(name: str, t: Tensor, z: Tensor) -> None:
    if t.device != z.device:
        raise ValueError(f"{name} must be on the device of z, {z.device}, got {t.device}")


def _check_center(shape: torch.Size, z_shape: torch.Size) -> None:
    if not _broadcasts(shape, z_shape):
        raise ValueError(
            f"center must broadcast to the shape {tuple(z_shape)} of z, "
            f"got the shape {tuple(shape)}"
        )


def _broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    """Whether ``shape`` can be expanded to ``target`` without enlarging it."""
    if shape == target[len(target) - len(shape) :]:  # nearly always
        return True
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(size in (1, goal) for size, goal in pairs)
