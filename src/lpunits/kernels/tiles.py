"""The compiled part of the CPU kernel: Python that Numba turns into SIMD code, one lane per group.

A call is cut into tiles of rows and LANES columns, one column per group, which stay in the
first-level cache; every loop over the lanes becomes SIMD code. Two layouts of z fill a tile:
groups side by side (``(batch, filters, units)``, pooled over the middle), and groups one after the
other (a contiguous last dimension), which are transposed on the way in and out. A long group is cut
into columns, which are joined after each step.

How single precision keeps its digits:

- ``log2(r)`` is taken from the exact difference of two mantissas, so its relative error stays small
  where r is near 1 and p is large; and from a difference of exponents where r underflows.
- ``z - center`` is rounded, and at large p a last digit decides, so the rounding error is kept too.
- p = inf is an order of 1e30 in the exponent, with 1/p = 0: no case of its own.
- The order's gradient is a sum of terms that are never negative where a group is nearly tied.

All of it is one file because Numba's cache looks at no other when it decides what is stale.
"""

from typing import Any

import numba
import numpy as np
from numba import njit, prange
from numba.extending import overload

LANES = 128

# Contracting a * b + c into one rounding is the only liberty that the compiler may take.
OPTIONS: dict[str, Any] = {"fastmath": {"contract"}, "error_model": "numpy", "cache": True}
inlined = njit(forceinline=True, **OPTIONS)

F, I32, U = np.float32, np.int32, np.uint64
HUGE, INF = F(1e30), F(np.inf)
LOG2_E, LN_2 = F(1.4426950408889634), F(0.6931471805599453)
_SMALLEST_NORMAL, _TWO_24, _ROUND = F(2.0**-126), F(2.0**24), F(1.5 * 2.0**23)


@inlined
def bits_of(x):
    """The bits of a number, as an integer."""
    return F(x).view(I32)


@inlined
def float_of(bits):
    """The number that has these bits."""
    return I32(bits).view(F)


@inlined
def pick(condition, a, b):
    """A choice that becomes a SIMD selection."""
    if condition:
        return a
    return b


@inlined
def log2_1p(v):
    """log2(1 + v) for v from 1/sqrt 2 - 1 to sqrt 2 - 1: a minimax polynomial, relative error 3e-8.

    The terms are paired, because a chain of nine products would be waited for.
    """
    a = F(1.4426950036520814) + F(-0.7213473468016658) * v
    b = F(0.48091064303096026) + F(-0.36070368303068034) * v
    c = F(0.28791624507083174) + F(-0.2389448138582872) * v
    d = F(0.2157156309784507) + F(-0.20726981566798947) * v
    square = v * v
    fourth = square * square
    high = (c + d * square) + F(0.1258370368985811) * fourth
    return ((a + b * square) + high * fourth) * v


@inlined
def exp2(whole, part):
    """2^(whole + part) for exponents of at most 0; ``whole`` may be large, ``part`` is small.

    2^f on [-1/2, 1/2] is a minimax polynomial with a relative error of 1e-8.
    """
    whole = pick(whole > F(-127), whole, F(-127))  # 2^-127 becomes 0
    rounded = (whole + part) + _ROUND
    f = (whole - (rounded - _ROUND)) + part
    a = F(0.6931471879267558) + F(0.24022649794956738) * f
    b = F(0.05550357433323085) + F(0.009618237494567593) * f
    c = F(0.001339073564551989) + F(0.00015403512726100687) * f
    square = f * f
    y = F(1) + (a + (b + c * square) * square) * f
    return y * float_of((bits_of(rounded) << I32(23)) + I32(0x3F800000))


@inlined
def power_of_two(exponent):
    """2^exponent, for a whole exponent from -126 to 127."""
    return float_of((I32(exponent) + I32(127)) << I32(23))


@inlined
def _normalised(a):
    """The bits of a, times 2^24 if it is denormal, and by how much its exponent is too high."""
    denormal = a < _SMALLEST_NORMAL
    return bits_of(pick(denormal, a * _TWO_24, a)), pick(denormal, F(24), F(0))


@inlined
def split(a):
    """A = mantissa * 2^exponent, with the mantissa from 1 to 2."""
    bits, excess = _normalised(a)
    mantissa = float_of(I32(bits & I32(0x7FFFFF)) | I32(0x3F800000))
    return mantissa, F(I32(bits >> I32(23))) - (excess + F(127))


