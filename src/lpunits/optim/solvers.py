"""The solvers of the optimiser: for a positive linear system, and for a search in few dimensions.

Both Krylov solvers stop by the true residual b - A x, not by that of their recurrence, which drifts
away from it in finite precision.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

Operator = Callable[[Tensor], Tensor]


class Solution(NamedTuple):
    """x, its relative residual |b - A x| / |b|, and the number of products with A."""

    x: Tensor
    residual: float
    products: int


def conjugate_gradient(A: Operator, b: Tensor, tolerance: float, products: int) -> Solution:
    """Solve A x = b for a symmetric positive A: the smallest error in the norm of A."""

    def cycle(x: Tensor, r: Tensor, left: int, small: float) -> tuple[Tensor, int]:
        d, rr, used = r, r @ r, 0
        while used < left and rr.sqrt() > small:
            Ad = A(d)
            used += 1
            bend = d @ Ad
            if not bend > 0:  # only rounding errors are left, or A is not positive
                break
            x = x + rr / bend * d
            r = r - rr / bend * Ad
            rr, before = r @ r, rr
            d = r + rr / before * d
        return x, used

    return _checked(cycle, A, b, tolerance, products)


def minimal_residual(A: Operator, b: Tensor, tolerance: float, products: int) -> Solution:
    """Solve A x = b for a symmetric positive A: the smallest residual, as MINRES.

    For a positive A conjugate residuals are the same as MINRES, in fewer lines.
    """

    def cycle(x: Tensor, r: Tensor, left: int, small: float) -> tuple[Tensor, int]:
        if left < 2:
            return x, left
        d, Ar = r, A(r)
        Ad, rAr, used = Ar, r @ Ar, 1
        while used < left and r.norm() > small and rAr > 0:
            step = rAr / (Ad @ Ad)
            x, r = x + step * d, r - step * Ad
            Ar = A(r)
            used += 1
            rAr, before = r @ Ar, rAr
            d, Ad = r + rAr / before * d, Ar + rAr / before * Ad
        return x, used

    return _checked(cycle, A, b, tolerance, products)


def _checked(
    cycle: Callable[[Tensor, Tensor, int, float], tuple[Tensor, int]],
    A: Operator,
    b: Tensor,
    tolerance: float,
    products: int,
) -> Solution:
    """Run the recurrence and restart it from the true residual as long as that falls."""
    size, used = float(b.norm()), 0
    x, r = b.new_zeros(b.shape), b
    while r.norm() > tolerance * size and used < products - 1:
        found, more = cycle(x, r, products - 1 - used, tolerance * size)
        left = b - A(found)
        used += more + 1
        if not left.norm() < r.norm():
            break
        x, r = found, left
    return Solution(x, float(r.norm()) / size if size else 0.0, used)


Corner = tuple[float, tuple[float, ...]]  # the value at a point, and the point


def nelder_mead(
    f: Callable[[tuple[float, ...]], float],
    corners: Sequence[Corner],
    evaluations: int,
    tolerance: float,
) -> Corner:
    """Minimise f from a simplex with known values, with at most this many evaluations.

    The search ends early when the values at the corners differ by less than ``tolerance`` times
    the difference of the first corners. A NaN counts as the largest value.
    """
    used, size = 0, len(corners) - 1

    def evaluate(*x: float) -> Corner:
        nonlocal used
        used += 1
        return _worst_if_nan(f(x)), x

    def along(t: float) -> Corner:
        """The last corner reflected at the centroid of the others, at t times its distance."""
        last = corners[-1][1]
        return evaluate(*(m + t * (m - x) for m, x in zip(middle, last, strict=True)))

    corners = sorted((_worst_if_nan(value), point) for value, point in corners)
    finite = [value for value, _ in corners if value < math.inf]
    enough = tolerance * (finite[-1] - finite[0]) if finite else 0.0
    while used < evaluations and corners[-1][0] - corners[0][0] >= enough:
        middle = [sum(x) / size for x in zip(*(point for _, point in corners[:-1]), strict=True)]
        new = along(1.0)
        if used == evaluations:
            pass
        elif new[0] < corners[0][0]:
            new = min(new, along(2.0))
        elif new[0] >= corners[-2][0]:
            new = min(new, along(0.5 if new[0] < corners[-1][0] else -0.5))
        if new[0] < corners[-1][0]:
            corners[-1] = new
        else:  # nothing helped: shrink towards the best corner
            _, best = corners[0]
            for k, (_, point) in enumerate(corners[1:], start=1):
                if used < evaluations:
                    middle = [(a + b) / 2 for a, b in zip(best, point, strict=True)]
                    corners[k] = evaluate(*middle)
        corners.sort()
    return corners[0]


def _worst_if_nan(value: float) -> float:
    return math.inf if math.isnan(value) else value
