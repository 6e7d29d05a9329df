"""The kernel for CPUs, in Python compiled by Numba: one read of z forward, one read backward.

The arithmetic is that of ``plain.py``, in single precision and without its temporaries. The work is
cut into tiles of N rows and LANES columns, one column per group, which stay in the first-level
cache; every loop over the lanes becomes SIMD code. Two layouts of z fill a tile: groups side by side
(``(batch, filters, units)``, pooled over the middle), and groups one after the other (a contiguous
last dimension), which are transposed on the way in and out. A group too long for a column is cut
into columns, which are joined after each step.

How it keeps its digits, where single precision would lose them:

- ``log2(r)`` is taken from the exact difference of two mantissas, so its relative error stays small
  where r is near 1 and p is large; and from a difference of exponents where r underflows.
- ``z - center`` is rounded, and at large p a last digit decides, so the rounding error is kept too.
- p = inf is an order of 1e30 in the exponent, with 1/p = 0: no case of its own.
- The order's gradient is a sum of terms that are never negative where a group is nearly tied.
"""

import math
from typing import Any

import numba
import numpy as np
import torch
from numba import njit, prange
from numba.extending import overload
from numpy.typing import NDArray
from torch import Tensor

from lpunits.kernels import plain
from lpunits.kernels.plain import Gradients

LANES = 64
LONGEST_COLUMN = 512  # longer groups are cut into LANES columns
SMALLEST_PARALLEL = 1 << 15  # values; below, starting threads costs more than they save

numba.config.THREADING_LAYER = "omp"  # torch's own pool of threads

# Contracting a * b + c into one rounding is the only liberty that the compiler may take.
_OPTIONS: dict[str, Any] = {"fastmath": {"contract"}, "error_model": "numpy", "cache": True}
_inlined = njit(forceinline=True, **_OPTIONS)

F, I = np.float32, np.int32
_HUGE, _INF, _NAN = F(1e30), F(np.inf), F(np.nan)
_LOG2_E, _LN_2 = F(1.4426950408889634), F(0.6931471805599453)
_SMALLEST_NORMAL, _TWO_24, _ROUND = F(2.0**-126), F(2.0**24), F(1.5 * 2.0**23)
# Minimax polynomials: log2(1 + v) / v on [1/sqrt 2 - 1, sqrt 2 - 1], (2^f - 1) / f on [-1/2, 1/2].
_LOG = tuple(
    F(x)
    for x in (
        0.1258370368985811,
        -0.20726981566798947,
        0.2157156309784507,
        -0.2389448138582872,
        0.28791624507083174,
        -0.36070368303068034,
        0.48091064303096026,
        -0.7213473468016658,
        1.4426950036520814,
    )
)
_EXP = tuple(
    F(x)
    for x in (
        0.00015403512726100687,
        0.001339073564551989,
        0.009618237494567593,
        0.05550357433323085,
        0.24022649794956738,
        0.6931471879267558,
    )
)


def supports(z: Tensor) -> bool:
    """Whether this kernel serves z; double precision has no faster way than plain torch."""
    return z.dtype in _STORAGE


_STORAGE = {torch.float32: torch.float32, torch.bfloat16: torch.int16, torch.float16: torch.uint16}


# ---------------------------------------------------------------- scalars, which become SIMD lanes


@_inlined
def _bits(x):
    return F(x).view(I)


@_inlined
def _float(bits):
    return I(bits).view(F)


@_inlined
def _pick(condition, a, b):
    if condition:
        return a
    return b


@_inlined
def _log2_1p(v):
    y = _LOG[0]
    for c in _LOG[1:]:
        y = y * v + c
    return y * v


@_inlined
def _exp2(whole, part):
    """2^(whole + part) for exponents of at most 0; ``whole`` may be large, ``part`` is small."""
    whole = _pick(whole > F(-127), whole, F(-127))  # 2^-127 becomes 0
    rounded = (whole + part) + _ROUND
    f = (whole - (rounded - _ROUND)) + part
    y = _EXP[0]
    for c in _EXP[1:]:
        y = y * f + c
    return (y * f + F(1)) * _float((_bits(rounded) << I(23)) + I(0x3F800000))


