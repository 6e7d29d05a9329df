"""What torch has to know of the operators: shapes of results, derivatives, batching."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lpunits.ops import plain
from lpunits.ops.schemas import library, ops

# ---------------------------------------------------------------- shapes of results


def _maybe(like: Tensor, needed: bool) -> Tensor:
    return (
        torch.empty_like(like, memory_format=torch.contiguous_format)
        if needed
        else like.new_empty(0)
    )


def _shape_of_pool(z: Tensor, p: Tensor, center: Tensor | None, dim: int) -> Tensor:
    return z.new_empty(z.shape[:dim] + z.shape[dim + 1 :])


def _shape_of_pool_backward(
    grad: Tensor, z: Tensor, p: Tensor, center: Tensor | None, dim: int, need_p: bool, need_c: bool
) -> tuple[Tensor, Tensor, Tensor]:
    dcenter = p.new_empty(0) if center is None else _maybe(center, need_c)
    return torch.empty_like(z), _maybe(p, need_p), dcenter


def _shape_of_pool_nd(z: Tensor, p: Tensor, *windows: Any) -> Tensor:
    shape = (*z.shape[:2], *plain.window_counts(z.shape[2:], *windows[:5]))
    return z.new_empty(shape).contiguous(memory_format=plain.memory_format(z))


def _shape_of_pool_nd_backward(
    grad: Tensor, z: Tensor, p: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(z), _maybe(p, rest[-1])


def _shape_of_pool_segments(z: Tensor, p: Tensor, offsets: Tensor) -> Tensor:
    return z.new_empty((offsets.shape[0] - 1, *z.shape[1:]))


def _shape_of_pool_segments_backward(
    grad: Tensor, z: Tensor, p: Tensor, offsets: Tensor, need_p: bool
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(z), _maybe(p, need_p)


def _shape_of_dropout(x: Tensor, rate: float, seed: int) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _shape_of_descend(*_: Any) -> None:
    return None


for _name, _shapes in (
    ("lp_pool", _shape_of_pool),
    ("lp_pool_backward", _shape_of_pool_backward),
    ("lp_pool_nd", _shape_of_pool_nd),
    ("lp_pool_nd_backward", _shape_of_pool_nd_backward),
    ("lp_pool_segments", _shape_of_pool_segments),
    ("lp_pool_segments_backward", _shape_of_pool_segments_backward),
    ("dropout", _shape_of_dropout),
    ("descend_", _shape_of_descend),
):
    torch.library.register_fake(f"lpunits::{_name}", _shapes, lib=library)

# ---------------------------------------------------------------- derivatives


def pool_gradients(
    grad: Tensor,
    z: Tensor,
    p: Tensor,
    center: Tensor | None,
    dim: int,
    needs: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients in z, p and center that are needed, by ``lp_pool_backward``."""
    dz, dp, dcenter = ops.lp_pool_backward.default(grad, z, p, center, dim, needs[1], needs[2])
    return dz if needs[0] else None, dp if needs[1] else None, dcenter if needs[2] else None


def again(
    function: Any, inputs: Sequence[Tensor | None], needs: Sequence[bool], *grads: Tensor
) -> list[Tensor | None]:
    """Gradients that can be differentiated again, of a function of ordinary operations."""
    with torch.enable_grad():
        wanted = [t for t, need in zip(inputs, needs, strict=True) if need]
        found = iter(torch.autograd.grad(function(*inputs), wanted, grads, create_graph=True))  # type: ignore[arg-type]
    return [next(found) if need else None for need in needs]


