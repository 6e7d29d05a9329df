"""How ``torch.vmap`` batches the operators: as one call of the same operator."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lpunits.ops.schemas import library, ops

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


def _maybe_front(t: Tensor | None, dim: int | None, info: Any, rank: int) -> Tensor | None:
    return None if t is None else _front(t, dim, info, rank)


def _pool_batched(
    info: Any, dims: Dims, z: Tensor, p: Tensor, center: Tensor | None, dim: int, *weight: Any
) -> tuple[Tensor, int]:
    rank = len(_shape(z, dims[0]))
    z, p = _front(z, dims[0], info, rank), _front(p, dims[1], info, rank)
    center = _maybe_front(center, dims[2], info, rank)
    weights = (_maybe_front(w, d, info, rank) for w, d in zip(weight, dims[4:], strict=True))
    return ops.lp_pool(z, p, center, dim + 1, *weights), 0


def _pool_backward_batched(
    info: Any, dims: Dims, grad: Tensor, z: Tensor, p: Tensor, center: Tensor | None, *rest: Any
) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
    dim, need_p, need_center, weight, need_weight, *_ = *rest, None, False  # or their defaults
    rank, p_shape = len(_shape(z, dims[1])), _shape(p, dims[2])
    center_shape = torch.Size() if center is None else _shape(center, dims[3])
    grad = _front(grad, dims[0], info, rank - 1)
    z, p = _front(z, dims[1], info, rank), _front(p, dims[2], info, rank)
    center = _maybe_front(center, dims[3], info, rank)
    if weight is not None:
        weight = _front(weight, dims[7], info, rank)
    dz, dp, dcenter, by_weight = ops.lp_pool_backward(
        grad, z, p, center, dim + 1, need_p, need_center, weight, bool(need_weight)
    )
    found = (
        (dz, 0),
        _batched_gradient(need_p, dp, p_shape),
        _batched_gradient(need_center, dcenter, center_shape),
        (by_weight, 0 if by_weight.numel() else None),
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


def _check_groups(*dims: int | None) -> None:
    if any(dim is not None for dim in dims):
        raise NotImplementedError("vmap cannot batch offsets: they must be the same for all")


def _group_rows_batched(info: Any, dims: Dims, index: Tensor, num_segments: int) -> Any:
    raise NotImplementedError("vmap cannot batch an index: it must be the same for all")


def _segments_batched(
    info: Any, dims: Dims, z: Tensor, p: Tensor, offsets: Tensor, *rest: Any
) -> tuple[Tensor, int]:
    rows_at, weight, *_ = *rest, None, None  # or their defaults
    _check_groups(*dims[2:4])
    rank = len(_shape(z, dims[0]))
    z, p = _behind_rows(z, dims[0], info, rank), _behind_rows(p, dims[1], info, rank)
    if weight is not None:
        weight = _behind_rows(weight, dims[4], info, rank)
    return ops.lp_pool_segments(z, p, offsets, rows_at, weight), 1


def _segments_backward_batched(
    info: Any, dims: Dims, grad: Tensor, z: Tensor, p: Tensor, offsets: Tensor, *rest: Any
) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
    need_p, rows_at, weight, need_weight, *_ = *rest, None, None, False  # or their defaults
    _check_groups(dims[3], *dims[5:6])
    rank, p_shape = len(_shape(z, dims[1])), _shape(p, dims[2])
    grad, z, p = (_behind_rows(t, d, info, rank) for t, d in zip((grad, z, p), dims, strict=False))
    if weight is not None:
        weight = _behind_rows(weight, dims[6], info, rank)
    dz, dp, by_weight = ops.lp_pool_segments_backward(
        grad, z, p, offsets, need_p, rows_at, weight, bool(need_weight)
    )
    dp, at = _batched_gradient(need_p, dp.movedim(1, 0) if need_p else dp, p_shape)
    return (dz, dp, by_weight), (1, at, 1 if by_weight.numel() else None)


for _name, _rule in (
    ("lp_pool", _pool_batched),
    ("lp_pool_backward", _pool_backward_batched),
    ("lp_pool_nd", _nd_batched),
    ("lp_pool_nd_backward", _nd_backward_batched),
    ("group_rows", _group_rows_batched),
    ("lp_pool_segments", _segments_batched),
    ("lp_pool_segments_backward", _segments_backward_batched),
):
    torch.library.register_vmap(f"lpunits::{_name}", _rule, lib=library)
