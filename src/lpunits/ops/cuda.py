r"""The kernel in Triton, for GPUs: the formulas of :mod:`lpunits.ops.plain`, fused.

A tensor is seen as (batch, outer, N, inner): groups of N values, a column each, for
``units = outer * inner`` units in every row of the batch, where p and center do not vary along the
batch if that can be arranged. A program holds a tile of (N, some columns) in registers.

**Arithmetic.** Single precision (double for float64 tensors) without the approximate functions of
the hardware. ``ln r`` comes from the exact difference ``|b| - m``, with the rounding error of
``b = z - center`` carried along, so that it has its digits even multiplied by p = 1e4. A difference
``z - center`` beyond the largest float32 counts as infinite, and the float64 center of a narrower z
is rounded to float32. It takes about 100 instructions per element forward and 160 backward.

**Memory moved**, per element of z; the result, or its gradient, adds 1/N of an element:
float32 reads 4 bytes forward; backward it reads and writes 8, and 12 where groups are streamed.
Half precision moves half of that.

Groups that do not fit in a tile (N > 4096 where they are contiguous, N > 128 elsewhere) are
streamed, in chunks. Forward this takes one read, as the sum is rescaled when a larger value turns
up; backward one for the sum and one for the gradient, which may find z in the cache.

The gradients of p and center are added up in registers over the rows of the batch that a program
walks through; torch adds the sums of the programs, in a fixed order and without atomics: the same
bits every time, as long as the autotuner's choice is the same, which it makes once per process and
bucket of shapes. These partial sums are at most 1/8 of the size of z, or 64 Ki values. There are as
many as z has, though, if p or center vary along the batch, and for centers of streamed groups.

Broadcasts of p and center are read through their strides. Where that is impossible (for a center
that varies with the width of an image but not with its height, say), they are copied, p to the size
of the result and center to that of z.

**Left to plain torch** are weights and masks, orders below 1, windows and segments. To know whether
an order is below 1 takes a wait for the GPU.

**Checked** with Triton's interpreter, and compiled for sm_80, but never run on a GPU: the speed is
not known, and the block sizes are candidates for the autotuner, not measurements.
"""

# The bodies of the kernels are in Triton's language, which has no types for mypy.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import contextlib
import math
import os
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lpunits.ops import plain
from lpunits.ops.cuda_math import (
    INF,
    LN2,
    UPSCALE,
    column_sum,
    exp2,
    log2_ratio,
    polynomial,
    power_of_2,
)
from lpunits.ops.plain import Gradients

CONTIGUOUS_TILE, STRIDED_TILE = 4096, 128  # the longest groups that are held in registers
# Elements at work at the same time, where programs walk through the batch to add up gradients.
LEAST_IN_FLIGHT, MOST_IN_FLIGHT = 2**16, 2**19
# (elements in a tile, warps); the interpreter has no clock to choose by.
SIZES = [(512, 4), (1024, 4), (2048, 8), (4096, 16)]
if os.environ.get("TRITON_INTERPRET") == "1":
    SIZES = [(4096, 4)]
autotune = triton.autotune(
    [triton.Config({"TILE": tile}, num_warps=warps) for tile, warps in SIZES],
    key=["UNITS", "CHUNK", "rows"],
)

INFINITE_ORDER = tl.constexpr(1e30)  # r^1e30 is 1 at r = 1, and 0 at the next smaller number
ZERO = tl.constexpr(-(2.0**20))  # log2 of a zero: its powers are 0 for every order, none is NaN
# (1 + t) ln(1 + t) - t = t^2 sum_j DIVERGENCE[j] t^j
DIVERGENCE = tl.constexpr(tuple((-1) ** j / ((j + 1) * (j + 2)) for j in range(18)))


@triton.jit
def _log2(a, low, m, low_m, COMPENSATED: tl.constexpr):
    """``log2`` of the ratio of an entry to the largest; in a group of zeros all are the largest."""
    whole, rest = log2_ratio(a, low, m, low_m, COMPENSATED)
    return tl.where((a == 0) & (m > 0), ZERO, whole + rest)


