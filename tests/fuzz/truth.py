"""What lp_pool must give, in float64 without cancellation, and how far a result may be from it."""

import torch
from torch import Tensor

from cases import exact, ulps

LARGEST_EXACT = 32  # entries; up to here 50 digits take a few milliseconds


def reference(
    z: Tensor, p: Tensor | float, center: Tensor | None, dim: int, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """u, the gradient in z and the gradient in p (one per output), all float64."""
    shape = z.shape
    z = z.detach().double().movedim(dim, -1)
    c = torch.zeros(()) if center is None else center.detach()
    c = c.double().expand(shape).movedim(dim, -1)
    p = torch.as_tensor(p, dtype=torch.float64).detach().expand(z.shape[:-1]).unsqueeze(-1)
    grad = grad.double().unsqueeze(-1)

    # z - c without its rounding error: at an order of 1e6 that error would show.
    b = z - c
    lost = (z - (b - (b - z))) - (c + (b - z))
    sign, a, lost = b.sign(), b.abs(), lost * b.sign()
    m = a.amax(-1, keepdim=True)
    gap = (a - m) + (lost - lost.where(a == m, -torch.inf).amax(-1, keepdim=True))
    scale = m.where(m > 0, 1)
    log_ratio = torch.where(2 * a > m, torch.log1p(gap / scale), torch.log(a / scale))

    infinite, tied, p = p.isinf(), (gap == 0).double(), p.where(p.isfinite(), 1)
    power = torch.where(infinite, tied, torch.exp(p * log_ratio))
    s = power.sum(-1, keepdim=True)
    k = torch.where(infinite, 1, torch.exp(torch.log(s / z.shape[-1]) / p))
    u = torch.where(m > 0, m * k, 0)
    slope = torch.where(infinite, tied, torch.exp((p - 1) * log_ratio)) * k / s
    dz = torch.where(b == 0, 0, grad * sign * slope)

    # du/dp = u KL(w) / p^2, as a mean of terms none of which is negative.
    excess = torch.expm1(p * log_ratio)
    t = ((excess - excess.mean(-1, keepdim=True)) / power.mean(-1, keepdim=True)).clamp(min=-1)
    small = sum((-t) ** i / (i * (i - 1)) for i in range(2, 14))
    terms = torch.where(t.abs() < 0.03, small, torch.special.xlog1py(1 + t, t) - t)
    dp = grad * m * (k * terms.mean(-1, keepdim=True) / p**2)
    dp = torch.where(infinite | (m == 0), 0, dp)
    return u.squeeze(-1), dz.movedim(-1, dim), dp.squeeze(-1)


def truth(
    z: Tensor, p: Tensor | float, center: Tensor | None, dim: int, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`reference`, or 50 digits where they are affordable."""
    how = exact if z.numel() <= LARGEST_EXACT else reference
    tensors = [t.detach() if isinstance(t, Tensor) else t for t in (z, p, center)]
    return how(*tensors, dim, grad)[:3]


def assert_value(u: Tensor, true: Tensor, dtype: torch.dtype) -> None:
    """5 ulp in single precision, one rounding in half precision, 1e-13 in double precision.

    The largest error of millions of random groups is 4.8 ulp, at orders near 1, where the rounding
    of the root comes on top of that of the sum.
    """
    assert u.shape == true.shape
    assert u.dtype == dtype
    limit = {torch.float32: 5, torch.float64: 1e-13 / torch.finfo(torch.float64).eps}
    error = ulps(u.detach(), true)
    assert error <= limit.get(dtype, 0.51), f"value: {error:.3g} ulp"


def gradient_limit(dtype: torch.dtype, p: Tensor | float) -> float:
    """The largest error, relative to the largest entry, of a gradient for a z of this dtype."""
    if dtype == torch.float64:
        orders = torch.as_tensor(p, dtype=torch.float64).detach().flatten()
        return 1e-9 if (orders.isfinite() & (orders > 1e4)).any() else 1e-11
    return 1e-5 if dtype == torch.float32 else torch.finfo(dtype).eps


def assert_gradient(
    name: str, result: Tensor, like: Tensor, contributions: Tensor, limit: float, slack: float = 0.0
) -> None:
    """A gradient against the sum of its contributions, which cannot be exacter than its terms.

    ``slack`` is an error that each contribution may have in addition.
    """
    assert result.shape == like.shape, name
    assert result.dtype == like.dtype, name
    if not result.numel():
        return
    true = contributions.sum_to_size(like.shape)
    stored = torch.finfo(like.dtype)
    limit = max(limit, stored.eps)
    allowed = (limit * contributions.abs() + slack).sum_to_size(like.shape).max()
    # Beyond the spacing of denormals, to which single precision may round each contribution.
    terms = contributions.numel() / result.numel() if limit > 1e-8 else 0
    allowed += max(stored.smallest_normal * stored.eps, 2.0**-149 * terms)
    range_ = (-stored.max, stored.max)  # beyond it an infinity is right
    error = (result.double().clamp(*range_) - true.clamp(*range_)).abs().max()
    assert error <= allowed, f"gradient in {name}: error {error:.3g} where {allowed:.3g} is allowed"
