"""The kernel for CPUs: brings tensors into the form that the code of ``pooling.py`` takes.

It reads z once forward and once backward, and makes no temporary of its size.
"""

import math
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn.functional import pad

from lpunits.kernels import pooling, simd, tiles
from lpunits.kernels.plain import Gradients
from lpunits.kernels.tiles import Spec

LONGEST_PACKED = 8  # longer groups share the lanes of a vector
CHUNK = 160  # rows of tiles that are worked on together: they should fit into the nearest cache
SMALLEST_PARALLEL = 1 << 13  # values; below, waking threads costs more than they save

Sizes = tuple[int, ...]
_DTYPES = {torch.float32: "float", torch.float16: "half", torch.bfloat16: "bfloat"}
_arguments = struct.Struct(f"{len(tiles.ARGUMENTS)}q").pack


def supports(z: Tensor) -> bool:
    """Whether this kernel serves z; double precision has no faster way than plain torch."""
    return z.dtype in _DTYPES


@cache
def _function(spec: Spec, threads: int) -> Callable[[bytes], None]:
    return simd.compiled(repr(spec), lambda: pooling.module(spec), threads)


class _Compiled:
    """The functions of a plan, compiled when they are first needed."""

    spec: Spec
    threads: int

    @cached_property
    def forward(self) -> Callable[[bytes], None]:
        return _function(self.spec, self.threads)

    @cached_property
    def backward(self) -> Callable[[bytes], None]:
        return _function(replace(self.spec, backward=True), self.threads)

    @cached_property
    def backward_with_center(self) -> Callable[[bytes], None]:
        return _function(replace(self.spec, backward=True, center_grad=True), self.threads)


def forward(
    z: Tensor, p: Tensor, center: Tensor | None, dim: int, out: Tensor | None = None
) -> Tensor:
    """The pooled values, in the dtype of z."""
    plan, z, orders, centers = _prepare(z, p, center, dim)
    u = torch.empty(plan.out_shape, dtype=z.dtype) if out is None else out
    if plan.groups:
        scratch = torch.empty(plan.threads * plan.scratch)
        plan.forward(
            _arguments(
                z.data_ptr(),
                0 if centers is None else centers.data_ptr(),
                orders.data_ptr(),
                u.data_ptr(),
                *(0, 0, 0),
                scratch.data_ptr(),
                *plan.numbers,
                *(0, 0),
                plan.scratch,
            )
        )
    return u if plan.in_order else u.permute(plan.order_of_out)


def backward(
    grad: Tensor,
    z: Tensor,
    p: Tensor,
    center: Tensor | None,
    dim: int,
    needs: tuple[bool, bool, bool],
    out: Tensor | None = None,
) -> Gradients:
    """The gradients in z, p and center; sums over the batch run per thread, then in order."""
    plan, z, orders, centers = _prepare(z, p, center, dim)
    if not plan.in_order:
        grad = grad.permute(plan.memory_order_of_out)
    if grad.dtype is not z.dtype or not grad.is_contiguous():
        grad = grad.to(z.dtype).contiguous()
    dz = torch.empty(plan.shape, dtype=z.dtype) if out is None else out
    # Sums for the orders and, unless there are as many as entries, for the centres.
    dc_size = plan.dc_size if needs[2] else 0
    dp = torch.zeros(plan.threads, plan.dp_size)
    dc = torch.zeros(plan.threads, dc_size)
    if plan.groups:
        scratch = torch.empty(plan.threads * plan.scratch)
        (plan.backward_with_center if dc_size else plan.backward)(
            _arguments(
                z.data_ptr(),
                0 if centers is None else centers.data_ptr(),
                orders.data_ptr(),
                grad.data_ptr(),
                dz.data_ptr(),
                dp.data_ptr(),
                dc.data_ptr(),
                scratch.data_ptr(),
                *plan.numbers,
                *(plan.dp_size, dc_size),
                plan.scratch,
            )
        )
    dorder = dcenter = None
    if needs[1]:
        if plan.spec.splat:
            dp = dp.view(plan.threads, -1, simd.lanes()).sum(2)
        dorder = _finished(dp, plan.p_shape, plan.p_size, plan, p)
    if center is not None and needs[2]:
        if dc_size:
            dcenter = _finished(dc, plan.center_shape, plan.center_size, plan, center)
        else:
            dcenter = _finished(-dz.float()[None], tuple(plan.shape), dz.numel(), plan, center)
    if not needs[0]:
        return None, dorder, dcenter
    return dz if plan.in_order else dz.permute(plan.order_of_z), dorder, dcenter