@inlined
def log2_of_ratio(a, mantissa, exponent, reciprocal, low):
    """log2(a / m) as (whole, part), m = mantissa * 2^exponent, low = mantissa / sqrt 2.

    a is brought between m / sqrt 2 and m sqrt 2 by a power of two, where the difference to m is
    exact.
    """
    bits, excess = _normalised(a)
    shift = I32(I32(bits - bits_of(low)) >> I32(23))
    near = float_of(I32(bits - I32(shift << I32(23))))
    return F(shift) - (exponent + excess), log2_1p((near - mantissa) * reciprocal)


def load(array, index):
    """The value at ``index`` in single precision: bfloat16 comes as int16, float16 as uint16."""


@overload(load, inline="always")
def _load_by_storage(array, index):
    if array.dtype == numba.float32:
        return lambda array, index: array[index]
    if array.dtype == numba.int16:
        return lambda array, index: float_of(I32(array[index]) << I32(16))

    def load_half(array, index):
        half = I32(array[index])
        magnitude = I32(half & I32(0x7FFF))
        value = float_of(magnitude << I32(13)) * F(2.0**112)  # moves the exponent's bias
        value = pick(
            magnitude >= I32(0x7C00), float_of((magnitude << I32(13)) | I32(0x7F800000)), value
        )
        return pick(half > I32(0x7FFF), -value, value)

    return load_half


def store(array, index, value):
    """Round ``value`` to the nearest, ties to even, and write it."""


@overload(store, inline="always")
def _store_by_storage(array, index, value):
    if array.dtype == numba.float32:

        def store_single(array, index, value):
            array[index] = value

        return store_single
    if array.dtype == numba.int16:

        def store_bfloat(array, index, value):
            bits = bits_of(value)
            rounded = I32(bits + I32(0x7FFF) + I32(I32(bits >> I32(16)) & I32(1))) >> I32(16)
            array[index] = np.int16(pick(value != value, I32(0x7FC0), I32(rounded)))

        return store_bfloat

    def store_half(array, index, value):
        bits = bits_of(abs(value))
        # A normal number: round 13 bits away and move the exponent's bias by 112.
        normal = I32(bits + I32(0xFFF) + I32(I32(bits >> I32(13)) & I32(1))) >> I32(13)
        normal = pick(abs(value) < F(65520), I32(normal) - I32(112 << 10), I32(0x7C00))
        # A denormal one: adding 1/2 rounds to multiples of 2^-24.
        small = bits_of(abs(value) + F(0.5)) - bits_of(F(0.5))
        half = pick(abs(value) < F(2.0**-14), I32(small), I32(normal))
        half = pick(value != value, I32(0x7E00), half)
        array[index] = np.uint16(pick(bits_of(value) < I32(0), half | I32(0x8000), half))

    return store_half


# ---------------------------------------------------------------- steps on a tile of (rows, LANES)

# How the groups lie in memory, and with it what a column of a tile is.
SIDE_BY_SIDE, IN_A_ROW, LONG = 0, 1, 2
# The numbers that describe a call, in one tuple of integers.
LAYOUT, GROUPS, N, INNER, ORDERS, ORDER_STEP, CENTERS = range(7)
# The rows of the table of lanes: one number per group, or per column of a long group.
(PM1, INV_HIGH, INV_LOW, M, INVERSE, LOW, S, ROOT, LOG_S, GRAD, MOMENT, LEAST, SPREAD, FACTOR) = (
    range(14)
)
MANTISSA, EXPONENT, MANTISSA_LOW, STEP_1, STEP_2, M_ERROR, ERROR_SCALE = range(14, 21)
ROWS = 21


@inlined
def _subtract(x, c, values, errors, i, j, exact):
    """Put x - c into the tile and, if wanted, the rounding error of |x - c|."""
    b = x - c
    values[i, j] = b
    if exact:
        t = b - x
        error = (x - (b - t)) - (c + t)
        # Not a number where something is infinite; the sign is that of |b|.
        errors[i, j] = pick(error == error, pick(b < F(0), -error, error), F(0))


