"""Windows and segments in plain torch: laid out as groups, for :mod:`lpunits.ops.plain`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from lpunits.ops.plain import Segments, differentiable, mean_of, wide_dtype


def window_counts(
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> list[int]:
    """How many windows there are along each dimension, as in torch's own pooling."""
    counts = []
    for n, k, s, w, d in zip(size, kernel, stride, padding, dilation, strict=True):
        count = (n + 2 * w - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
        if ceil_mode and (count - 1) * s >= n + w:  # a window that would begin beyond the padding
            count -= 1
        counts.append(count)
    return counts


def pool_nd(
    z: Tensor,
    p: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
) -> Tensor:
    """Windows that slide over the last dimensions of z, ``(batch, channels, ...)``, laid out."""
    space, format_ = z.shape[2:], memory_format(z)
    counts = window_counts(space, kernel, stride, padding, dilation, ceil_mode)
    widths, counted = [], torch.ones(1, dtype=torch.bool, device=z.device)
    for n, c, k, s, w, d in zip(space, counts, kernel, stride, padding, dilation, strict=True):
        widths.append((w, max((c - 1) * s + d * (k - 1) + 1 - n - w, 0)))
        at = torch.arange(c, device=z.device)[:, None] * s - w
        at = at + torch.arange(k, device=z.device) * d
        inside = at < n + w if count_include_pad else (at >= 0) & (at < n)
        counted = (counted[..., None, :, None] & inside[:, None, :]).flatten(-2)
    z = pad(z, [width for pair in reversed(widths) for width in pair], value=0.0)
    for dim, (c, k, s, d) in enumerate(zip(counts, kernel, stride, dilation, strict=True), start=2):
        z = z.unfold(dim, d * (k - 1) + 1, s).narrow(dim, 0, c)[..., ::d]
    groups = z.flatten(z.ndim - len(space))
    orders = p.reshape(-1, *[1] * (len(space) + 1))
    all_count = not ceil_mode and (count_include_pad or not any(padding))
    u = differentiable(groups, orders, None, groups.ndim - 1, None if all_count else counted)
    return u.contiguous(memory_format=format_)


def pool_segments(
    z: Tensor,
    p: Tensor,
    offsets: Tensor,
    rows_at: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """The rows from ``offsets[g]`` to ``offsets[g + 1]`` of z as group g; an empty one gives 0."""
    sizes = offsets.diff()
    group = torch.repeat_interleave(sizes, output_size=len(z))
    if rows_at is not None:
        group = torch.empty_like(group).index_copy(0, rows_at, group)
    p = p.expand(len(sizes), *z.shape[1:])
    return mean_of(z.to(wide_dtype(z)), p, weight, Segments(group, len(sizes))).to(z.dtype)


def group_rows(index: Tensor, num_segments: int) -> tuple[Tensor, Tensor]:
    """The offsets of each segment, and the rows that belong to it."""
    sizes = torch.bincount(index, minlength=num_segments)
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]), index.argsort(stable=True)


def pool_nd_backward(
    grad: Tensor, z: Tensor, p: Tensor, *windows_and_need_p: Any
) -> tuple[Tensor, Tensor]:
    """The gradients of :func:`pool_nd`."""
    *windows, need_p = windows_and_need_p
    dz, dp = _by_autograd(lambda z, p: pool_nd(z, p, *windows), grad, z, p)
    return dz, dp if need_p else p.new_empty(0)


def pool_segments_backward(
    grad: Tensor,
    z: Tensor,
    p: Tensor,
    offsets: Tensor,
    need_p: bool,
    rows_at: Tensor | None = None,
    weight: Tensor | None = None,
    need_weight: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of :func:`pool_segments`."""
    work = torch.promote_types(z.dtype, torch.float32)
    tensors = [z, p]
    if need_weight and weight is not None:
        tensors.append(weight.to(work).expand_as(z))

    def function(z: Tensor, p: Tensor, w: Tensor | None = weight) -> Tensor:
        return pool_segments(z, p, offsets, rows_at, w)

    dz, dp, *rest = _by_autograd(function, grad, *tensors)
    nothing = p.new_empty(0)
    return dz, dp if need_p else nothing, rest[0] if rest else nothing.to(work)


def _by_autograd(function: Callable[..., Tensor], grad: Tensor, *tensors: Tensor) -> list[Tensor]:
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in tensors]
        dz, *others = torch.autograd.grad(function(*leaves), leaves, grad)
    return [torch.empty_like(tensors[0]).copy_(dz), *others]


def memory_format(z: Tensor) -> torch.memory_format:
    """The order in memory in which the windows of z are written."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if not z.is_contiguous() and z.ndim in formats:
        format_: torch.memory_format = formats[z.ndim]
        if z.is_contiguous(memory_format=format_):
            return format_
    return torch.contiguous_format
