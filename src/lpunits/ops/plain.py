r"""The operator in plain torch, for every device and dtype: a stable form, its own derivatives.

Everything is written in the ratios ``r_i = |b_i| / m`` of ``b = z - center`` to the largest
``m = max |b_i|`` of the group, so that nothing overflows, and ``s = sum_i r_i^p`` is from 1 to N:

.. math::

    u = m (s / N)^{1/p}, \qquad
    \frac{\partial u}{\partial b_i} = \mathrm{sign}(b_i) \frac{u}{m} \frac{r_i^{p-1}}{s}, \qquad
    \frac{\partial u}{\partial p} = \frac{u}{p^2} \, \mathrm{KL}(w),
    \quad w_i = \frac{r_i^p}{s}.

``KL(w) = sum_i w_i ln(N w_i)`` is how far the weights of the entries are from equal. ``p = inf``
needs no case of its own: ``r^inf`` is 1 at the largest entries and 0 elsewhere.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]

LARGE_ORDER = (
    32  # r^p multiplies the rounding error of r by p: beyond, single precision loses digits
)


def forward(z: Tensor, p: Tensor, center: Tensor | None, dim: int) -> Tensor:
    """The pooled values, in the dtype of z.

    Single precision serves float32 and half: u is a mean of the entries, in which the rounding
    errors of their powers are divided by p again. Only what overflows needs double.
    """
    if z.dtype == torch.float64:
        return _forward_in_double(z, p, center, dim)
    b = _centered(z, center, torch.float32)
    a = b.abs()
    m = a.amax(dim, keepdim=True)
    p = p.to(a.dtype)
    r = a.div_(torch.where(m == 0, 1, m))
    u = m * r.pow_(p).mean(dim, keepdim=True).pow(1 / p)
    u, hard = u.squeeze(dim).to(z.dtype), ~m.squeeze(dim).isfinite()
    if hard.any():
        where = hard.nonzero(as_tuple=True)
        u[where] = _forward_in_double(*_groups(z, p, center, dim, where), dim=1)
    return u


def backward(
    grad: Tensor,
    z: Tensor,
    p: Tensor,
    center: Tensor | None,
    dim: int,
    needs: tuple[bool, bool, bool],
) -> Gradients:
    """The gradients in z, p and center, each in its own dtype and shape.

    In single precision where that has the digits, and again in double for the groups where it has
    not: large orders, entries that overflow or are nearly tied.
    """
    if z.dtype == torch.float64:
        db, slope = _slopes_in_double(grad.unsqueeze(dim), z, p, center, dim)
    else:
        db, slope, hard = _slopes_in_single(grad.unsqueeze(dim), z, p, center, dim, needs[1])
        if hard.any():
            where = hard.nonzero(as_tuple=True)
            groups = _groups(z, p, center, dim, where)
            db_again, slope_again = _slopes_in_double(grad[where].unsqueeze(1), *groups, 1)
            db.movedim(dim, -1)[where] = db_again.to(db.dtype)
            slope.squeeze(dim)[where] = slope_again.squeeze(1)
    dz = db.to(z.dtype) if needs[0] else None
    dp = slope.sum_to_size(p.shape).to(p.dtype) if needs[1] else None
    if center is None or not needs[2]:
        return dz, dp, None
    return dz, dp, -db.sum_to_size(center.shape).to(center.dtype)


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
    hard = ~m.isfinite() | large
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


def _slopes_in_double(
    grad: Tensor, z: Tensor, p: Tensor, center: Tensor | None, dim: int
) -> tuple[Tensor, Tensor]:
    """``grad`` times du/db and du/dp."""
    b, p, m, r = _ratios(z, p, center, dim)
    q = r.pow(p - 1)  # because r^p = r q loses nothing, and q is needed by itself
    s = (r * q).sum(dim, keepdim=True)
    k = (s / z.shape[dim]).pow(1 / p)
    db = grad * b.sign() * (k * q / s)
    slope = m * k * (_divergence(p * r.log(), dim) / p**2)
    return db, grad * slope.where(p.isfinite(), 0)


def _forward_in_double(z: Tensor, p: Tensor, center: Tensor | None, dim: int) -> Tensor:
    _, p, m, r = _ratios(z, p, center, dim)
    return (m * r.pow(p).mean(dim, keepdim=True).pow(1 / p)).squeeze(dim).to(z.dtype)


def _ratios(
    z: Tensor, p: Tensor, center: Tensor | None, dim: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """b, p, m and r."""
    b = _centered(z, center, wide_dtype(z))
    a = b.abs()
    m = a.amax(dim, keepdim=True)
    p = torch.where(m.isinf(), torch.inf, p.to(b.dtype))  # an infinite entry is the maximum
    return b, p, m, torch.where(a == m, 1, a / m)  # 1 also where m is 0 or inf


def _divergence(x: Tensor, dim: int) -> Tensor:
    """KL of the weights ``w = softmax(x)`` from equal weights, exact also where w is nearly equal.

    As the ``N w_i = 1 + t_i`` have the mean 1, it is the mean of ``(1 + t) log(1 + t) - t``, whose
    terms are never negative: there is nothing left to cancel but inside a term with small t, which
    is expanded.
    """
    e = x.expm1()
    mean = e.mean(dim, keepdim=True)
    t = (e - mean) / (1 + mean)
    small = t * t * (1 / 2 - t * (1 / 6 - t * (1 / 12 - t / 20)))
    terms = torch.where(t.abs() < 1e-3, small, torch.special.xlog1py(1 + t, t) - t)
    return terms.mean(dim, keepdim=True)


# ---------------------------------------------------------------- differentiable by torch itself


def differentiable(z: Tensor, p: Tensor, center: Tensor | None, dim: int) -> Tensor:
    """The stable form in operations that every transform of torch can see through.

    Its value does not depend on the scale by which the group is divided, so the scale counts as a
    constant. Entries that are exactly 0 are kept out of the powers: the derivative of ``0^p`` would
    be NaN, while the norm's is 0.
    """
    b = _centered(z, center, wide_dtype(z))
    a = b.abs()
    largest = a.amax(dim, keepdim=True)
    m = largest.detach()
    p = p.to(b.dtype)
    as_maximum = p.isinf() | m.isinf()
    p = torch.where(as_maximum, 1, p)
    nonzero = a != 0
    scale = torch.where((m == 0) | m.isinf(), 1, m)
    r = torch.where(nonzero, a / scale, 1)
    s = torch.where(nonzero, r.pow(p), 0).sum(dim, keepdim=True)
    s = torch.where(m == 0, 1, s)
    u = torch.where(m == 0, 0, scale) * (s / z.shape[dim]).pow(1 / p)
    return torch.where(as_maximum, largest, u).squeeze(dim).to(z.dtype)


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
    widths, entries = [], z.new_ones((), dtype=torch.float64)
    for n, c, k, s, w, d in zip(space, counts, kernel, stride, padding, dilation, strict=True):
        widths.append((w, max((c - 1) * s + d * (k - 1) + 1 - n - w, 0)))
        at = torch.arange(c, device=z.device)[:, None] * s - w
        at = at + torch.arange(k, device=z.device) * d
        counted = at < n + w if count_include_pad else (at >= 0) & (at < n)
        entries = entries.unsqueeze(-1) * counted.sum(1).clamp(min=1)
    z = pad(z, [width for pair in reversed(widths) for width in pair], value=0.0)
    for dim, (c, k, s, d) in enumerate(zip(counts, kernel, stride, dilation, strict=True), start=2):
        z = z.unfold(dim, d * (k - 1) + 1, s).narrow(dim, 0, c)[..., ::d]
    groups = z.flatten(z.ndim - len(space))
    orders = p.reshape(-1, *[1] * (len(space) + 1))
    u = differentiable(groups, orders, None, groups.ndim - 1)
    u = u.contiguous(memory_format=format_)
    if not ceil_mode and (count_include_pad or not any(padding)):
        return u
    # Not every entry counts: (s/n)^(1/p) in the place of (s/N)^(1/p).
    more = (groups.shape[-1] / entries).pow(1 / orders.squeeze(-1).double())
    return (u.double() * more).to(u.dtype)


def pool_segments(z: Tensor, p: Tensor, offsets: Tensor) -> Tensor:
    """The rows from ``offsets[g]`` to ``offsets[g + 1]`` of z as group g; an empty one gives 0."""
    sizes = offsets.diff()
    shape = (len(sizes), *z.shape[1:])
    group = torch.repeat_interleave(sizes, output_size=len(z))
    a = z.to(wide_dtype(z)).abs()
    index = group.reshape(-1, *[1] * (z.ndim - 1)).expand_as(a)
    m = a.new_zeros(shape).scatter_reduce(0, index, a.detach(), "amax")
    p = p.to(a.dtype).expand(shape)
    as_maximum = p.isinf() | m.isinf()
    exponent = torch.where(as_maximum, 1, p)
    scale = torch.where((m == 0) | m.isinf(), 1, m)
    nonzero = a != 0
    r = torch.where(nonzero, a / scale[group], 1)
    powers = torch.where(nonzero, r.pow(exponent[group]), 0)
    s = a.new_zeros(shape).index_add(0, group, powers)
    n = sizes.clamp(min=1).to(a.dtype).reshape(-1, *[1] * (z.ndim - 1))
    u = torch.where(m == 0, 0, scale) * (torch.where(m == 0, 1, s) / n).pow(1 / exponent)
    if as_maximum.any():
        top = torch.where(a == m[group], a, 0)
        ties = a.new_zeros(shape).index_add(0, group, (a == m[group]).to(a.dtype))
        largest = a.new_zeros(shape).index_add(0, group, top / ties[group].clamp(min=1))
        u = torch.where(as_maximum, torch.where(m.isinf(), m, largest), u)
    return u.to(z.dtype)


def pool_nd_backward(
    grad: Tensor, z: Tensor, p: Tensor, *windows_and_need_p: Any
) -> tuple[Tensor, Tensor]:
    """The gradients of :func:`pool_nd`."""
    *windows, need_p = windows_and_need_p
    return _by_autograd(lambda z, p: pool_nd(z, p, *windows), grad, z, p, need_p)


def pool_segments_backward(
    grad: Tensor, z: Tensor, p: Tensor, offsets: Tensor, need_p: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of :func:`pool_segments`."""
    return _by_autograd(lambda z, p: pool_segments(z, p, offsets), grad, z, p, need_p)


def _by_autograd(
    function: Callable[[Tensor, Tensor], Tensor], grad: Tensor, z: Tensor, p: Tensor, need_p: bool
) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        z, p = z.detach().requires_grad_(), p.detach().requires_grad_()
        dz, dp = torch.autograd.grad(function(z, p), (z, p), grad)
    return torch.empty_like(z).copy_(dz), dp if need_p else p.new_empty(0)


def memory_format(z: Tensor) -> torch.memory_format:
    """The order in memory in which the windows of z are written."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if not z.is_contiguous() and z.ndim in formats:
        format_: torch.memory_format = formats[z.ndim]
        if z.is_contiguous(memory_format=format_):
            return format_
    return torch.contiguous_format
