r"""The operator in plain torch, for every device and dtype: the stable form with its own derivatives.

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

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def working_dtype(z: Tensor) -> torch.dtype:
    """The precision to compute in: double, because ``r^p`` multiplies a rounding error of r by p.

    Single precision serves devices that have no double, and exported graphs, which run on such
    devices; there the gradient of an order beyond 1e3 loses digits, the value does not.
    """
    double = z.dtype == torch.float64 or not (z.is_mps or torch.compiler.is_exporting())
    return torch.float64 if double else torch.float32


class _Group(NamedTuple):
    """The quantities of the formulas above, with the pooled dimension kept."""

    b: Tensor
    p: Tensor
    m: Tensor
    r: Tensor
    q: Tensor  # r^(p-1), because r^p = r q loses nothing and q is needed by itself
    s: Tensor
    k: Tensor  # (s/N)^(1/p) = u/m


def _group(z: Tensor, p: Tensor, center: Tensor | None, dim: int) -> _Group:
    b = z.to(working_dtype(z))
    if center is not None:
        b = b - center.to(b.dtype)
    a = b.abs()
    m = a.amax(dim, keepdim=True)
    p = torch.where(m.isinf(), torch.inf, p.to(b.dtype))  # an infinite entry is the maximum
    r = torch.where(a == m, 1, a / m)  # also where m is 0 or inf, and the quotient is NaN
    q = r.pow(p - 1)
    s = (r * q).sum(dim, keepdim=True)
    return _Group(b, p, m, r, q, s, k=(s / z.shape[dim]).pow(1 / p))


def forward(
    z: Tensor, p: Tensor, center: Tensor | None, dim: int, out: Tensor | None = None
) -> Tensor:
    """The pooled values, in the dtype of z."""
    group = _group(z, p, center, dim)
    u = (group.m * group.k).squeeze(dim).to(z.dtype)
    return u if out is None else out.copy_(u)


def backward(
    grad: Tensor,
    z: Tensor,
    p: Tensor,
    center: Tensor | None,
    dim: int,
    needs: tuple[bool, bool, bool],
    out: Tensor | None = None,
) -> Gradients:
    """The gradients in z, p and center, each in its own dtype and shape."""
    g = _group(z, p, center, dim)
    grad = grad.unsqueeze(dim).to(g.b.dtype)
    dz = dp = dcenter = None
    if needs[0] or needs[2]:
        db = grad * g.b.sign() * (g.k * g.q / g.s)
        dz = db.to(z.dtype) if needs[0] else None
        dz = dz if dz is None or out is None else out.copy_(dz)
        if center is not None and needs[2]:
            dcenter = -db.sum_to_size(center.shape).to(center.dtype)
    if needs[1]:
        slope = g.m * g.k * (_divergence(g.p * g.r.log(), dim) / g.p**2)
        dp = (grad * slope.where(g.p.isfinite(), 0)).sum_to_size(p.shape).to(p.dtype)
    return dz, dp, dcenter


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
    b = z.to(working_dtype(z))
    if center is not None:
        b = b - center.to(b.dtype)
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
    space = z.shape[2:]
    counts = window_counts(space, kernel, stride, padding, dilation, ceil_mode)
    widths, entries = [], z.new_ones((), dtype=torch.float64)
    for n, c, k, s, w, d in zip(space, counts, kernel, stride, padding, dilation, strict=True):
        widths.append((w, max((c - 1) * s + d * (k - 1) + 1 - n - w, 0)))
        at = torch.arange(c, device=z.device)[:, None] * s - w
        at = at + torch.arange(k, device=z.device) * d
        counted = at < n + w if count_include_pad else (at >= 0) & (at < n)
        entries = entries.unsqueeze(-1) * counted.sum(1).clamp(min=1)
    z = pad(z, [width for pair in reversed(widths) for width in pair])
    for dim, (c, k, s, d) in enumerate(zip(counts, kernel, stride, dilation, strict=True), start=2):
        z = z.unfold(dim, d * (k - 1) + 1, s).narrow(dim, 0, c)[..., ::d]
    groups = z.flatten(z.ndim - len(space))
    orders = p.reshape(-1, *[1] * (len(space) + 1))
    u = differentiable(groups, orders, None, groups.ndim - 1)
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
    a = z.to(working_dtype(z)).abs()
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