def _save_pool(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.dim = inputs
    ctx.save_for_backward(*tensors)


def _pool_vjp(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    z, p, center = ctx.saved_tensors
    needs = ctx.needs_input_grad[:3]
    if torch.is_grad_enabled():  # create_graph=True

        def function(z: Tensor, p: Tensor, center: Tensor | None) -> Tensor:
            return plain.differentiable(z, p, center, ctx.dim)

        return *again(function, (z, p, center), needs, grad), None
    return *pool_gradients(grad.contiguous(), z, p, center, ctx.dim, needs), None


def _save_nd(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    z, p, *ctx.windows = inputs
    ctx.save_for_backward(z, p)


def _nd_vjp(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    z, p = ctx.saved_tensors
    needs, rest = ctx.needs_input_grad[:2], (None,) * len(ctx.windows)
    if torch.is_grad_enabled():
        return *again(lambda z, p: plain.pool_nd(z, p, *ctx.windows), (z, p), needs, grad), *rest
    dz, dp = ops.lp_pool_nd_backward(grad, z, p, *ctx.windows, needs[1])
    return dz if needs[0] else None, dp if needs[1] else None, *rest


def _save_segments(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _segments_vjp(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    z, p, offsets = ctx.saved_tensors
    needs = ctx.needs_input_grad[:2]
    if torch.is_grad_enabled():
        return *again(lambda z, p: plain.pool_segments(z, p, offsets), (z, p), needs, grad), None
    dz, dp = ops.lp_pool_segments_backward(grad.contiguous(), z, p, offsets, needs[1])
    return dz if needs[0] else None, dp if needs[1] else None, None


for _name, _vjp, _save in (
    ("lp_pool", _pool_vjp, _save_pool),
    ("lp_pool_nd", _nd_vjp, _save_nd),
    ("lp_pool_segments", _segments_vjp, _save_segments),
):
    torch.library.register_autograd(f"lpunits::{_name}", _vjp, setup_context=_save, lib=library)

# ---------------------------------------------------------------- batching by torch.vmap


Dims = Sequence[int | None]  # where each argument has its batch


def _front(t: Tensor, dim: int | None, info: Any, rank: int) -> Tensor:
    """The batch as the first dimension, in front of the ``rank`` that t is broadcast to."""
    t = t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
    return t.reshape(len(t), *[1] * (rank + 1 - t.ndim), *t.shape[1:])


def _shape(t: Tensor, dim: int | None) -> torch.Size:
    """The shape of one of the batch."""
    return t.shape if dim is None else t.select(dim, 0).shape


def _batched_gradient(needed: bool, gradient: Tensor, shape: torch.Size) -> tuple[Tensor, Any]:
    return (gradient.reshape(-1, *shape), 0) if needed else (gradient, None)


def _pool_batched(
    info: Any, dims: Dims, z: Tensor, p: Tensor, center: Tensor | None, dim: int
) -> tuple[Tensor, int]:
    rank = len(_shape(z, dims[0]))
    z, p = _front(z, dims[0], info, rank), _front(p, dims[1], info, rank)
    center = None if center is None else _front(center, dims[2], info, rank)
    return ops.lp_pool(z, p, center, dim + 1), 0


def _pool_backward_batched(
    info: Any,
    dims: Dims,
    grad: Tensor,
    z: Tensor,
    p: Tensor,
    center: Tensor | None,
    dim: int,
    need_p: bool,
    need_center: bool,
) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
    rank, p_shape = len(_shape(z, dims[1])), _shape(p, dims[2])
    center_shape = torch.Size() if center is None else _shape(center, dims[3])
    grad = _front(grad, dims[0], info, rank - 1)
    z, p = _front(z, dims[1], info, rank), _front(p, dims[2], info, rank)
    center = None if center is None else _front(center, dims[3], info, rank)
    dz, dp, dcenter = ops.lp_pool_backward(grad, z, p, center, dim + 1, need_p, need_center)
    found = (
        (dz, 0),
        _batched_gradient(need_p, dp, p_shape),
        _batched_gradient(need_center, dcenter, center_shape),
    )
    return tuple(t for t, _ in found), tuple(d for _, d in found)


def _into_channels(t: Tensor, dim: int | None, info: Any) -> Tensor:
    """The batch beside the channels, so that each of them has orders of its own."""
    return _front(t, dim, info, 0).movedim(0, 1).flatten(1, 2)


def _orders_of_channels(p: Tensor, dim: int | None, info: Any) -> Tensor:
    return _front(p, dim, info, 1).flatten()


def _nd_batched(info: Any, dims: Dims, z: Tensor, p: Tensor, *windows: Any) -> tuple[Tensor, int]:
    orders = _orders_of_channels(p, dims[1], info)
    u = ops.lp_pool_nd(_into_channels(z, dims[0], info), orders, *windows)
    return u.unflatten(1, (info.batch_size, -1)), 1


def _nd_backward_batched(
    info: Any, dims: Dims, grad: Tensor, z: Tensor, p: Tensor, *rest: Any
) -> tuple[tuple[Tensor, Tensor], tuple[int, int | None]]:
    grad, z = _into_channels(grad, dims[0], info), _into_channels(z, dims[1], info)
    dz, dp = ops.lp_pool_nd_backward(grad, z, _orders_of_channels(p, dims[2], info), *rest)
    dp, at = _batched_gradient(rest[-1], dp, _shape(p, dims[2]))
    return (dz.unflatten(1, (info.batch_size, -1)), dp), (1, at)


def _behind_rows(t: Tensor, dim: int | None, info: Any, rank: int) -> Tensor:
    """The batch as the second dimension, behind that of rows or segments."""
    return _front(t, dim, info, rank).movedim(0, 1)


def _check_offsets(dim: int | None) -> None:
    if dim is not None:
        raise NotImplementedError("vmap cannot batch offsets: they must be the same for all")


def _segments_batched(
    info: Any, dims: Dims, z: Tensor, p: Tensor, offsets: Tensor
) -> tuple[Tensor, int]:
    _check_offsets(dims[2])
    rank = len(_shape(z, dims[0]))
    z, p = _behind_rows(z, dims[0], info, rank), _behind_rows(p, dims[1], info, rank)
    return ops.lp_pool_segments(z, p, offsets), 1


def _segments_backward_batched(
    info: Any, dims: Dims, grad: Tensor, z: Tensor, p: Tensor, offsets: Tensor, need_p: bool
) -> tuple[tuple[Tensor, Tensor], tuple[int, int | None]]:
    _check_offsets(dims[3])
    rank, p_shape = len(_shape(z, dims[1])), _shape(p, dims[2])
    grad, z, p = (_behind_rows(t, d, info, rank) for t, d in zip((grad, z, p), dims, strict=False))
    dz, dp = ops.lp_pool_segments_backward(grad, z, p, offsets, need_p)
    dp, at = _batched_gradient(need_p, dp.movedim(1, 0) if need_p else dp, p_shape)
    return (dz, dp), (1, at)


for _name, _rule in (
    ("lp_pool", _pool_batched),
    ("lp_pool_backward", _pool_backward_batched),
    ("lp_pool_nd", _nd_batched),
    ("lp_pool_nd_backward", _nd_backward_batched),
    ("lp_pool_segments", _segments_batched),
    ("lp_pool_segments_backward", _segments_backward_batched),
):
    torch.library.register_vmap(f"lpunits::{_name}", _rule, lib=library)

# ---------------------------------------------------------------- decompositions

#: What the operators of an exported program are made of, for ``program.run_decompositions``.
#: torch's global table would be the wrong place: Inductor and fake tensors read it too.
decompositions = {
    ops.lp_pool.default: plain.differentiable,
    ops.lp_pool_nd.default: plain.pool_nd,
}
