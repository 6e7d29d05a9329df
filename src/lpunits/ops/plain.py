r"""The operator in plain torch, for every device and dtype: a stable form, its own derivatives.

With ``b = z - center``, weights w with the sum n, and m, the entry that dominates (the largest
``|b_i|``, or the smallest where p < 0), everything is written in ``l_i = log(|b_i| / m)``. So
``p l_i`` is at most 0, and nothing overflows:

.. math::

    G = \log \frac{1}{n} \sum_i w_i e^{p l_i}, \qquad u = m e^{G/p}, \qquad
    \frac{\partial u}{\partial b_i} = \mathrm{sign}(b_i) \frac{w_i}{n} e^{(p-1) l_i - G + G/p},
    \qquad \frac{\partial u}{\partial w_i} = \frac{u}{n} \frac{e^{p l_i - G} - 1}{p},
    \qquad \frac{\partial u}{\partial p} = \frac{u}{p^2} \, \mathrm{KL}(v),
    \quad v_i = \frac{w_i}{n} e^{p l_i - G}.

``KL(v) = sum_i v_i ln(n v_i / w_i)`` is how far the shares of the entries are from their weights.
``p = inf`` needs no case of its own: ``e^{p l}`` is 1 at the largest entries and 0 elsewhere. Nor
does p = 0, where everything is smooth: 1e-92 takes its place.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lpunits.ops.twofold import power_mean

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]

LARGE_ORDER = (
    32  # r^p multiplies the rounding error of r by p: beyond, single precision loses digits
)


def forward(
    z: Tensor, p: Tensor, center: Tensor | None, dim: int, weight: Tensor | None = None
) -> Tensor:
    """The pooled values, in the dtype of z.

    Single precision serves float32 and half from p = 1 on: there u is a mean of the entries, in
    which the rounding errors of their powers are divided by p again. All else needs double.
    """
    if z.dtype == torch.float64 or weight is not None:
        mean = _Mean.of(z, p, center, dim, weight)
        u = mean.u
        # G/p multiplies its rounding error: by itself where it is large, and by 1/p.
        hard = ~mean.dead & ((mean.p.abs() < 4) | (mean.G.abs() > 4 * mean.p.abs()))
        if z.dtype == torch.float64 and hard.any():
            u = torch.where(hard, power_mean(mean.b.abs(), mean.m, mean.p, mean.w, dim), u)
        return u.squeeze(dim).to(z.dtype)
    b = _centered(z, center, torch.float32)
    a = b.abs()
    m = a.amax(dim, keepdim=True)
    p = p.to(a.dtype)
    r = a.div_(torch.where(m == 0, 1, m))
    u = m * r.pow_(p).mean(dim, keepdim=True).pow(1 / p)
    u, hard = u.squeeze(dim).to(z.dtype), (~m.isfinite() | (p < 1)).squeeze(dim)
    if hard.any():
        where = hard.nonzero(as_tuple=True)
        u[where] = _Mean.of(*_groups(z, p, center, dim, where), 1).u.squeeze(1).to(z.dtype)
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
    """The gradients in z, p and center, each in its dtype and shape, and by each entry's weight.

    In single precision where that has the digits, and again in double for the groups where it has
    not: orders below 1 or large, entries that overflow or are nearly tied.
    """
    by_weight = None
    if z.dtype == torch.float64 or weight is not None:
        mean = _Mean.of(z, p, center, dim, weight)
        db, slope = (grad.unsqueeze(dim) * t for t in mean.slopes(dim))
        if weight is not None and needs[3:] == (True,):
            by_weight = (grad.unsqueeze(dim) * mean.slopes_by_weight()).to(
                torch.promote_types(z.dtype, torch.float32)
            )
    else:
        db, slope, hard = _slopes_in_single(grad.unsqueeze(dim), z, p, center, dim, needs[1])
        if hard.any():
            where = hard.nonzero(as_tuple=True)
            again = _Mean.of(*_groups(z, p, center, dim, where), 1).slopes(1)
            db_again, slope_again = (grad[where].unsqueeze(1) * t for t in again)
            db.movedim(dim, -1)[where] = db_again.to(db.dtype)
            slope.squeeze(dim)[where] = slope_again.squeeze(1)
    dz = db.to(z.dtype) if needs[0] else None
    dp = slope.sum_to_size(p.shape).to(p.dtype) if needs[1] else None
    if center is None or not needs[2]:
        return dz, dp, None, by_weight
    return dz, dp, -db.sum_to_size(center.shape).to(center.dtype), by_weight


def wide_dtype(z: Tensor) -> torch.dtype:
    """Double, but for devices that have none, and in exported graphs, which run on such devices."""
    double = z.dtype == torch.float64 or not (z.is_mps or torch.compiler.is_exporting())
    return torch.float64 if double else torch.float32


def _centered(z: Tensor, center: Tensor | None, dtype: torch.dtype) -> Tensor:
    z = z.to(dtype)
    return z if center is None else z - center.to(dtype)


def _groups(
    z: Tensor, p: Tensor, center: Tensor | None, dim: int, where: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Some of the groups, as rows, with their orders and centers."""
    one = z.select(dim, 0).unsqueeze(dim).shape
    centers = None if center is None else center.expand(z.shape).movedim(dim, -1)[where]
    return z.movedim(dim, -1)[where], p.expand(one).movedim(dim, -1)[where], centers