@inlined
def _place(call, tile):
    """Where the rows of a tile begin in z and in the centres, their distance, and their width."""
    n, inner = call[N], call[INNER]
    if call[LAYOUT] == LONG:
        return tile * n, (tile % call[CENTERS]) * n, LANES, n
    blocks = (inner + LANES - 1) // LANES
    outer, start = tile // blocks, (tile % blocks) * LANES
    c_at = (outer % call[CENTERS]) * n * inner + start
    return outer * n * inner + start, c_at, inner, inner - start


@inlined
def _next(at, step, period):
    """One step on, and back to 0 after a period: a division for each lane would be slow."""
    at += step
    return pick(at == period, U(0), at)


@inlined
def _read(z, c, call, tile, values, errors, exact):
    """Fill the tile; what is not filled becomes 0, which adds nothing.

    Indices are unsigned, as a signed one would be checked for a negative value, which is not SIMD;
    and no part of an array is given a name, as that would be counted as a reference, which is slow.
    """
    n = call[N]
    if call[LAYOUT] == IN_A_ROW:
        first = tile * LANES
        groups = min(LANES, call[GROUPS] - first)
        at, c_at = U(first * n), U(first % call[CENTERS] * n)
        if c is None or call[CENTERS] == 1:
            for i in range(U(n)):
                for j in range(U(groups)):
                    x = load(z, at + j * U(n) + i)
                    if c is None:
                        values[i, j] = x
                    else:
                        _subtract(x, c[i], values, errors, i, j, exact)
        else:
            for j in range(U(groups)):
                for i in range(U(n)):
                    _subtract(load(z, at + i), c[c_at + i], values, errors, i, j, exact)
                at += U(n)
                c_at = _next(c_at, U(n), U(call[CENTERS] * n))
        for i in range(n):
            for j in range(groups, LANES):
                values[i, j] = F(0)
    else:
        at, c_at, step, width = _place(call, tile)
        for i in range(U(values.shape[0])):
            lanes = min(LANES, width)
            for j in range(U(lanes)):
                if c is None:
                    values[i, j] = load(z, U(at) + j)
                else:
                    _subtract(load(z, U(at) + j), c[U(c_at) + j], values, errors, i, j, exact)
            for j in range(U(lanes), U(LANES)):
                values[i, j] = F(0)
            at += step
            c_at += step
            if call[LAYOUT] == LONG:
                width -= LANES


@inlined
def _write(dz, dc, call, tile, values):
    """The reverse of _read: gradients in z, and minus their sum for the centres."""
    n = call[N]
    if call[LAYOUT] == IN_A_ROW:
        first = tile * LANES
        at, c_at = U(first * n), U(first % call[CENTERS] * n)
        for j in range(U(min(LANES, call[GROUPS] - first))):
            for i in range(U(n)):
                store(dz, at + i, values[i, j])
            if dc is not None:
                for i in range(U(n)):
                    dc[c_at + i] -= values[i, j]
            at += U(n)
            c_at = _next(c_at, U(n), U(call[CENTERS] * n))
    else:
        at, c_at, step, width = _place(call, tile)
        for i in range(U(values.shape[0])):
            lanes = min(LANES, width)
            for j in range(U(lanes)):
                store(dz, U(at) + j, values[i, j])
            if dc is not None:
                for j in range(U(lanes)):
                    dc[U(c_at) + j] -= values[i, j]
            at += step
            c_at += step
            if call[LAYOUT] == LONG:
                width -= LANES


