r"""The kernel in plain torch, for every device and dtype: the stable form with its own derivatives.

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

from typing import NamedTuple

import torch
from torch import Tensor

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