def _slopes_in_single(
    grad: Tensor, z: Tensor, p: Tensor, center: Tensor | None, dim: int, need_p: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """``grad`` times du/db and du/dp, and which groups single precision cannot serve."""
    p = p.to(torch.float32)
    b = _centered(z, center, p.dtype)
    a = b.abs()
    m = a.amax(dim, keepdim=True)
    scale = torch.where(m == 0, 1, m)
    r = a / scale
    q = r.pow(p - 1)
    s = torch.where(m == 0, 1, r.mul_(q).sum(dim, keepdim=True))
    k = (s / z.shape[dim]).pow(1 / p)
    db = b.sign().mul_(q).mul_(grad * k / s)
    # At p = inf nothing is rounded but z - center, which may change what is the largest.
    large = (p > LARGE_ORDER) & (p.isfinite() if center is None else True)
    hard = ~m.isfinite() | large | (p < 1)
    slow = (p > 1) & (p < 1.2)  # a power so slow that it counts when r is too small for a float
    if slow.any():
        hard = hard | (slow & ((a != 0) & (q == 0)).any(dim, keepdim=True))
    if not need_p:
        return db, m, hard.squeeze(dim)
    # x = p ln r from the exact difference a - m, so that it has its digits where r is near 1.
    p = torch.where(p.isinf(), 0, p)
    x = a.sub_(m).div_(scale).log1p_().clamp_(min=-100).mul_(p)
    t = x.expm1()
    mean = t.mean(dim, keepdim=True)
    weight = z.shape[dim] * (1 + mean)
    divergence = x.addcmul_(t, x).sum(dim, keepdim=True) / weight - mean.log1p()
    # In double, because a sum of large slopes may overflow where their difference does not.
    slope = torch.where(p == 0, 0, divergence / p**2).to(wide_dtype(z)) * (m * k) * grad
    # The rounding of z - center shows where entries differ by less than 1 %.
    least = 4e-3 if center is None else (2e-5 * p**2).clamp(min=4e-3)
    return db, slope, (hard | ((divergence < least) & (mean != 0))).squeeze(dim)


class _Mean(NamedTuple):
    """The mean of any order, in double precision; the names of the formulas above."""

    b: Tensor
    p: Tensor
    w: Tensor
    n: Tensor
    m: Tensor
    l: Tensor  # noqa: E741
    y: Tensor  # p l
    G: Tensor
    u: Tensor
    outside: Tensor  # entries without a gradient
    dead: Tensor  # groups without a gradient

    @classmethod
    def of(
        cls, z: Tensor, p: Tensor, center: Tensor | None, dim: int, weight: Tensor | None = None
    ) -> "_Mean":
        b = _centered(z, center, wide_dtype(z))
        w = checked_weight(weight, b)
        b = torch.where(w == 0, 0, b)
        a, p = b.abs(), p.to(b.dtype)
        n = w.expand_as(b).sum(dim, keepdim=True)
        least = torch.where(w == 0, torch.inf, a).amin(dim, keepdim=True)
        most = a.amax(dim, keepdim=True)
        m = torch.where(p < 0, least, most)
        dead = (n == 0) | (most == 0) | ((p <= 0) & (least == 0))
        n = torch.where(n == 0, 1, n)
        p = torch.where(m.isinf(), torch.inf, p)  # an infinite entry is the maximum
        p = p.abs().clamp(min=torch.finfo(p.dtype).tiny ** 0.3).copysign(p)
        l = torch.where(a == m, 0, _log_ratio(a, m))  # noqa: E741
        nowhere = ((a == 0) | a.isinf()) & (a != m)  # entries that count in n alone
        y = torch.where(l == 0, 0, p * l).masked_fill(nowhere, -torch.inf)
        less_1 = (w * y.expm1()).sum(dim, keepdim=True) / n
        far = ((w * y.exp()).sum(dim, keepdim=True) / n).log()
        G = torch.where(less_1 < -0.5, far, less_1.log1p())
        root = (G / p / 2).exp()
        u = torch.where(dead, n * 0, m * root * root)  # NaN if a weight is
        outside = (w == 0) | (b == 0) | nowhere | dead
        return cls(b, p, w, n, m, l, y, G, u, outside, dead)

    def slopes(self, dim: int) -> tuple[Tensor, Tensor]:
        """du/db and du/dp."""
        share = self.w / self.n * (self.y - self.l - self.G + self.G / self.p).exp()
        db = torch.where(self.outside, 0, self.b.sign() * share)
        slope = self.u * (self._divergence(dim) / self.p / self.p)
        return db, torch.where(self.dead | self.p.isinf(), 0, slope)

    def slopes_by_weight(self) -> Tensor:
        """du/dw."""
        found = (self.y - self.G).expm1() / self.p / self.n * self.u
        return torch.where((self.w == 0) | self.dead | self.p.isinf(), 0, found)

    def _divergence(self, dim: int) -> Tensor:
        """KL of the shares from the weights, exact also where the entries are nearly equal.

        As the ``n v_i / w_i = 1 + t_i`` have the mean 1, it is the mean of ``(1 + t) log(1 + t) -
        t``, whose terms are never negative: there is nothing left to cancel but inside a term with
        small t, which is expanded.
        """
        t = (self.y - self.G).expm1()
        small = t * t * (1 / 2 - t * (1 / 6 - t * (1 / 12 - t / 20)))
        terms = torch.where(t.abs() < 1e-3, small, torch.special.xlog1py(1 + t, t) - t)
        return (self.w * terms).sum(dim, keepdim=True) / self.n


def checked_weight(weight: Tensor | None, like: Tensor) -> Tensor:
    """The weights, 1 where there are none; a negative one, which is an error, becomes NaN.

    What is 0 is left out, and has no gradient.
    """
    if weight is None:
        return like.new_ones(())
    w = weight.to(like.dtype)
    if weight.dtype == torch.bool:
        return w
    return torch.where(w == 0, 0, torch.where(w < 0, torch.nan, w))


def _log_ratio(a: Tensor, m: Tensor) -> Tensor:
    """``log(a / m)``, from the exact difference where they are near, and without overflow."""
    near = (a < 2 * m) & (m < 2 * a)
    ratio = a / m
    far = torch.where((ratio > 1e-300) & (ratio < 1e300), ratio.log(), a.log() - m.log())
    return torch.where(near, ((a - m) / m).log1p(), far)


# ---------------------------------------------------------------- differentiable by torch itself


class Dense:
    """Groups along a dimension; what is per group keeps it, with size 1."""

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def sum(self, t: Tensor) -> Tensor:
        """The sum of each group."""
        return t.sum(self.dim, keepdim=True)

    def extremes(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The smallest of one and the largest of the other in each group."""
        return low.amin(self.dim, keepdim=True), high.amax(self.dim, keepdim=True)

    def spread(self, t: Tensor) -> Tensor:
        """What is per group, as it belongs to the entries."""
        return t


class Segments(Dense):
    """Groups of rows, by the group that each row belongs to."""

    def __init__(self, group: Tensor, count: int) -> None:
        self.group, self.count = group, count

    def sum(self, t: Tensor) -> Tensor:  # noqa: D102
        return t.new_zeros(self.count, *t.shape[1:]).index_add(0, self.group, t)

    def extremes(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        index = self.group.reshape(-1, *[1] * (low.ndim - 1)).expand_as(low)
        empty = low.new_zeros(self.count, *low.shape[1:])
        least = (empty + torch.inf).scatter_reduce(0, index, low, "amin")
        return least, empty.scatter_reduce(0, index, high, "amax")

    def spread(self, t: Tensor) -> Tensor:  # noqa: D102
        return t[self.group]


def differentiable(
    z: Tensor, p: Tensor, center: Tensor | None, dim: int, weight: Tensor | None = None
) -> Tensor:
    """The stable form in operations that every transform of torch can see through."""
    b = _centered(z, center, wide_dtype(z))
    return mean_of(b, p, weight, Dense(dim)).squeeze(dim).to(z.dtype)


def mean_of(b: Tensor, p: Tensor, weight: Tensor | None, over: Dense) -> Tensor:
    """The mean of each group; what transforms differentiate.

    Its value does not depend on the scale by which the group is divided, so the scale counts as a
    constant. Entries that have no power, 0 and what is left out, are kept out of the powers: the
    derivative of ``0^p`` would be NaN, while the mean's is 0. Where p is near 0, G/p is its series.
    """
    w = checked_weight(weight, b)
    if weight is not None:
        b = torch.where(w == 0, 0, b)
    a, p, fixed = b.abs(), p.to(b.dtype), b.detach().abs()
    n = over.sum(w.expand_as(a))
    least, most = over.extremes(torch.where(w == 0, torch.inf, fixed), fixed)
    m = torch.where(p < 0, least, most)
    least_order = torch.finfo(b.dtype).tiny ** (1 / 3)  # below, a zero makes the root 0
    nothing = (p.detach() < least_order) & (least == 0) & ~((p > 0) & most.isinf())
    dead = (n == 0) | (most == 0) | nothing
    as_maximum = p.isinf() | m.isinf()
    tied = (w != 0) & (fixed == over.spread(m))
    share = torch.where(tied, w.detach(), 0)
    share = share / over.spread(over.sum(share)).clamp(min=torch.finfo(b.dtype).tiny)
    maximum = over.sum(torch.where(tied, a * share, 0))

    order = torch.where(as_maximum | dead, 1, p)
    scale = torch.where(dead | m.isinf(), 1, m)
    has_power = (w != 0) & (a != 0) & ~a.isinf()
    a, base = torch.where(has_power, a, over.spread(scale)), over.spread(scale)
    r = (a / base).clamp(max=torch.finfo(b.dtype).max)
    n = torch.where(n == 0, 1, n)
    width = most.log() - torch.where(least == 0, 1, least).log()
    limit = 3e-4 if b.dtype == torch.float64 else 0.03
    near_0 = (order.abs() * width < limit) & (order.abs() < 1) & (least > 0) & ~dead
    low = (order.abs() < 1) & ~near_0
    by_log = over.spread(low | near_0)

    # From p = 1 on, powers: they have derivatives at the smallest numbers, too.
    exponent = torch.where(low | near_0, 1, order)
    power = torch.where(by_log | over.spread(as_maximum), 1, r).pow(over.spread(exponent))
    s = over.sum(torch.where(has_power, w * power, 0)) / n
    root = torch.where(dead, 1, s).pow(0.5 / exponent)  # twice, as u/m may underflow

    # The value from the ratio, which has the digits; derivatives from log(a): they do not overflow.
    log_a = torch.where(by_log, a, 1).log()
    l = _log_ratio(a.detach(), base) + (log_a - log_a.detach())  # noqa: E741

    # Below, the root multiplies errors: here the powers less 1 have all their digits.
    exponent = torch.where(low, order, 1)
    x = torch.where(over.spread(low), over.spread(exponent) * l, 0)
    small = (x / 2).clamp(min=-1).tanh()  # ONNX has no expm1, and far from 0 a tanh no derivatives
    expm1 = torch.where(x > -2, small * (x.exp() + 1), x.exp() - 1)
    less_1 = over.sum(w * torch.where(has_power, expm1, -1)) / n
    s = over.sum(torch.where(has_power, w * x.exp(), 0)) / n
    near_1 = less_1 > -0.5
    by_less_1 = torch.where(low & near_1, less_1, 0).log1p()
    G = torch.where(near_1, by_less_1, torch.where(low & ~near_1, s, 1).log())
    root = torch.where(low, (G / exponent / 2).exp(), root)

    l = torch.where(over.spread(near_0), l, 0)  # noqa: E741
    mean = over.sum(w * l) / n
    d = l - over.spread(mean)
    d2 = d * d
    var, third, fourth = (over.sum(w * t) / n for t in (d2, d2 * d, d2 * d2))
    more = third / 6 + order * (fourth - 3 * var * var) / 24
    series = mean + order * (var / 2 + order * more)
    root = torch.where(near_0, (series / 2).exp(), root)
    u = torch.where(dead, 0, scale) * root * root
    return torch.where(as_maximum & ~dead, maximum, u)