@inlined
def _read_orders(orders, call, first, groups, lane):
    """Copy what depends on the orders of this tile's groups into its lanes."""
    at = U(first // call[ORDER_STEP] % call[ORDERS])
    if call[ORDER_STEP] == 1 and at + groups <= call[ORDERS]:
        for j in range(U(groups)):
            lane[PM1, j] = orders[PM1, at + j]
            lane[INV_HIGH, j] = orders[INV_HIGH, at + j]
            lane[INV_LOW, j] = orders[INV_LOW, at + j]
    else:
        within = U(first % call[ORDER_STEP])
        for j in range(U(groups)):
            lane[PM1, j] = orders[PM1, at]
            lane[INV_HIGH, j] = orders[INV_HIGH, at]
            lane[INV_LOW, j] = orders[INV_LOW, at]
            within = _next(within, U(1), U(call[ORDER_STEP]))
            if within == 0:
                at = _next(at, U(1), U(call[ORDERS]))
    if call[LAYOUT] == LONG:
        for row in range(PM1, INV_LOW + 1):
            for j in range(LANES):
                lane[row, j] = lane[row, 0]


@inlined
def _order_table(p):
    """For each order: p - 1, and 1/p as a sum of which the first part has few digits."""
    table = np.empty((3, p.size), F)
    for j in range(p.size):
        order = pick(p[j] < HUGE, p[j], HUGE)
        inverse = F(1) / p[j]
        high = float_of(bits_of(inverse) & I32(-4096))
        table[PM1, j] = order - F(1)
        table[INV_HIGH, j] = high
        table[INV_LOW, j] = (F(1) - high * order) * inverse if p[j] < HUGE else F(0)
    return table


@inlined
def _join(lane, row, how):
    """One number for all lanes of a long group: the sum, or the extreme (a NaN is the largest)."""
    width = LANES // 2
    while width:
        for j in range(width):
            a, b = lane[row, j], lane[row, j + width]
            if how == S:
                lane[row, j] = a + b
            elif how == LEAST:
                lane[row, j] = pick(b < a, b, a)
            else:
                lane[row, j] = pick((b > a) | (b != b), b, a)
        width //= 2
    for j in range(LANES):
        lane[row, j] = lane[row, 0]


@inlined
def _find_largest(values, call, lane):
    """M = max |b| of each group, and whether plain arithmetic serves the whole tile.

    Bits of non-negative numbers are in the order of the numbers, and a NaN is beyond infinity. What
    needs care: denormal entries, and largest entries whose inverse is not a normal number.
    """
    for j in range(LANES):
        lane[M, j] = F(0)
        lane[LOW, j] = INF
    for i in range(values.shape[0]):
        for j in range(LANES):
            bits = I32(bits_of(values[i, j]) & I32(0x7FFFFFFF))
            lane[M, j] = float_of(pick(bits > bits_of(lane[M, j]), bits, bits_of(lane[M, j])))
            a = float_of(bits)
            lane[LOW, j] = pick((a < lane[LOW, j]) & (a > F(0)), a, lane[LOW, j])
    if call[LAYOUT] == LONG:
        _join(lane, M, M)
    careful = False
    for j in range(LANES):
        in_range = (lane[M, j] > F(2.0**-100)) & (lane[M, j] < F(2.0**100)) | (lane[M, j] == F(0))
        careful |= (lane[LOW, j] < _SMALLEST_NORMAL) | (not in_range)
        lane[INVERSE, j] = pick(lane[M, j] == F(0), F(0), F(1) / lane[M, j])
        lane[LOW, j] = lane[M, j] * F(0.70710678)
    return careful


@inlined
def _prepare_careful(values, errors, call, lane, exact):
    """What the ratios to M need where plain arithmetic would underflow, overflow or round."""
    for j in range(LANES):
        lane[M_ERROR, j] = -INF if exact else F(0)
    if exact:
        for i in range(values.shape[0]):
            for j in range(LANES):
                e = pick(abs(values[i, j]) == lane[M, j], errors[i, j], -INF)
                lane[M_ERROR, j] = pick(e > lane[M_ERROR, j], e, lane[M_ERROR, j])
        if call[LAYOUT] == LONG:
            _join(lane, M_ERROR, M)
    for j in range(LANES):
        mantissa, exponent = split(lane[M, j])
        lane[MANTISSA, j] = mantissa
        lane[EXPONENT, j] = exponent
        lane[MANTISSA_LOW, j] = mantissa * F(0.70710678)
        lane[INVERSE, j] = F(1) / mantissa
        # |b| / m in two steps, neither of which leaves the range of normal numbers.
        shift = pick(exponent > F(0), F(8), pick(exponent < F(-100), F(-24), F(0)))
        lane[STEP_1, j] = power_of_two(-shift)
        step = pick(lane[M, j] == F(0), F(0), lane[INVERSE, j] * power_of_two(shift - exponent))
        lane[STEP_2, j] = step
        no_error = (not exact) | (lane[M, j] == INF) | (exponent < F(-100))
        lane[ERROR_SCALE, j] = pick(no_error, F(0), step * lane[STEP_1, j] * LOG2_E)
        infinite = lane[M, j] == INF
        lane[INV_HIGH, j] = pick(infinite, F(0), lane[INV_HIGH, j])
        lane[INV_LOW, j] = pick(infinite, F(0), lane[INV_LOW, j])


@inlined
def _log2_ratio(values, errors, lane, i, j, careful):
    """log2(r), r = |b| / m."""
    a = abs(values[i, j])
    if careful:
        whole, part = log2_of_ratio(
            a, lane[MANTISSA, j], lane[EXPONENT, j], lane[INVERSE, j], lane[MANTISSA_LOW, j]
        )
        return whole + (part + (errors[i, j] - lane[M_ERROR, j]) * lane[ERROR_SCALE, j])
    shift = I32(I32(bits_of(a) - bits_of(lane[LOW, j])) >> I32(23))
    near = float_of(I32(bits_of(a) - I32(shift << I32(23))))
    return F(shift) + log2_1p((near - lane[M, j]) * lane[INVERSE, j])


@inlined
def _ratio(values, lane, i, j, careful):
    """The ratio |b| / m, exactly 1 for the largest."""
    a = abs(values[i, j])
    r = (a * lane[STEP_1, j]) * lane[STEP_2, j] if careful else a * lane[INVERSE, j]
    return pick(a == lane[M, j], F(1), r)


@inlined
def _take_root(call, lane):
    """ROOT = (s / N)^(1/p) and LOG_S = log2(s / N)."""
    if call[LAYOUT] == LONG:
        _join(lane, S, S)
    per_entry = F(1) / F(call[N])
    for j in range(LANES):
        # A group of zeros has no ratios; its weights are equal.
        s = pick(lane[M, j] == F(0), F(call[N]), lane[S, j])
        lane[S, j] = s
        whole, part = log2_of_ratio(s * per_entry, F(1), F(0), F(1), F(0.70710678))
        lane[LOG_S, j] = whole + part
        inverse = lane[INV_HIGH, j] + lane[INV_LOW, j]
        lane[ROOT, j] = exp2(whole * lane[INV_HIGH, j], whole * lane[INV_LOW, j] + part * inverse)


@inlined
def _count_infinite(values, slopes, lane):
    """A group with infinite entries is their maximum; it is put right afterwards."""
    for j in range(LANES):
        if lane[M, j] == INF:
            count = F(0)
            for i in range(values.shape[0]):
                largest = F(1) if abs(values[i, j]) == INF else F(0)
                count += largest
                if slopes is not None:
                    slopes[i, j] = largest
            lane[S, j] = count
            lane[MOMENT, j] = F(0)


# ---------------------------------------------------------------- the two passes


@inlined
def _tiles(call):
    if call[LAYOUT] == SIDE_BY_SIDE:
        return call[GROUPS] // call[INNER] * ((call[INNER] + LANES - 1) // LANES)
    if call[LAYOUT] == IN_A_ROW:
        return (call[GROUPS] + LANES - 1) // LANES
    return call[GROUPS]


@inlined
def _first_group(call, tile):
    if call[LAYOUT] == SIDE_BY_SIDE:
        blocks = (call[INNER] + LANES - 1) // LANES
        return tile // blocks * call[INNER] + tile % blocks * LANES
    if call[LAYOUT] == IN_A_ROW:
        return tile * LANES
    return tile


@inlined
def _groups_of(call, tile, first):
    if call[LAYOUT] == SIDE_BY_SIDE:
        return min(LANES, call[INNER] - first % call[INNER])
    return 1 if call[LAYOUT] == LONG else min(LANES, call[GROUPS] - first)


@inlined
def _load_tile(z, c, orders, call, tile, values, errors, lane, exact):
    """Read a tile and its orders, and find the largest entries: first group, groups, and care."""
    first = _first_group(call, tile)
    groups = _groups_of(call, tile, first)
    _read_orders(orders, call, first, groups, lane)
    large = False
    for j in range(LANES):
        large |= lane[PM1, j] > F(63)
    if exact and c is not None and large:
        # Beyond an order of 64 the rounding of z - center would show in the gradient.
        _read(z, c, call, tile, values, errors, True)
        _find_largest(values, call, lane)
        _prepare_careful(values, errors, call, lane, True)
        return first, groups, True
    _read(z, c, call, tile, values, errors, False)
    careful = _find_largest(values, call, lane)
    if careful:
        _prepare_careful(values, errors, call, lane, False)
    return first, groups, careful


@inlined
def _rows(call):
    return (call[N] + LANES - 1) // LANES if call[LAYOUT] == LONG else call[N]


@njit(parallel=True, **OPTIONS)
def _forward_parallel(z, c, p, u, call, threads):
    tiles = _tiles(call)
    for thread in prange(threads):
        _forward_tiles(z, c, p, u, call, thread * tiles // threads, (thread + 1) * tiles // threads)


@njit(**OPTIONS)
def _forward_tiles(z, c, p, u, call, start, stop):
    values = np.zeros((_rows(call), LANES), F)
    errors = np.zeros((_rows(call), LANES), F)
    lane = np.zeros((ROWS, LANES), F)
    orders = _order_table(p)
    for tile in range(start, stop):
        first, groups, careful = _load_tile(z, c, orders, call, tile, values, errors, lane, False)
        if careful:
            _sum_powers(values, errors, lane, True)
            _count_infinite(values, None, lane)
        else:
            _sum_powers(values, errors, lane, False)
        _take_root(call, lane)
        for j in range(U(groups)):
            store(u, U(first) + j, lane[M, j] * lane[ROOT, j])


@inlined
def _sum_powers(values, errors, lane, careful):
    """S = sum_i r_i^p: eight entries at a time, and what the sum of these loses in MOMENT."""
    for j in range(LANES):
        lane[S, j] = F(0)
        lane[MOMENT, j] = F(0)
    for start in range(0, values.shape[0], 8):
        for j in range(LANES):
            lane[SPREAD, j] = F(0)
        for i in range(start, min(start + 8, values.shape[0])):
            for j in range(LANES):
                log_r = _log2_ratio(values, errors, lane, i, j, careful)
                power = _ratio(values, lane, i, j, careful) * exp2(lane[PM1, j] * log_r, F(0))
                lane[SPREAD, j] += power
        for j in range(LANES):
            part = lane[SPREAD, j] - lane[MOMENT, j]
            total = lane[S, j] + part
            lane[MOMENT, j] = (total - lane[S, j]) - part
            lane[S, j] = total


@njit(parallel=True, **OPTIONS)
def _backward_parallel(grad, z, c, p, dz, dp, dc, call, threads):
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


@njit(**OPTIONS)
def _backward_tiles(grad, z, c, p, dz, dp, dc, call, start, stop):
    values = np.zeros((_rows(call), LANES), F)
    errors = np.zeros((_rows(call), LANES), F)
    slopes = np.zeros((_rows(call), LANES), F)
    logs = np.zeros((_rows(call), LANES), F)
    lane = np.zeros((ROWS, LANES), F)
    orders = _order_table(p)
    for tile in range(start, stop):
        first, groups, careful = _load_tile(z, c, orders, call, tile, values, errors, lane, True)
        if careful:
            _sum_slopes(values, errors, slopes, logs, lane, True)
            _count_infinite(values, slopes, lane)
        else:
            _sum_slopes(values, errors, slopes, logs, lane, False)
        _take_root(call, lane)
        for j in range(U(groups)):
            lane[GRAD, j] = load(grad, U(first) + j)
        if call[LAYOUT] == LONG:
            _join(lane, MOMENT, S)
            _join(lane, LEAST, LEAST)
            for j in range(LANES):
                lane[GRAD, j] = lane[GRAD, 0]
        tied = _divergence(call, lane)
        if tied:
            if careful:
                _sum_spread(values, slopes, logs, lane, True)
            else:
                _sum_spread(values, slopes, logs, lane, False)
        _add_order_gradient(lane, call, first, groups, tied, dp)
        for i in range(values.shape[0]):
            for j in range(LANES):
                size = slopes[i, j] * lane[FACTOR, j]
                signed = float_of(bits_of(size) ^ (bits_of(values[i, j]) & I32(-(2**31))))
                slopes[i, j] = pick(values[i, j] == F(0), size * F(0), signed)
        _write(dz, dc, call, tile, slopes)


@inlined
def _sum_slopes(values, errors, slopes, logs, lane, careful):
    """The slopes r^(p-1), S = sum_i r_i^p, MOMENT = sum_i r_i^p log2 r_i, LEAST = min log2 r_i."""
    for j in range(LANES):
        lane[S, j] = F(0)
        lane[MOMENT, j] = F(0)
        lane[LEAST, j] = F(0)
    for i in range(values.shape[0]):
        for j in range(LANES):
            log_r = _log2_ratio(values, errors, lane, i, j, careful)
            slope = exp2(lane[PM1, j] * log_r, F(0))
            power = _ratio(values, lane, i, j, careful) * slope
            slopes[i, j] = slope
            logs[i, j] = log_r
            lane[S, j] += power
            lane[MOMENT, j] += power * log_r
            lane[LEAST, j] = pick(log_r < lane[LEAST, j], log_r, lane[LEAST, j])


@inlined
def _divergence(call, lane):
    """SPREAD = the divergence of the weights, in bits; whether some are too small to be exact."""
    tied = False
    for j in range(LANES):
        inverse = F(1) / lane[S, j]
        mean = lane[MOMENT, j] * inverse
        lane[MOMENT, j] = mean
        lane[FACTOR, j] = lane[GRAD, j] * lane[ROOT, j] * inverse
        lane[S, j] = inverse
        divergence = (lane[PM1, j] + F(1)) * mean - lane[LOG_S, j]
        # Where the powers are within a factor of e the series of _sum_spread serves.
        near = (lane[PM1, j] + F(1)) * lane[LEAST, j] > -LOG2_E
        tied |= near & (divergence < F(0.03)) & (lane[M, j] > F(0))
        lane[LEAST, j] = pick(near, F(1), F(0))
        lane[SPREAD, j] = divergence
    return tied


@inlined
def _sum_spread(values, slopes, logs, lane, careful):
    """LOG_S = sum_i w_i (exp(d_i) - 1 - d_i), where d_i is the mean of ln(r^p) minus ln(r_i^p).

    No term is negative, and the divergence is log(1 + LOG_S).
    """
    for j in range(LANES):
        lane[LOG_S, j] = F(0)
    for i in range(values.shape[0]):
        for j in range(LANES):
            d = (lane[PM1, j] + F(1)) * LN_2 * (lane[MOMENT, j] - logs[i, j])
            y = F(1 / 362880)
            for c in _SERIES:
                y = y * d + c
            weight = _ratio(values, lane, i, j, careful) * slopes[i, j] * lane[S, j]
            lane[LOG_S, j] += weight * (y * d * d)


_SERIES = tuple(F(1 / x) for x in (40320, 5040, 720, 120, 24, 6, 2))


@inlined
def _add_order_gradient(lane, call, first, groups, tied, dp):
    """du/dp = u / p^2 times the divergence, summed over the groups that share an order."""
    if tied:
        if call[LAYOUT] == LONG:
            _join(lane, LOG_S, S)
        for j in range(LANES):
            exact = log2_1p(lane[LOG_S, j])
            lane[SPREAD, j] = pick(lane[LEAST, j] == F(1), exact, lane[SPREAD, j])
    for j in range(LANES):
        inverse = lane[INV_HIGH, j] + lane[INV_LOW, j]
        slope = lane[ROOT, j] * lane[SPREAD, j] * LN_2 * inverse * inverse
        slope = slope * lane[GRAD, j] * lane[M, j]
        lane[SPREAD, j] = pick(lane[M, j] == INF, F(0), slope)
    at = U(first // call[ORDER_STEP] % call[ORDERS])
    if call[ORDER_STEP] == 1 and at + groups <= call[ORDERS]:
        for j in range(U(groups)):
            dp[at + j] += lane[SPREAD, j]
    else:
        within = U(first % call[ORDER_STEP])
        for j in range(U(groups)):
            dp[at] += lane[SPREAD, j]
            within = _next(within, U(1), U(call[ORDER_STEP]))
            if within == 0:
                at = _next(at, U(1), U(call[ORDERS]))


def forward(z, c, p, u, call, threads):
    """Pool all groups; ``call`` holds the numbers named LAYOUT to CENTERS."""
    if threads == 1:  # without entering a parallel region
        _forward_tiles(z, c, p, u, call, 0, _tiles(call))
    else:
        _forward_parallel(z, c, p, u, call, threads)


def backward(grad, z, c, p, dz, dp, dc, call, threads):
    """Gradients of all groups: dz itself, and a row of dp and of dc for each thread."""
    if threads == 1:
        row = None if dc is None else dc[0]
        _backward_tiles(grad, z, c, p, dz, dp[0], row, call, 0, _tiles(call))
    else:
        _backward_parallel(grad, z, c, p, dz, dp, dc, call, threads)