@_inlined
def _normalised(a):
    """The bits of a, times 2^24 if it is denormal, and by how much its exponent is too high."""
    denormal = a < _SMALLEST_NORMAL
    return _bits(_pick(denormal, a * _TWO_24, a)), _pick(denormal, F(24), F(0))


@_inlined
def _split(a):
    """a = mantissa * 2^exponent, with the mantissa from 1 to 2."""
    bits, excess = _normalised(a)
    mantissa = _float(I(bits & I(0x7FFFFF)) | I(0x3F800000))
    return mantissa, F(I(bits >> I(23))) - (excess + F(127))


@_inlined
def _log2_of_ratio(a, mantissa, exponent, reciprocal, low):
    """log2(a / m) as (whole, part), m = mantissa * 2^exponent, low = mantissa / sqrt 2.

    a is brought between m / sqrt 2 and m sqrt 2 by a power of two, where the difference to m is
    exact.
    """
    bits, excess = _normalised(a)
    shift = I(I(bits - _bits(low)) >> I(23))
    near = _float(I(bits - I(shift << I(23))))
    return F(shift) - (exponent + excess), _log2_1p((near - mantissa) * reciprocal)


def _load(array, index):
    """The value at ``index`` in single precision: bfloat16 comes as int16, float16 as uint16."""


@overload(_load, inline="always")
def _load_by_storage(array, index):
    if array.dtype == numba.float32:
        return lambda array, index: array[index]
    if array.dtype == numba.int16:
        return lambda array, index: _float(I(array[index]) << I(16))

    def load_half(array, index):
        half = I(array[index])
        magnitude = I(half & I(0x7FFF))
        value = _float(magnitude << I(13)) * F(2.0**112)  # moves the exponent's bias
        value = _pick(magnitude >= I(0x7C00), _float((magnitude << I(13)) | I(0x7F800000)), value)
        return _pick(half > I(0x7FFF), -value, value)

    return load_half


def _store(array, index, value):
    """Round ``value`` to the nearest, ties to even, and write it."""


@overload(_store, inline="always")
def _store_by_storage(array, index, value):
    if array.dtype == numba.float32:

        def store_single(array, index, value):
            array[index] = value

        return store_single
    if array.dtype == numba.int16:

        def store_bfloat(array, index, value):
            bits = _bits(value)
            rounded = I(bits + I(0x7FFF) + I(I(bits >> I(16)) & I(1))) >> I(16)
            array[index] = np.int16(_pick(value != value, I(0x7FC0), I(rounded)))

        return store_bfloat

    def store_half(array, index, value):
        bits = _bits(abs(value))
        # A normal number: round 13 bits away and move the exponent's bias by 112.
        normal = I(bits + I(0xFFF) + I(I(bits >> I(13)) & I(1))) >> I(13)
        normal = _pick(abs(value) < F(65520), I(normal) - I(112 << 10), I(0x7C00))
        # A denormal one: adding 1/2 rounds to multiples of 2^-24.
        small = _bits(abs(value) + F(0.5)) - _bits(F(0.5))
        half = _pick(abs(value) < F(2.0**-14), I(small), I(normal))
        half = _pick(value != value, I(0x7E00), half)
        array[index] = np.uint16(_pick(_bits(value) < I(0), half | I(0x8000), half))

    return store_half


# ---------------------------------------------------------------- steps on a tile of (rows, LANES)

# How the groups lie in memory, and with it what a column of a tile is.
SIDE_BY_SIDE, IN_A_ROW, LONG = 0, 1, 2
# The numbers that describe a call, in one tuple of integers.
LAYOUT, GROUPS, N, INNER, ORDERS, ORDER_STEP, CENTERS = range(7)
# The rows of the table of lanes: one number per group, or per column of a long group.
PM1, INV_HIGH, INV_LOW, M, M_ERROR, MANTISSA, EXPONENT, RECIPROCAL, LOW = range(9)
STEP_1, STEP_2, ERROR_SCALE, S, ROOT, LOG_S, GRAD, MOMENT, LEAST, SPREAD, FACTOR = range(9, 20)
ROWS = 20


