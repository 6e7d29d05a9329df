"""Logarithm, exponential and sum with all their digits, in Triton, for the kernel in cuda.py.

They are made of additions, products, divisions and bit operations only: the logarithm and the
exponential of the hardware are approximations, differ from the interpreter's, and have no digits
left of ``log2`` near 1 and of ``2^y - 1`` near 0.
"""

# The bodies are in Triton's language, which has no types for mypy.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import math

import triton
import triton.language as tl

INF = tl.constexpr(math.inf)
LN2 = tl.constexpr(math.log(2))
UPSCALE = tl.constexpr(2.0**64)  # takes a denormal number to a normal one
# artanh(t) = t + t^3 sum_j ARTANH[j] t^2j;  exp(t) = 1 + t + t^2 sum_j EXP[j] t^j
ARTANH = tl.constexpr(tuple(1 / (2 * j + 3) for j in range(10)))
EXP = tl.constexpr(tuple(1 / math.factorial(j + 2) for j in range(12)))


@triton.jit
def polynomial(x, COEFFICIENTS: tl.constexpr, TERMS: tl.constexpr):
    """``sum_j COEFFICIENTS[j] x^j`` of the first TERMS coefficients."""
    value = tl.zeros_like(x)
    for j in tl.static_range(TERMS):
        value = value * x + COEFFICIENTS[TERMS - 1 - j]
    return value


@triton.jit
def power_of_2(n, like):
    """``2^n`` for an integer n, in the dtype of ``like``, straight from the bits."""
    DOUBLE: tl.constexpr = like.dtype == tl.float64
    INTEGER: tl.constexpr = tl.int64 if DOUBLE else tl.int32
    bits = (n.to(INTEGER) + (1023 if DOUBLE else 127)) << (52 if DOUBLE else 23)
    return bits.to(like.dtype, bitcast=True)


@triton.jit
def _split(a):
    """A positive number as (f, e) with ``a = f 2^e`` and f from 1 to 2."""
    DOUBLE: tl.constexpr = a.dtype == tl.float64
    DIGITS: tl.constexpr = 52 if DOUBLE else 23
    BIAS: tl.constexpr = 1023 if DOUBLE else 127
    denormal = a < (2.0**-1022 if DOUBLE else 2.0**-126)
    bits = (a * tl.where(denormal, UPSCALE, 1.0)).to(tl.int64 if DOUBLE else tl.int32, bitcast=True)
    e = (bits >> DIGITS) - tl.where(denormal, BIAS + 64, BIAS)
    f = (bits & ((1 << DIGITS) - 1)) | (BIAS << DIGITS)
    return f.to(a.dtype, bitcast=True), e.to(tl.int32)


@triton.jit
def log2_ratio(a, low, m, low_m, COMPENSATED: tl.constexpr):
    """``log2((a + low) / (m + low_m))`` as an integer and a rest within 1/2; NaN if a is.

    If the integer is 0, the rest has all its digits, however close to 1 the ratio is.
    """
    f, e = _split(a)
    fm, em = _split(m)
    above, below = f > 1.4142135 * fm, f < 0.70710678 * fm
    f *= tl.where(above, 0.5, tl.where(below, 2.0, 1.0))
    whole = e - em + above.to(tl.int32) - below.to(tl.int32)
    difference = f - fm  # exact: the two are within a factor of 2
    if COMPENSATED:
        half = em >> 1  # 2^-em itself may be out of range
        rest = (low - low_m) * power_of_2(-half, a) * power_of_2(half - em, a)
        difference += tl.where(whole == 0, rest, 0.0)
    t = difference / (2 * fm + difference)
    series = polynomial(t * t, ARTANH, 10 if a.dtype == tl.float64 else 4)
    rest = (2.0 / LN2) * (t + t * (t * t * series))
    return whole.to(a.dtype), tl.where(a == a, rest, a)


@triton.jit
def exp2(y):
    """``2^y`` and ``2^y - 1``, both with all their digits."""
    LOWEST: tl.constexpr = -1022.0 if y.dtype == tl.float64 else -126.0
    vanishes = y < LOWEST
    y = tl.where(vanishes, LOWEST, y)
    n = tl.floor(tl.where(y == y, y, 0.0) + 0.5)
    t = (y - n) * LN2
    less_1 = t + t * t * polynomial(t, EXP, 12 if y.dtype == tl.float64 else 6)
    scale = power_of_2(n, y)
    power = tl.where(vanishes, 0.0, scale * less_1 + scale)
    return power, tl.where(vanishes, -1.0, scale * less_1 + (scale - 1.0))


@triton.jit
def column_sum(tile):
    """The sum of each column; by parts of 32 if it is long, for the sake of the last digits."""
    if tile.shape[0] > 32:
        tile = tl.sum(tl.reshape(tile, [tile.shape[0] // 32, 32, tile.shape[1]]), axis=1)
    return tl.sum(tile, axis=0)