@triton.jit
def _read(z, center, z_at, c_at, n, N, inner, c_n, live, WORK: tl.constexpr):
    """A tile of ``b = z - center``, and what the rounding of b took from its magnitude."""
    inside = (n < N)[:, None] & live[None, :]
    b = tl.load(z + (n[:, None] * inner + z_at[None, :]), mask=inside, other=0.0).to(WORK)
    low = tl.zeros_like(b)
    if center is not None:
        c = tl.load(center + (n[:, None] * c_n + c_at[None, :]), mask=inside, other=0.0).to(WORK)
        rounded = b - c
        step = rounded - b
        low = (b - (rounded - step)) - (c + step)
        low = tl.where(tl.abs(rounded) < INF, low, 0.0)
        b = rounded
    return b, tl.where(b < 0, -low, low)


@triton.jit
def _order(p, m):
    """The order to compute with, and its inverse: an infinite entry is the maximum."""
    as_maximum = (p > INFINITE_ORDER) | (m == INF)
    return tl.where(as_maximum, INFINITE_ORDER, p), tl.where(as_maximum, 0.0, 1.0 / p)


@triton.jit
def _sums(b, low, m, low_m, order, inside, COMPENSATED: tl.constexpr):
    """``log2 r``, ``sum r^p`` and ``sum (r^p - 1)``; the latter is exact for near ties."""
    log2_r = _log2(tl.abs(b), low, m[None, :], low_m[None, :], COMPENSATED)
    power, less_1 = exp2(order[None, :] * log2_r)
    return log2_r, column_sum(power), column_sum(tl.where(inside, less_1, 0.0))


@triton.jit
def _largest(b, low):
    m = tl.max(tl.abs(b), axis=0)
    return m, tl.max(tl.where(tl.abs(b) == m[None, :], low, -INF), axis=0)


@triton.jit
def _statistics(
    z, center, z_at, c_at, p, N, inner, c_n, live, CHUNK: tl.constexpr, HELD: tl.constexpr
):
    """The first tile of the groups, its ``log2 r``, then maximum and sums of the whole groups."""
    COMPENSATED: tl.constexpr = center is not None
    n = tl.arange(0, CHUNK).to(tl.int64)
    b, low = _read(z, center, z_at, c_at, n, N, inner, c_n, live, p.dtype)
    m, low_m = _largest(b, low)
    order, inverse = _order(p, m)
    log2_r, s, drift = _sums(b, low, m, low_m, order, (n < N)[:, None], COMPENSATED)
    if not HELD:
        for start in range(CHUNK, N, CHUNK):
            at = start + n
            next_b, next_low = _read(z, center, z_at, c_at, at, N, inner, c_n, live, p.dtype)
            top, low_top = _largest(next_b, next_low)
            low_top = tl.where(
                top > m, low_top, tl.where(top < m, low_m, tl.maximum(low_top, low_m))
            )
            top = tl.maximum(top, m)
            order, inverse = _order(p, top)
            # The sums so far belong to the maximum so far.
            shrink, less_1 = exp2(order * _log2(m, low_m, top, low_top, COMPENSATED))
            _, next_s, next_drift = _sums(
                next_b, next_low, top, low_top, order, (at < N)[:, None], COMPENSATED
            )
            s = s * shrink + next_s
            drift = drift * shrink + start * less_1 + next_drift
            m, low_m = top, low_top
    return b, log2_r, m, low_m, s, drift, order, inverse


@triton.jit
def _root(s, N, order, inverse):
    """``s / N``, its ``log2`` and its p-th root."""
    mean = tl.div_rn(s, tl.cast(N, s.dtype)) if s.dtype == tl.float32 else s / N
    whole, rest = log2_ratio(mean, 0.0, tl.full(s.shape, 1.0, s.dtype), 0.0, False)
    # The integer part of whole / p is kept apart, as it would cost digits in the sum.
    n = tl.floor(whole * inverse + 0.5)
    root, _ = exp2(((whole - n) - n * (order - 1) + rest) * inverse)
    return mean, whole + rest, root * power_of_2(n, s)