@_inlined
def _put(z, c, values, errors, i, j, at, c_at):
    """Read one value into the tile; with a centre, keep the rounding error of |z - c| as well."""
    x = _load(z, at)
    if c is None:
        values[i, j] = x
    else:
        b = x - c[c_at]
        t = b - x
        error = (x - (b - t)) - (c[c_at] + t)
        values[i, j] = b
        # Not a number where something is infinite; the sign is that of |b|.
        errors[i, j] = _pick(error == error, _pick(b < F(0), -error, error), F(0))


@_inlined
def _read(z, c, call, tile, values, errors):
    """Fill the tile and return the number of groups in it."""
    n, inner = call[N], call[INNER]
    if call[LAYOUT] == IN_A_ROW:
        first = tile * LANES
        groups = min(LANES, call[GROUPS] - first)
        for j in range(groups):
            at, c_at = (first + j) * n, ((first + j) % call[CENTERS]) * n
            for i in range(n):
                _put(z, c, values, errors, i, j, at + i, c_at + i)
        for i in range(n):
            values[i, groups:] = F(0)
        return groups
    if call[LAYOUT] == LONG:
        at, c_at, step, width = tile * n, (tile % call[CENTERS]) * n, LANES, n
    else:
        blocks = (inner + LANES - 1) // LANES
        outer, start = tile // blocks, (tile % blocks) * LANES
        at, c_at = outer * n * inner + start, (outer % call[CENTERS]) * n * inner + start
        step, width = inner, inner - start
    for i in range(values.shape[0]):
        lanes = min(LANES, width)
        row = at + i * step
        c_row = c_at + i * step
        for j in range(lanes):
            _put(z, c, values, errors, i, j, row + j, c_row + j)
        values[i, lanes:] = F(0)
        if call[LAYOUT] == LONG:
            width -= LANES
    return 1 if call[LAYOUT] == LONG else min(LANES, width)


@_inlined
def _write(dz, dc, call, tile, values):
    """The reverse of _read: gradients in z, and minus their sum for the centres."""
    n, inner = call[N], call[INNER]
    if call[LAYOUT] == IN_A_ROW:
        first = tile * LANES
        for j in range(min(LANES, call[GROUPS] - first)):
            at, c_at = (first + j) * n, ((first + j) % call[CENTERS]) * n
            for i in range(n):
                _store(dz, at + i, values[i, j])
                if dc is not None:
                    dc[c_at + i] -= values[i, j]
        return
    if call[LAYOUT] == LONG:
        at, c_at, step, width = tile * n, (tile % call[CENTERS]) * n, LANES, n
    else:
        blocks = (inner + LANES - 1) // LANES
        outer, start = tile // blocks, (tile % blocks) * LANES
        at, c_at = outer * n * inner + start, (outer % call[CENTERS]) * n * inner + start
        step, width = inner, inner - start
    for i in range(values.shape[0]):
        row = at + i * step
        c_row = c_at + i * step
        for j in range(min(LANES, width)):
            _store(dz, row + j, values[i, j])
        if dc is not None:
            for j in range(min(LANES, width)):
                dc[c_row + j] -= values[i, j]
        if call[LAYOUT] == LONG:
            width -= LANES