def _finished(
    parts: Tensor, shape: tuple[int, ...], size: int, plan: "_Plan", like: Tensor
) -> Tensor:
    """The sum of all threads, in the shape and dtype of the tensor that it is the gradient of."""
    total = parts.sum(0) if len(parts) > 1 else parts
    if total.numel() != size:  # what was collected behind the end of a table is for its beginning
        total = total.flatten()
        rows = -(-len(total) // size)
        total = pad(total, (0, rows * size - len(total))).view(rows, size).sum(0)
    if plan.in_order and size == like.numel():
        total = total.view(like.shape)
    else:
        total = total.reshape(shape)
        total = total if plan.in_order else total.permute(plan.order_of_z)
        total = total.sum_to_size(like.shape)
    return total if like.dtype is torch.float32 else total.to(like.dtype)


@dataclass(frozen=True)
class _Plan(_Compiled):
    """How a call looks in the order of z's memory: z as (outer, N, inner), flat orders and centres.

    Orders and centres repeat after some groups; broadcasts that do not fit are written out. A table
    that a vector may read beyond its end goes on with its beginning, for ``tail`` more entries.
    """

    contiguous: bool  # whether z's memory is dense, in whatever order
    in_order: bool  # whether that is the order of its dimensions
    order: list[int]
    order_of_z: list[int]
    memory_order_of_out: list[int]
    order_of_out: list[int]
    shape: list[int]
    out_shape: list[int]
    groups: int
    p_shape: tuple[int, ...]
    p_size: int
    p_tail: int
    center_shape: tuple[int, ...]
    center_size: int
    center_tail: int
    dp_size: int
    dc_size: int
    scratch: int
    threads: int
    numbers: tuple[int, ...]  # the arguments bases to chunk of tiles.py
    spec: Spec


@lru_cache(maxsize=4096)
def _plan(
    z_shape: torch.Size,
    stride: tuple[int, ...],
    dtype: torch.dtype,
    p_shape: torch.Size,
    center_shape: torch.Size | None,
    dim: int,
    most_threads: int,
) -> _Plan:
    rank = len(z_shape)
    order = sorted(range(rank), key=lambda d: -stride[d])
    dense = list(accumulate((z_shape[d] for d in reversed(order)), operator.mul, initial=1))
    steps = zip(reversed(order), dense, strict=False)
    contiguous = all(z_shape[d] == 1 or stride[d] == step for d, step in steps)
    if not contiguous:
        order.sort()
    shape = [z_shape[d] for d in order]
    pooled = order.index(dim)
    n, inner = shape[pooled], math.prod(shape[pooled + 1 :])
    layout = "rows" if inner > 1 else "packed" if n <= LONGEST_PACKED else "long"
    others = [d for d in order if d != dim]
    memory_order_of_out = [d - (d > dim) for d in others]

    # The order of group g is p[g // step % count].
    p_full = _permuted(p_shape, order)
    out = [*shape[:pooled], 1, *shape[pooled + 1 :]]
    groups = math.prod(out)
    varying = [d for d in range(rank) if p_full[d] != 1]
    first, last = (varying[0], varying[-1]) if varying else (0, rank - 1)
    if varying and p_full[first : last + 1] != out[first : last + 1]:
        p_full, last = [1] * first + out[first:], rank - 1
    count, step = math.prod(p_full), math.prod(out[last + 1 :]) if varying else 1
    splat = count == 1 or (layout == "rows" and step % inner == 0)
    if not splat and step > 1:  # the lanes of a vector differ
        first = min(first, pooled + 1) if layout == "rows" else first
        p_full = [1] * first + out[first:]
        count, step = math.prod(p_full), 1
    orders = count
    if layout == "rows":
        orders = count if splat else max(count // max(inner, 1), 1)
        step = max(step // max(inner, 1), 1)

    c_full, centers = [], 1
    if center_shape is not None:
        c = _permuted(center_shape, order)
        start = next((d for d in range(pooled) if c[d] != 1), pooled)
        c_full, centers = [1] * start + shape[start:], math.prod(shape[start:pooled])

    lanes = simd.lanes()
    tail = 0 if layout == "rows" else lanes
    p_tail = 0 if splat or count == groups else tail
    center_size = 0 if center_shape is None else math.prod(c_full)
    center_tail = 0 if not center_size or layout == "long" or centers == groups else tail * n
    dc_size = center_size + center_tail
    rows = -(-n // lanes) if layout == "long" else n
    chunk = min(max(CHUNK // rows, 1), lanes)
    spec = Spec(
        layout=layout,
        n=n if rows <= tiles.MOST_UNROLLED else 0,
        dtype=_DTYPES[dtype],
        center=center_shape is not None,
        splat=splat,
        parallel=False,
    )
    threads = 1 if not simd.PARALLEL or math.prod(shape) < SMALLEST_PARALLEL else most_threads
    spec = replace(spec, parallel=threads > 1)
    return _Plan(
        contiguous=contiguous,
        in_order=order == list(range(rank)),
        order=order,
        order_of_z=_inverse(order),
        memory_order_of_out=memory_order_of_out,
        order_of_out=_inverse(memory_order_of_out),
        shape=shape,
        out_shape=[z_shape[d] for d in others],
        groups=groups,
        p_shape=tuple(p_full),
        p_size=count,
        p_tail=p_tail,
        center_shape=tuple(c_full),
        center_size=center_size,
        center_tail=center_tail,
        dp_size=count * lanes if splat else count + p_tail,
        dc_size=dc_size if dc_size < max(math.prod(shape), 1 << 20) else 0,
        scratch=(tiles.SLOTS + 2 * rows + 1) * chunk * lanes,
        threads=threads,
        numbers=(0, 0, n, inner, groups, centers, orders, step, 0, 0, chunk),
        spec=spec,
    )


def _prepare(
    z: Tensor, p: Tensor, center: Tensor | None, dim: int
) -> tuple[_Plan, Tensor, Tensor, Tensor | None]:
    """The plan, z in the order of its memory, and flat tables of orders and centres."""
    plan = _plan(
        z.shape,
        z.stride(),
        z.dtype,
        p.shape,
        None if center is None else center.shape,
        dim,
        torch.get_num_threads(),
    )
    if not plan.contiguous:
        z = z.contiguous()
    orders = _table(p, plan, plan.p_shape, plan.p_size, plan.p_tail)
    if center is None:
        return plan, z, orders, None
    centers = _table(center, plan, plan.center_shape, plan.center_size, plan.center_tail)
    return plan, z, orders, centers


def _table(t: Tensor, plan: _Plan, shape: tuple[int, ...], size: int, tail: int) -> Tensor:
    as_it_is = plan.in_order and not tail and t.dtype is torch.float32 and t.is_contiguous()
    if as_it_is and t.numel() == size:
        return t
    t = t.detach().float()
    if not plan.in_order:
        t = t[(None,) * (len(shape) - t.ndim)].permute(plan.order)
    if t.numel() != size:
        t = t.expand(shape)
    t = t.reshape(-1)
    if tail:
        t = t.repeat(1 + -(-tail // max(size, 1)))[: size + tail]
    return t.contiguous()


# ---------------------------------------------------------------- windows


def forward_windows(z: Tensor, p: Tensor, size: Sizes, stride: Sizes) -> Tensor:
    """Windows over the last dimensions of z, (batch, channels, ...), with an order per channel."""
    plan, z = _prepare_windows(z, size, stride)
    u = torch.empty(plan.out_shape, dtype=z.dtype)
    if u.numel():
        orders, scratch = p.float().contiguous(), torch.empty(plan.threads * plan.scratch)
        addresses = (z.data_ptr(), 0, orders.data_ptr(), u.data_ptr(), 0, 0, 0, scratch.data_ptr())
        plan.forward(_arguments(*addresses, *plan.numbers, 0, 0, plan.scratch))
    return u.movedim(-1, 1) if plan.channels_last else u


def backward_windows(
    grad: Tensor, z: Tensor, p: Tensor, size: Sizes, stride: Sizes, needs: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients in z and p."""
    plan, z = _prepare_windows(z, size, stride)
    grad = grad.to(z.dtype)
    grad = (grad.movedim(1, -1) if plan.channels_last else grad).contiguous()
    dz = torch.zeros(z.movedim(1, -1).shape if plan.channels_last else z.shape)
    dp = torch.zeros(plan.threads, len(p) * (simd.lanes() if plan.spec.splat else 1))
    if grad.numel():
        orders, scratch = p.float().contiguous(), torch.empty(plan.threads * plan.scratch)
        tensors = (z.data_ptr(), 0, orders.data_ptr(), grad.data_ptr(), dz.data_ptr())
        sums = (dp.data_ptr(), 0, scratch.data_ptr())
        plan.backward(_arguments(*tensors, *sums, *plan.numbers, dp.shape[1], 0, plan.scratch))
    dz = dz.to(z.dtype)
    return (
        (dz.movedim(-1, 1) if plan.channels_last else dz) if needs[0] else None,
        dp.sum(0).view(len(p), -1).sum(1).to(p.dtype) if needs[1] else None,
    )


@dataclass(frozen=True)
class _Windows(_Compiled):
    """Where the windows of an image are: where each begins, and its entries from there."""

    channels_last: bool
    out_shape: list[int]
    tables: Tensor  # whose addresses are among the numbers
    threads: int
    scratch: int
    numbers: tuple[int, ...]
    spec: Spec


def _prepare_windows(z: Tensor, size: Sizes, stride: Sizes) -> tuple[_Windows, Tensor]:
    channels_last = not z.is_contiguous() and z.movedim(1, -1).is_contiguous()
    if not channels_last:
        z = z.contiguous()
    threads = torch.get_num_threads()
    return _plan_windows(z.shape, z.dtype, channels_last, size, stride, threads), z


@lru_cache(maxsize=256)
def _plan_windows(
    shape: torch.Size,
    dtype: torch.dtype,
    channels_last: bool,
    size: Sizes,
    stride: Sizes,
    most_threads: int,
) -> _Windows:
    batch, channels, *space = shape
    out = [(length - k) // s + 1 for length, k, s in zip(space, size, stride, strict=True)]

    def places(counts: Sequence[int], steps: Sequence[int]) -> Tensor:
        """Where entries lie that are some steps apart in every dimension."""
        at = torch.zeros(1, dtype=torch.int64)
        for length, count, step in zip(space, counts, steps, strict=True):
            at = (at[:, None] * length + torch.arange(count) * step).flatten()
        return at * channels if channels_last else at

    # The lanes are channels, or windows in a line.
    lines = out if channels_last else [*out[:-1], 1]
    bases, offsets = places(lines, stride), places(size, [1] * len(size))
    tables = torch.cat([bases, offsets])
    images, inner = (batch, channels) if channels_last else (batch * channels, out[-1])
    n, groups = len(offsets), batch * channels * math.prod(out)
    threads = 1 if not simd.PARALLEL or groups * n < SMALLEST_PARALLEL else most_threads
    lanes = simd.lanes()
    chunk = min(max(CHUNK // n, 1), lanes)
    orders, order_step = (1, 1) if channels_last else (channels, len(bases))
    image = math.prod(space) * (channels if channels_last else 1)
    return _Windows(
        channels_last=channels_last,
        out_shape=[batch, *out, channels] if channels_last else [batch, channels, *out],
        tables=tables,
        threads=threads,
        scratch=(tiles.SLOTS + 2 * n + 1) * chunk * lanes,
        numbers=(
            *(tables.data_ptr(), tables.data_ptr() + 8 * len(bases)),
            *(n, inner, groups, images, orders, order_step, image, len(bases), chunk),
        ),
        spec=Spec(
            layout="rows",
            n=n if n <= tiles.MOST_UNROLLED else 0,
            dtype=_DTYPES[dtype],
            center=False,
            splat=not channels_last,
            parallel=threads > 1,
            windows=True,
            stride=1 if channels_last else stride[-1],
        ),
    )


def _permuted(shape: torch.Size, order: list[int]) -> list[int]:
    full = [1] * (len(order) - len(shape)) + list(shape)
    return [full[d] for d in order]


def _inverse(order: list[int]) -> list[int]:
    return [order.index(d) for d in range(len(order))]