@triton.jit
def _divergence(log2_r, order, mean, log2_mean, mean_less_1):
    """The terms ``(1 + t) ln(1 + t) - t`` of plain.py's divergence, the mean of which it is."""
    y = order[None, :] * log2_r
    power, less_1 = exp2(y)
    weight = power / mean[None, :]
    t = tl.where(mean[None, :] < 0.5, weight - 1, (less_1 - mean_less_1[None, :]) / mean[None, :])
    small = t * t * polynomial(t, DIVERGENCE, 18 if mean.dtype == tl.float64 else 8)
    # ln(1 + t) is known without a logarithm.
    direct = weight * ((y - log2_mean[None, :]) * LN2 - 1) + 1
    return tl.where(tl.abs(t) < 0.25, small, direct)


@triton.jit
def _columns(units, inner, lanes, UNITS: tl.constexpr, COLUMNS: tl.constexpr):
    """Where the columns of this program's tile are: in outer and inner, and their first row."""
    WIDTH: tl.constexpr = UNITS if UNITS < COLUMNS else COLUMNS
    column = tl.arange(0, COLUMNS)
    blocks = tl.cdiv(units, WIDTH)
    program = tl.program_id(0).to(tl.int64)
    unit = program % blocks * WIDTH + column % WIDTH
    lane = program // blocks * (COLUMNS // WIDTH) + column // WIDTH
    return unit // inner, unit % inner, lane, (unit < units) & (lane < lanes)