@_inlined
def _read_orders(orders, call, first, groups, lane):
    """Copy what depends on the orders of this tile's groups into its lanes."""
    at = (first // call[ORDER_STEP]) % call[ORDERS]
    for j in range(groups):
        if call[ORDER_STEP] > 1:
            at = ((first + j) // call[ORDER_STEP]) % call[ORDERS]
        lane[PM1, j] = orders[PM1, at]
        lane[INV_HIGH, j] = orders[INV_HIGH, at]
        lane[INV_LOW, j] = orders[INV_LOW, at]
        at += 1
        if at == call[ORDERS]:
            at = 0
    if call[LAYOUT] == LONG:
        for row in range(PM1, INV_LOW + 1):
            lane[row, :] = lane[row, 0]


@_inlined
def _order_table(p):
    """p - 1, and 1/p as a sum of which the first part has few digits."""
    table = np.empty((3, p.size), F)
    for j in range(p.size):
        order = _pick(p[j] < _HUGE, p[j], _HUGE)
        inverse = F(1) / p[j]
        high = _float(_bits(inverse) & I(-4096))
        table[PM1, j] = order - F(1)
        table[INV_HIGH, j] = high
        table[INV_LOW, j] = (F(1) - high * order) * inverse if p[j] < _HUGE else F(0)
    return table


@_inlined
def _join(row, how):
    """One number for all lanes of a long group: the sum, or the extreme (a NaN is the largest)."""
    width = LANES // 2
    while width:
        for j in range(width):
            a, b = row[j], row[j + width]
            if how == S:
                row[j] = a + b
            elif how == LEAST:
                row[j] = _pick(b < a, b, a)
            else:
                row[j] = _pick((b > a) | (b != b), b, a)
        width //= 2
    row[:] = row[0]


@_inlined
def _find_largest(values, errors, call, lane, centred):
    m, m_error = lane[M], lane[M_ERROR]
    m[:] = F(0)
    m_error[:] = F(0)
    for i in range(values.shape[0]):
        for j in range(LANES):
            a = abs(values[i, j])
            m[j] = _pick((a > m[j]) | (a != a), a, m[j])
    if call[LAYOUT] == LONG:
        _join(m, M)
    if centred:
        for j in range(LANES):
            m_error[j] = -_INF
        for i in range(values.shape[0]):
            for j in range(LANES):
                e = _pick(abs(values[i, j]) == m[j], errors[i, j], -_INF)
                m_error[j] = _pick(e > m_error[j], e, m_error[j])
        if call[LAYOUT] == LONG:
            _join(m_error, M)
    for j in range(LANES):
        mantissa, exponent = _split(m[j])
        lane[MANTISSA, j] = mantissa
        lane[EXPONENT, j] = exponent
        lane[LOW, j] = mantissa * F(0.70710678)
        lane[RECIPROCAL, j] = F(1) / mantissa
        # a / m in two steps, neither of which leaves the range of normal numbers.
        step = _pick(m[j] > F(1), F(2.0**-8), _pick(m[j] < F(2.0**-100), _TWO_24, F(1)))
        lane[STEP_1, j] = step
        lane[STEP_2, j] = F(1) / (m[j] * step)
        lane[ERROR_SCALE, j] = _pick(m[j] > F(1e-30), _LOG2_E / m[j], F(0))
        empty = m[j] == F(0)
        lane[STEP_2, j] = _pick(empty, F(0), lane[STEP_2, j])
        infinite = m[j] == _INF
        lane[INV_HIGH, j] = _pick(infinite, F(0), lane[INV_HIGH, j])
        lane[INV_LOW, j] = _pick(infinite, F(0), lane[INV_LOW, j])


@_inlined
def _log2_ratio(values, errors, lane, centred, i, j):
    whole, part = _log2_of_ratio(
        abs(values[i, j]),
        lane[MANTISSA, j],
        lane[EXPONENT, j],
        lane[RECIPROCAL, j],
        lane[LOW, j],
    )
    if centred:
        part += (errors[i, j] - lane[M_ERROR, j]) * lane[ERROR_SCALE, j]
    return whole + part


@_inlined
def _ratio(values, lane, i, j):
    return (abs(values[i, j]) * lane[STEP_1, j]) * lane[STEP_2, j]


@_inlined
def _take_root(call, lane):
    """ROOT = (s / N)^(1/p) and LOG_S = log2(s / N)."""
    if call[LAYOUT] == LONG:
        _join(lane[S], S)
    per_entry = F(1) / F(call[N])
    for j in range(LANES):
        # A group of zeros has no ratios; its weights are equal.
        s = _pick(lane[M, j] == F(0), F(call[N]), lane[S, j])
        lane[S, j] = s
        whole, part = _log2_of_ratio(s * per_entry, F(1), F(0), F(1), F(0.70710678))
        lane[LOG_S, j] = whole + part
        inverse = lane[INV_HIGH, j] + lane[INV_LOW, j]
        lane[ROOT, j] = _exp2(whole * lane[INV_HIGH, j], whole * lane[INV_LOW, j] + part * inverse)


@_inlined
def _count_infinite(values, slopes, lane):
    """A group with infinite entries is their maximum; this is rare, so it is put right afterwards."""
    for j in range(LANES):
        if lane[M, j] == _INF:
            count = F(0)
            for i in range(values.shape[0]):
                largest = F(1) if abs(values[i, j]) == _INF else F(0)
                count += largest
                if slopes is not None:
                    slopes[i, j] = largest
            lane[S, j] = count
            lane[MOMENT, j] = F(0)


@_inlined
def _has_infinite(lane):
    found = False
    for j in range(LANES):
        found |= lane[M, j] == _INF
    return found


# ---------------------------------------------------------------- the two passes


@_inlined
def _tiles(call):
    if call[LAYOUT] == SIDE_BY_SIDE:
        return call[GROUPS] // call[INNER] * ((call[INNER] + LANES - 1) // LANES)
    if call[LAYOUT] == IN_A_ROW:
        return (call[GROUPS] + LANES - 1) // LANES
    return call[GROUPS]


@_inlined
def _first_group(call, tile):
    if call[LAYOUT] == SIDE_BY_SIDE:
        blocks = (call[INNER] + LANES - 1) // LANES
        return tile // blocks * call[INNER] + tile % blocks * LANES
    if call[LAYOUT] == IN_A_ROW:
        return tile * LANES
    return tile


@_inlined
def _rows(call):
    return (call[N] + LANES - 1) // LANES if call[LAYOUT] == LONG else call[N]


@njit(parallel=True, **_OPTIONS)
def _forward(z, c, p, u, call, threads):
    tiles = _tiles(call)
    for thread in prange(threads):
        _forward_tiles(
            z, c, p, u, call, thread * tiles // threads, (thread + 1) * tiles // threads
        )


@njit(**_OPTIONS)
def _forward_tiles(z, c, p, u, call, start, stop):
    centred = c is not None
    values = np.zeros((_rows(call), LANES), F)
    errors = np.zeros((_rows(call) if centred else 1, LANES), F)
    lane = np.zeros((ROWS, LANES), F)
    orders = _order_table(p)
    for tile in range(start, stop):
        first = _first_group(call, tile)
        groups = _read(z, c, call, tile, values, errors)
        _read_orders(orders, call, first, groups, lane)
        _find_largest(values, errors, call, lane, centred)
        _sum_powers(values, errors, lane, centred)
        if _has_infinite(lane):
            _count_infinite(values, None, lane)
        _take_root(call, lane)
        for j in range(groups):
            _store(u, first + j, lane[M, j] * lane[ROOT, j])


@_inlined
def _sum_powers(values, errors, lane, centred):
    s, lost = lane[S], lane[MOMENT]
    s[:] = F(0)
    lost[:] = F(0)
    for i in range(values.shape[0]):
        for j in range(LANES):
            log_r = _log2_ratio(values, errors, lane, centred, i, j)
            power = _ratio(values, lane, i, j) * _exp2(lane[PM1, j] * log_r, F(0)) - lost[j]
            total = s[j] + power
            lost[j] = (total - s[j]) - power  # compensated, for groups of hundreds
            s[j] = total


@njit(parallel=True, **_OPTIONS)
def _backward(grad, z, c, p, dz, dp, dc, call, threads):
    tiles = _tiles(call)
    for thread in prange(threads):
        _backward_tiles(
            grad,
            z,
            c,
            p,
            dz,
            dp[thread],
            None if dc is None else dc[thread],
            call,
            thread * tiles // threads,
            (thread + 1) * tiles // threads,
        )


@njit(**_OPTIONS)
def _backward_tiles(grad, z, c, p, dz, dp, dc, call, start, stop):
    centred = c is not None
    values = np.zeros((_rows(call), LANES), F)
    errors = np.zeros((_rows(call) if centred else 1, LANES), F)
    slopes = np.zeros((_rows(call), LANES), F)
    logs = np.zeros((_rows(call), LANES), F)
    lane = np.zeros((ROWS, LANES), F)
    orders = _order_table(p)
    for tile in range(start, stop):
        first = _first_group(call, tile)
        groups = _read(z, c, call, tile, values, errors)
        _read_orders(orders, call, first, groups, lane)
        _find_largest(values, errors, call, lane, centred)
        _sum_slopes(values, errors, slopes, logs, lane, centred)
        if _has_infinite(lane):
            _count_infinite(values, slopes, lane)
        _take_root(call, lane)
        for j in range(groups):
            lane[GRAD, j] = _load(grad, first + j)
        if call[LAYOUT] == LONG:
            _join(lane[MOMENT], S)
            _join(lane[LEAST], LEAST)
            lane[GRAD, :] = lane[GRAD, 0]
        for j in range(LANES):
            inverse = F(1) / lane[S, j]
            lane[MOMENT, j] *= inverse
            lane[FACTOR, j] = lane[GRAD, j] * lane[ROOT, j] * inverse
            lane[STEP_2, j] *= inverse
        _finish_slopes(values, slopes, logs, lane)
        if call[LAYOUT] == LONG:
            _join(lane[SPREAD], S)
        _order_gradient(lane, call, first, groups, dp)
        _write(dz, dc, call, tile, slopes)


@_inlined
def _sum_slopes(values, errors, slopes, logs, lane, centred):
    s, moment, least = lane[S], lane[MOMENT], lane[LEAST]
    s[:] = F(0)
    moment[:] = F(0)
    least[:] = F(0)
    for i in range(values.shape[0]):
        for j in range(LANES):
            log_r = _log2_ratio(values, errors, lane, centred, i, j)
            slope = _exp2(lane[PM1, j] * log_r, F(0))
            power = _ratio(values, lane, i, j) * slope
            slopes[i, j] = slope
            logs[i, j] = log_r
            s[j] += power
            moment[j] += power * log_r
            least[j] = _pick(log_r < least[j], log_r, least[j])


@_inlined
def _finish_slopes(values, slopes, logs, lane):
    """Turn the slopes into gradients, and sum what the order's gradient needs.

    SPREAD = sum_i w_i (exp(d_i) - 1 - d_i), where d_i is the mean of ln(r^p) minus ln(r_i^p), has no
    negative terms, and log(1 + SPREAD) is the divergence. The series serves groups whose powers are
    within a factor of e.
    """
    spread = lane[SPREAD]
    spread[:] = F(0)
    for i in range(values.shape[0]):
        for j in range(LANES):
            slope, b = slopes[i, j], values[i, j]
            d = (lane[PM1, j] + F(1)) * _LN_2 * (lane[MOMENT, j] - logs[i, j])
            y = F(1 / 362880)
            for c in _SERIES:
                y = y * d + c
            weight = _ratio(values, lane, i, j) * slope  # STEP_2 holds 1/s by now
            spread[j] += weight * (y * d * d)
            size = slope * lane[FACTOR, j]
            slopes[i, j] = _pick(b > F(0), size, _pick(b < F(0), -size, size * F(0)))


_SERIES = tuple(F(1 / x) for x in (40320, 5040, 720, 120, 24, 6, 2))


@_inlined
def _order_gradient(lane, call, first, groups, dp):
    at = (first // call[ORDER_STEP]) % call[ORDERS]
    for j in range(LANES):
        order = lane[PM1, j] + F(1)
        inverse = lane[INV_HIGH, j] + lane[INV_LOW, j]
        apart = order * lane[MOMENT, j] - lane[LOG_S, j]
        near = _log2_1p(lane[SPREAD, j])
        divergence = _pick(order * lane[LEAST, j] > -_LOG2_E, near, apart) * _LN_2
        slope = lane[ROOT, j] * divergence * inverse * inverse * lane[GRAD, j] * lane[M, j]
        lane[SPREAD, j] = _pick(lane[M, j] == _INF, F(0), slope)
    for j in range(groups):
        if call[ORDER_STEP] > 1:
            at = ((first + j) // call[ORDER_STEP]) % call[ORDERS]
        dp[at] += lane[SPREAD, j]
        at += 1
        if at == call[ORDERS]:
            at = 0


# ---------------------------------------------------------------- from tensors to arrays and back


class _Call:
    """z as (outer, N, inner) in the order of its memory, with flat arrays of orders and centres.

    The order of group g is ``p[g // step % len(p)]``; the centres repeat after ``centers`` outer
    rows. Broadcasts that do not fit into this are written out.
    """

    def __init__(self, z: Tensor, p: Tensor, center: Tensor | None, dim: int) -> None:
        order = list(range(z.ndim))
        if not z.is_contiguous():
            order.sort(key=lambda d: -z.stride(d))
            if not z.permute(order).is_contiguous():
                z = z.contiguous()
                order.sort()
        self.order_of_z = _inverse(order)
        self.shape = shape = [z.shape[d] for d in order]
        pooled = order.index(dim)
        n, inner = shape[pooled], math.prod(shape[pooled + 1 :])
        groups = math.prod(shape[:pooled]) * inner

        others = [d for d in order if d != dim]
        self.memory_order_of_out = [d - (d > dim) for d in others]
        self.out_order = _inverse(self.memory_order_of_out)
        self.out_shape = [z.shape[d] for d in others]

        p = p.detach()[(None,) * (z.ndim - p.ndim)].permute(order)
        varying = [d for d in range(z.ndim) if p.shape[d] != 1]
        full = [*shape[:pooled], 1, *shape[pooled + 1 :]]
        first, last = (varying[0], varying[-1]) if varying else (0, -1)
        if list(p.shape[first : last + 1]) != full[first : last + 1]:
            p, last = p.expand(full), z.ndim - 1
        self.p_shape = p.shape
        self.p = p.float().reshape(-1).numpy()
        step = math.prod(full[last + 1 :]) if varying else 1

        self.center, centers = None, 1
        if center is not None:
            c = center.detach()[(None,) * (z.ndim - center.ndim)].permute(order)
            first = next((d for d in range(pooled) if c.shape[d] != 1), pooled)
            centers = math.prod(shape[first:pooled])
            c = c.expand([1] * first + shape[first:])
            self.center_shape = c.shape
            self.center = c.float().reshape(-1).numpy()

        self.z = _array(z.permute(order))
        layout = SIDE_BY_SIDE if inner > 1 else IN_A_ROW if n <= LONGEST_COLUMN else LONG
        self.numbers = (layout, groups, n, inner, len(self.p), step, centers)
        available = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
        self.threads = available if z.numel() >= SMALLEST_PARALLEL else 1
        numba.set_num_threads(self.threads)


def _inverse(order: list[int]) -> list[int]:
    return [order.index(d) for d in range(len(order))]


def _array(t: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = t.detach().reshape(-1).view(_STORAGE[t.dtype]).numpy()
    return array


def forward(z: Tensor, p: Tensor, center: Tensor | None, dim: int) -> Tensor:
    """The pooled values, in the dtype of z."""
    call = _Call(z, p, center, dim)
    u = torch.empty(call.out_shape, dtype=z.dtype, device="cpu")
    if u.numel():
        _forward(call.z, call.center, call.p, _array(u), call.numbers, call.threads)
    return u.permute(call.out_order)


def backward(
    grad: Tensor,
    z: Tensor,
    p: Tensor,
    center: Tensor | None,
    dim: int,
    needs: tuple[bool, bool, bool],
) -> Gradients:
    """The gradients in z, p and center; sums over the batch run per thread, then in order."""
    call = _Call(z, p, center, dim)
    grad = grad.permute(call.memory_order_of_out).to(z.dtype).contiguous()
    dz = torch.empty(call.shape, dtype=z.dtype, device="cpu")
    dp = torch.zeros(call.threads, call.p.size)
    shared = call.center is not None and needs[2] and call.center.size < z.numel()
    dc = torch.zeros(call.threads, call.center.size) if shared else None
    if dz.numel():
        _backward(
            _array(grad),
            call.z,
            call.center,
            call.p,
            _array(dz),
            dp.numpy(),
            None if dc is None else dc.numpy(),
            call.numbers,
            call.threads,
        )
    dz = dz.permute(call.order_of_z)
    dcenter = None
    if center is not None and needs[2]:
        total = -dz.float() if dc is None else dc.sum(0).reshape(call.center_shape)
        total = total if dc is None else total.permute(call.order_of_z)
        dcenter = total.sum_to_size(center.shape).to(center.dtype)
    dp = dp.sum(0).reshape(call.p_shape).permute(call.order_of_z).sum_to_size(p.shape).to(p.dtype)
    return dz if needs[0] else None, dp if needs[1] else None, dcenter
