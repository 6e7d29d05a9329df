"""Numbers of twice the digits, each the sum of two: what orders near 0 need in double precision.

The root ``(s/n)^(1/p)`` multiplies the rounding errors of the mean by 1/p. Beside zeros, or in a
group of very different entries, that shows: here the mean is computed with 64 digits in base 2 and
more, so that only the rounding of the result is left. ``csrc/power_mean.h`` does the same.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

LN2 = math.log(2)
# ln(2)^k / k!: the first four in two parts, then those for which one is enough.
FIRST = (
    (0.6931471805599453, 2.3190468138462996e-17),
    (0.24022650695910072, -9.493931253182876e-18),
    (0.05550410866482158, -3.1658222903912804e-18),
    (0.009618129107628477, 2.8324606784381e-19),
)
REST = tuple(LN2**k / math.factorial(k) for k in range(5, 16))
FIRST_DIGITS = -(1 << 28)  # a mask: the product of two such numbers is exact


class Twofold(NamedTuple):
    """``high + low``, where low is what high has lost by rounding."""

    high: Tensor
    low: Tensor

    @classmethod
    def of(cls, a: Tensor) -> "Twofold":
        """A number that has lost nothing."""
        return cls(a, torch.zeros_like(a))

    @classmethod
    def total(cls, a: Tensor, b: Tensor) -> "Twofold":
        """The exact sum of two numbers (Knuth)."""
        high = a + b
        of_b = high - a
        return cls(high, (a - (high - of_b)) + (b - of_b))

    @classmethod
    def product(cls, a: Tensor, b: Tensor) -> "Twofold":
        """The exact product of two numbers (Dekker)."""
        high, a1, b1 = a * b, first_digits(a), first_digits(b)
        a2, b2 = a - a1, b - b1
        return cls(high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2)

    def plus(self, other: "Twofold") -> "Twofold":
        """The sum."""
        s = self.total(self.high, other.high)
        return self.total(s.high, s.low + (self.low + other.low))

    def times(self, other: "Twofold") -> "Twofold":
        """The product."""
        s = self.product(self.high, other.high)
        return self.total(s.high, s.low + (self.high * other.low + self.low * other.high))

    def over(self, other: "Twofold") -> "Twofold":
        """The quotient."""
        quotient = self.high / other.high
        rest = self.plus(other.times(Twofold.of(-quotient)))
        return self.total(quotient, rest.high / other.high)

    def times_two_to(self, exponent: Tensor) -> "Twofold":
        """The product with a power of two."""
        return Twofold(scaled(self.high, exponent), scaled(self.low, exponent))

    def where(self, condition: Tensor, other: "Twofold") -> "Twofold":
        """This one, or the other where the condition is false."""
        high, low = (torch.where(condition, a, b) for a, b in zip(self, other, strict=True))
        return Twofold(high, low)

    def sum(self, dim: int) -> "Twofold":
        """The pairwise sum along a dimension, which stays with size 1."""
        t = self
        while (size := t.high.shape[dim]) > 1:
            half, odd = size // 2, size % 2
            first, second, rest = (
                Twofold(*(part.narrow(dim, start, length) for part in t))
                for start, length in ((0, half), (half, half), (2 * half, odd))
            )
            pairs = zip(first.plus(second), rest, strict=True)
            t = Twofold(*(torch.cat(parts, dim) for parts in pairs))
        return t

    def exp2_less_1(self) -> "Twofold":
        """2^x - 1 for x from -1/2 to 1/2, with a relative error of 2^-65."""
        rest = torch.zeros_like(self.high)
        for coefficient in reversed(REST):
            rest = (rest + coefficient) * self.high
        y = Twofold.of(rest)
        for high, low in reversed(FIRST):
            y = y.plus(Twofold(torch.full_like(rest, high), torch.full_like(rest, low))).times(self)
        return y


def first_digits(a: Tensor) -> Tensor:
    """So few digits that a product has all of its own."""
    return (a.view(torch.int64) & FIRST_DIGITS).view(torch.float64)


def scaled(a: Tensor, exponent: Tensor) -> Tensor:
    """``a 2^exponent``, in two steps, of which none overflows alone."""
    n = exponent.clamp(-2040, 2040).long()
    for part in (n >> 1, n - (n >> 1)):
        a = a * ((part + 1023) << 52).view(torch.float64)
    return a


def power_mean(a: Tensor, m: Tensor, p: Tensor, w: Tensor, dim: int) -> Tensor:
    """The mean of order p of ``a``, of which m is the entry that dominates.

    What does not count has the weight 0 and is 0.
    """
    # log2(a/m) as a whole number, and what has all its digits.
    (a_digits, a_whole), (m_digits, m_whole) = torch.frexp(a), torch.frexp(m)
    alone = (a == 0) | a.isinf()  # counts in n alone
    nowhere = -torch.copysign(torch.full_like(p, 1e200), p)
    whole = torch.where(alone, nowhere, (a_whole - m_whole).to(a.dtype))
    part = torch.where(alone, 0, ((a_digits - m_digits) / m_digits).log1p() / LN2)

    # w (2^x - 1) and w 2^x with x = p log2(a/m).
    first = first_digits(p)
    x = Twofold(first * whole, (p - first) * whole + p * part)
    x = Twofold(x.high.clamp(min=-2040), torch.where(x.high < -2040, 0, x.low))
    exponent = (x.high + x.low).round()
    weight = Twofold.of(w.expand_as(a))
    grown = weight.times(Twofold.total(x.high - exponent, x.low).exp2_less_1())
    power = weight.plus(grown).times_two_to(exponent)
    less_1 = grown.where(exponent == 0, power.plus(Twofold.of(-weight.high)))

    n = weight.sum(dim)
    less_1, mean = less_1.sum(dim).over(n), power.sum(dim).over(n)
    near = less_1.high > -0.25
    # A first log2, and what it lacks: 2^G 2^-log - 1.
    log = torch.where(near, less_1.high.log1p() / LN2, mean.high.log2())
    exponent = (-log).round()
    down = mean.times_two_to(exponent)
    down = less_1.where(near, down.plus(Twofold.of(-torch.ones_like(log))))
    up = Twofold.of(-log - exponent).exp2_less_1()
    lack = down.plus(up).plus(down.times(up)).high / LN2
    root = log / p
    back = Twofold.product(root, p)
    rest = ((log - back.high) - back.low + lack) / p
    whole = (root + rest).clamp(-4000, 4000).round()
    digits = m_digits * ((root - whole) + rest).exp2()
    return scaled(digits, whole + m_whole)
