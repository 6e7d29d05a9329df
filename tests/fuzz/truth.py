"""What lp_pool must give, in float64 without cancellation, and how far a result may be from it."""

import torch
from torch import Tensor

from accuracy import exact, ulps

LARGEST_EXACT = 32  # entries; up to here 50 digits take a few milliseconds


def reference(
    z: Tensor,
    p: Tensor | float,
    center: Tensor | None,
    dim: int,
    grad: Tensor,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """u and the gradients in z, p (one per output) and weight (one per entry), all float64."""
    shape = z.shape

    def entries(t: Tensor | None, default: float) -> Tensor:
        t = torch.tensor(default) if t is None else t.detach()
        return t.double().expand(shape).movedim(dim, -1)

    w = entries(weight, 1)
    z, c = (torch.where(w == 0, 0, entries(t, 0)) for t in (z, center))
    p = torch.as_tensor(p, dtype=torch.float64).detach().expand(z.shape[:-1]).unsqueeze(-1)
    grad = grad.double().unsqueeze(-1)

    # z - c without its rounding error: at an order of 1e6 that error would show.
    b = z - c
    lost = (z - (b - (b - z))) - (c + (b - z))
    sign, a, lost = b.sign(), b.abs(), lost * b.sign()
    low, high = (torch.where(w == 0, i, a) for i in (torch.inf, 0))
    low, high = low.amin(-1, keepdim=True), high.amax(-1, keepdim=True)
    m = torch.where(p < 0, low, high)
    tied_lost = lost.where((a == m) & (w != 0), -torch.inf * torch.where(p < 0, -1, 1))
    m_lost = torch.where(
        p < 0, tied_lost.amin(-1, keepdim=True), tied_lost.amax(-1, keepdim=True)
    ).nan_to_num(0, 0, 0)
    gap = (a - m) + (lost - m_lost)
    n = w.sum(-1, keepdim=True)
    dead = (n == 0) | (high == 0) | ((p <= 0) & (low == 0))
    n, scale = n.where(n > 0, 1), m.where(~dead, 1)
    near = (2 * a > m) & (a < 2 * m)
    log_ratio = torch.where(near, torch.log1p(gap / scale), torch.log(a) - torch.log(scale))

    def mean(t: Tensor) -> Tensor:
        return torch.where(w == 0, 0, w * t).sum(-1, keepdim=True) / n

    infinite, tied = p.isinf(), ((gap == 0) & (w != 0)).double()
    geometric, p = p == 0, p.where(p.isfinite() & (p != 0), 1)
    power = torch.where(infinite, tied, torch.exp(p * log_ratio))
    excess = torch.expm1(p * log_ratio)
    less_1 = mean(excess)
    log_mean = torch.where(less_1 > -0.5, torch.log1p(less_1), torch.log(mean(power)))
    deviation = log_ratio - mean(log_ratio)
    root = torch.where(geometric, mean(log_ratio), log_mean / p)
    k = torch.where(infinite, 1, torch.exp(root))
    u = torch.where(dead, 0, m * k)
    slope = torch.exp((p - 1) * log_ratio - log_mean + root)
    slope = torch.where(geometric, torch.exp(root - log_ratio), slope) / n
    slope = torch.where(infinite, tied / (w * tied).sum(-1, keepdim=True), slope)
    none = (b == 0) | (w == 0) | dead
    dz = torch.where(none, 0, grad * sign * w * slope)

    # du/dp = u KL(w) / p^2, as a mean of terms none of which is negative.
    t = ((excess - less_1) / mean(power)).clamp(min=-1)
    small = sum((-t) ** i / (i * (i - 1)) for i in range(2, 14))
    terms = torch.where(t.abs() < 0.03, small, torch.special.xlog1py(1 + t, t) - t)
    by_p = torch.where(geometric, mean(deviation**2) / 2, mean(terms) / p**2)
    dp = torch.where(infinite | dead, 0, grad * m * (k * by_p))
    dw = grad * u / n * torch.where(geometric, deviation, t / p)
    dw = torch.where(none & (b != 0) | infinite | dead | (w == 0), 0, dw)
    return u.squeeze(-1), dz.movedim(-1, dim), dp.squeeze(-1), dw.movedim(-1, dim)


def truth(
    z: Tensor,
    p: Tensor | float,
    center: Tensor | None,
    dim: int,
    grad: Tensor,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """:func:`reference`, or 50 digits where they are affordable."""
    how = exact if z.numel() <= LARGEST_EXACT else reference
    tensors = [t.detach() if isinstance(t, Tensor) else t for t in (z, p, center)]
    return how(*tensors, dim, grad, None if weight is None else weight.detach())


def value_limit(z: Tensor, p: Tensor | float) -> float:
    """How many ulp a value may be away from the truth.

    5 in single and double precision, half of one in half precision. The largest error of millions
    of random groups is 4.8 ulp, at orders near 1, where the rounding of the root comes on top of
    that of the sum. :func:`reference` is computed in double precision: it is itself as far as 1e-13
    from the truth, and 1e-12 below p = 1, where the root multiplies its errors.
    """
    if z.dtype != torch.float64:
        return 5 if z.dtype == torch.float32 else 0.51
    if z.numel() <= LARGEST_EXACT:
        return 5
    norms = bool((torch.as_tensor(p).detach() >= 1).all())
    return (1e-13 if norms else 1e-12) / torch.finfo(torch.float64).eps


def assert_value(u: Tensor, true: Tensor, dtype: torch.dtype, limit: float = 5) -> None:
    """Shape, dtype, and the distance in ulp."""
    assert u.shape == true.shape
    assert u.dtype == dtype
    error = ulps(u.detach(), true)
    assert error <= limit, f"value: {error:.3g} ulp"


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