@autotune
@triton.jit(do_not_specialize=["batch", "rows", "lanes"])
def _forward(
    z, p, center, u,
    batch, outer, N, inner, p_b, p_o, p_i, c_b, c_o, c_n, c_i, rows, lanes,
    UNITS: tl.constexpr, CHUNK: tl.constexpr, HELD: tl.constexpr, WORK: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    COLUMNS: tl.constexpr = TILE // CHUNK if TILE > CHUNK else 1
    o, i, lane, exists = _columns(outer * inner, inner, lanes, UNITS, COLUMNS)
    for first in range(0, batch, lanes):
        row = first + lane
        live = exists & (row < batch)
        order = tl.load(p + (row * p_b + o * p_o + i * p_i), mask=live, other=1.0).to(WORK)
        u_at, z_at = (row * outer + o) * inner + i, (row * outer + o) * N * inner + i
        c_at = row * c_b + o * c_o + i * c_i
        _, _, m, _, s, _, order, inverse = _statistics(
            z, center, z_at, c_at, order, N, inner, c_n, live, CHUNK, HELD
        )
        _, _, root = _root(s, N, order, inverse)
        tl.store(u + u_at, m * root, mask=live)


@autotune
@triton.jit(do_not_specialize=["batch", "rows", "lanes"])
def _backward(
    z, p, center, grad, dz, dp, dcenter,
    batch, outer, N, inner, p_b, p_o, p_i, c_b, c_o, c_n, c_i, rows, lanes,
    UNITS: tl.constexpr, CHUNK: tl.constexpr, HELD: tl.constexpr, WORK: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    COLUMNS: tl.constexpr = TILE // CHUNK if TILE > CHUNK else 1
    COMPENSATED: tl.constexpr = center is not None
    o, i, lane, exists = _columns(outer * inner, inner, lanes, UNITS, COLUMNS)
    dp_sum, dp_tiny = tl.zeros([COLUMNS], WORK), tl.zeros([COLUMNS], WORK)
    dc_sum = tl.zeros([CHUNK, COLUMNS], WORK)
    for first in range(0, batch, lanes):
        row = first + lane
        live = exists & (row < batch)
        order = tl.load(p + (row * p_b + o * p_o + i * p_i), mask=live, other=1.0).to(WORK)
        u_at, z_at = (row * outer + o) * inner + i, (row * outer + o) * N * inner + i
        c_at = row * c_b + o * c_o + i * c_i
        b, log2_r, m, low_m, s, drift, order, inverse = _statistics(
            z, center, z_at, c_at, order, N, inner, c_n, live, CHUNK, HELD
        )
        mean, log2_mean, root = _root(s, N, order, inverse)
        g = tl.load(grad + u_at, mask=live, other=0.0).to(WORK)
        divergence = tl.zeros_like(s)
        for start in range(0, CHUNK if HELD else N, CHUNK):
            n = start + tl.arange(0, CHUNK).to(tl.int64)
            inside = (n < N)[:, None] & live[None, :]
            if not HELD:
                b, low = _read(z, center, z_at, c_at, n, N, inner, c_n, live, WORK)
                log2_r = _log2(tl.abs(b), low, m[None, :], low_m[None, :], COMPENSATED)
            q, _ = exp2((order - 1)[None, :] * log2_r)
            sign = tl.where(b > 0, 1.0, tl.where(b < 0, -1.0, 0.0))
            db = sign * ((g * (root / s))[None, :] * q)
            if dz is not None:
                tl.store(dz + (n[:, None] * inner + z_at[None, :]), db, mask=inside)
            if HELD:
                dc_sum -= db
            elif dcenter is not None:  # there is a lane for every row
                tl.store(dcenter + (n[:, None] * inner + z_at[None, :]), -db, mask=inside)
            if dp is not None:
                terms = _divergence(log2_r, order, mean, log2_mean, drift / N)
                divergence += column_sum(tl.where(inside, terms, 0.0))
        # What may be denormal is summed apart, scaled, or each row would add a rounding error.
        tiny = m < 1.0 / UPSCALE
        u = m * tl.where(tiny, UPSCALE, 1.0) * root
        part = tl.where(inverse == 0, 0.0, g * (u * (divergence / N * inverse * inverse)))
        dp_sum += tl.where(tiny, 0.0, part)
        dp_tiny += tl.where(tiny, part, 0.0)
    if dp is not None:
        total = dp_sum.to(tl.float64) + dp_tiny.to(tl.float64) * (1.0 / UPSCALE)
        tl.store(dp + (lane * outer + o) * inner + i, total, mask=exists)
    if HELD and dcenter is not None:
        n, at = tl.arange(0, CHUNK).to(tl.int64), (lane * outer + o) * N * inner + i
        inside = (n < N)[:, None] & exists[None, :]
        tl.store(dcenter + (n[:, None] * inner + at[None, :]), dc_sum, mask=inside)


class _Layout(NamedTuple):
    """z seen as (batch, outer, N, inner), and p and center in the same form."""

    shape: tuple[int, int, int, int]
    batch_dims: int
    p: Tensor
    center: Tensor | None

    @property
    def held(self) -> bool:
        """Whether a group fits in a tile."""
        return self.shape[2] <= (CONTIGUOUS_TILE if self.shape[3] == 1 else STRIDED_TILE)

    @property
    def units(self) -> int:
        return self.shape[1] * self.shape[3]


def _layout(z: Tensor, p: Tensor, center: Tensor | None, dim: int) -> _Layout:
    """The layout with the longest batch for which p and center are views, not copies."""
    N, inner = z.shape[dim], math.prod(z.shape[dim + 1 :])
    p = p.expand(*z.shape[:dim], 1, *z.shape[dim + 1 :])
    center = None if center is None else center.expand(z.shape)
    for batch_dims in range(dim, -1, -1):
        batch, outer = math.prod(z.shape[:batch_dims]), math.prod(z.shape[batch_dims:dim])
        shape = (batch, outer, N, inner)
        with contextlib.suppress(RuntimeError):  # strides that do not merge into one
            c = None if center is None else center.view(shape)
            return _Layout(shape, batch_dims, p.view(batch, outer, 1, inner), c)
    shape = (math.prod(z.shape[:dim]), 1, N, inner)
    c = None if center is None else center.reshape(shape)
    return _Layout(shape, dim, p.reshape(shape[0], 1, 1, inner), c)


def _launch(kernel: Any, layout: _Layout, lanes: int, z: Tensor, *others: Tensor | None) -> None:
    """Run a kernel that has ``lanes`` rows of the batch at work at the same time."""
    batch, _, N, inner = layout.shape
    chunk = triton.next_power_of_2(N) if layout.held else 1024 if inner == 1 else 32
    units = triton.next_power_of_2(layout.units)
    p_b, p_o, _, p_i = layout.p.stride()
    center_strides = (0, 0, 0, 0) if layout.center is None else layout.center.stride()

    def grid(meta: dict[str, Any]) -> tuple[int]:
        columns = max(meta["TILE"] // chunk, 1)
        width = min(units, columns)
        return (triton.cdiv(layout.units, width) * triton.cdiv(lanes, columns // width),)

    with torch.cuda.device_of(z):
        kernel[grid](
            z, layout.p, layout.center, *others,
            *layout.shape, p_b, p_o, p_i, *center_strides, triton.next_power_of_2(batch), lanes,
            UNITS=units, CHUNK=chunk, HELD=layout.held,
            WORK=tl.float64 if z.dtype == torch.float64 else tl.float32, enable_fp_fusion=True,
        )  # fmt: skip


def _serves(p: Tensor, weight: Tensor | None) -> bool:
    """Whether the kernels know what is asked for; plain torch knows the rest."""
    return weight is None and not bool((p < 1).any())


def forward(
    z: Tensor, p: Tensor, center: Tensor | None, dim: int, weight: Tensor | None = None
) -> Tensor:
    """The pooled values, in the dtype of z."""
    if not _serves(p, weight):
        return plain.forward(z, p, center, dim, weight)
    u = z.new_empty(z.shape[:dim] + z.shape[dim + 1 :])
    if u.numel():
        layout = _layout(z, p, center, dim)
        _launch(_forward, layout, layout.shape[0], z.contiguous(), u)
    return u


def backward(
    grad: Tensor,
    z: Tensor,
    p: Tensor,
    center: Tensor | None,
    dim: int,
    needs: tuple[bool, ...],
    weight: Tensor | None = None,
) -> Gradients:
    """The gradients in z, p and center, each in its own dtype and shape, and by the weights."""
    if not _serves(p, weight):
        return plain.backward(grad, z, p, center, dim, needs, weight)
    targets = [t if need else None for t, need in zip((z, p, center), needs, strict=False)]
    if not z.numel():
        dz, dp, dcenter = (None if t is None else torch.zeros_like(t) for t in targets)
        return dz, dp, dcenter, None
    layout = _layout(z, p, center, dim)
    batch, outer, N, inner = layout.shape
    lanes = batch
    if not any(_varies(t, z.ndim - layout.batch_dims) for t in targets[1:]):
        row = layout.units * N
        lanes = max(min(MOST_IN_FLIGHT // row, batch // 8), min(LEAST_IN_FLIGHT // row, batch), 1)
    if targets[2] is not None and not layout.held:
        lanes = batch  # the sums of a group's N centers do not fit in registers

    work = torch.promote_types(z.dtype, torch.float32)
    dz = z.new_empty(z.shape) if needs[0] else None
    dp = z.new_empty(lanes, outer, 1, inner, dtype=torch.float64) if needs[1] else None
    dcenter = None if targets[2] is None else z.new_empty(lanes, outer, N, inner, dtype=work)
    _launch(_backward, layout, lanes, z.contiguous(), grad.contiguous(), dz, dp, dcenter)

    def reduced(partial: Tensor | None, like: Tensor | None, N: int) -> Tensor | None:
        if partial is None or like is None:
            return None
        rows = z.shape[: layout.batch_dims]
        if lanes < batch:
            partial, rows = partial.sum(0), torch.Size([1] * len(rows))
        shape = *rows, *z.shape[layout.batch_dims : dim], N, *z.shape[dim + 1 :]
        return partial.view(shape).sum_to_size(like.shape).to(like.dtype)

    return dz, reduced(dp, targets[1], 1), reduced(dcenter, targets[2], N), None


def _varies(t: Tensor | None, unit_dims: int) -> bool:
    """Whether t has a size other than 1 in front of its last ``unit_dims`` dimensions."""
    return t is not None and math.prod(t.shape[: max(t.ndim - unit_dims, 0)]) != 1
