"""Kernels on the cases, and the truth about them in 50-digit arithmetic."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import mpmath
import torch
from torch import Tensor

from cases import INF, Case
from lpunits import arguments
from lpunits.ops import ops


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads of torch."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def exact_group(
    z: list[float], c: list[float], w: list[float], p: float, grad: float
) -> tuple[mpmath.mpf, list[mpmath.mpf], mpmath.mpf, list[mpmath.mpf]]:
    """Value, gradient in z, gradient in p and gradient in w of one group, in 50 digits."""
    near_0 = -2 * math.log10(abs(p)) if 0 < abs(p) < 1 else 0  # digits that cancel
    with mpmath.workdps(50 + int(near_0)):
        zero = mpmath.mpf(0)
        nothing = zero, [zero] * len(z), zero, [zero] * len(z)
        counted = [i for i, wi in enumerate(w) if wi]
        b = {i: mpmath.mpf(z[i]) - mpmath.mpf(c[i]) for i in counted}
        a, w = {i: abs(b[i]) for i in counted}, {i: mpmath.mpf(w[i]) for i in counted}
        if not counted or not any(a.values()) or (p <= 0 and not all(a.values())):
            return nothing
        n, m = sum(w.values()), min(a.values()) if p < 0 else max(a.values())
        if abs(p) == INF:
            tied = {i: w[i] for i in counted if a[i] == m}
            u, slope, dp, dw = m, {i: tied[i] / sum(tied.values()) for i in tied}, zero, {}
        elif p == 0:
            logs = {i: mpmath.log(a[i]) for i in counted}
            mean = sum(w[i] * logs[i] for i in counted) / n
            u = mpmath.exp(mean)
            slope = {i: w[i] / n * u / a[i] for i in counted}
            dp = u * sum(w[i] * (logs[i] - mean) ** 2 for i in counted) / n / 2
            dw = {i: u / n * (logs[i] - mean) for i in counted}
        else:
            p, r = mpmath.mpf(p), {i: a[i] / m for i in counted}
            power = {i: r[i] ** p for i in counted}
            s = sum(w[i] * power[i] for i in counted)
            u = m * (s / n) ** (1 / p)
            slope = {i: u / m * w[i] * power[i] / r[i] / s for i in counted if r[i]}
            log_mean = sum(w[i] * power[i] * mpmath.log(r[i]) for i in counted if r[i]) / s
            dp = u * (log_mean / p - mpmath.log(s / n) / p**2)
            dw = {i: u / n * (power[i] * n / s - 1) / p for i in counted}
        dz = [grad * mpmath.sign(b[i]) * slope[i] if i in slope else zero for i in range(len(z))]
        return u, dz, grad * dp, [grad * dw.get(i, zero) for i in range(len(z))]


def exact(
    z: Tensor,
    p: Tensor | float,
    center: Tensor | None,
    dim: int,
    grad: Tensor,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """u and the gradients in z, p (one per output) and weight (one per entry), in float64."""

    def rows(t: Tensor | None, default: float) -> list[list[float]]:
        t = torch.tensor(default) if t is None else t
        return t.double().expand(z.shape).movedim(dim, -1).reshape(-1, z.shape[dim]).tolist()

    shape = z.movedim(dim, -1).shape
    orders = torch.as_tensor(p, dtype=torch.float64).expand(shape[:-1]).reshape(-1).tolist()
    grads = grad.double().reshape(-1).tolist()
    arguments = rows(z, 0), rows(center, 0), rows(weight, 1), orders, grads
    groups = [exact_group(*group) for group in zip(*arguments, strict=True)]

    def per_entry(k: int) -> Tensor:
        values = [[float(x) for x in g[k]] for g in groups]
        return torch.tensor(values, dtype=torch.float64).reshape(shape).movedim(-1, dim)

    u, dp = (
        torch.tensor([float(g[k]) for g in groups], dtype=torch.float64).reshape(grad.shape)
        for k in (0, 2)
    )
    return u, per_entry(1), dp, per_entry(3)


def ulps(result: Tensor, truth: Tensor) -> float:
    """The largest distance in units in the last place of the result's dtype."""
    if result.numel() == 0:
        return 0.0
    info = torch.finfo(result.dtype)
    magnitude = truth.abs().clamp(min=info.smallest_normal)
    unit = 2 ** (magnitude.log2().floor()) * info.eps
    return ((result.double() - truth).abs() / unit).max().item()


def relative_to_largest(result: Tensor, truth: Tensor) -> float:
    """The largest error beyond the spacing of denormals, as a part of the truth's largest entry."""
    if result.numel() == 0:
        return 0.0
    info = torch.finfo(result.dtype)
    truth = truth.clamp(-info.max, info.max)  # beyond, an infinity is right
    error = (result.double().clamp(-info.max, info.max) - truth).abs().max()
    error = (error - info.smallest_normal * info.eps).clamp(min=0)
    return (error / truth.abs().max().clamp(min=torch.finfo(torch.float64).tiny)).item()


class Operator:
    """The operator as it serves tensors here, with the signatures of a kernel."""

    @staticmethod
    def forward(z, p, center, dim, weight=None):
        return ops.lp_pool(z, p, center, dim, weight)

    @staticmethod
    def backward(grad, z, p, center, dim, needs, weight=None):
        found = ops.lp_pool_backward(grad, z, p, center, dim, *needs[1:3], weight, needs[3])
        return tuple(t if need else None for t, need in zip(found, needs, strict=True))


def order_of(p: Tensor | float, z: Tensor, dim: int) -> Tensor:
    return arguments.checked_order(p, z, (dim % z.ndim,), keepdim=False)


def gradient(case: Case, dtype: torch.dtype) -> Tensor:
    """What the backward pass of a case is given: the same every time."""
    z, *_ = case.tensors(dtype)  # which seeds
    return torch.randn(z.select(case.dim, 0).shape, dtype=torch.float64).to(dtype)


def run(kernel, case: Case, dtype: torch.dtype):
    """The kernel's value and gradients on a case, with the gradient that it carries back."""
    z, p, center, weight = case.tensors(dtype)
    dim, p, grad = case.dim % z.ndim, order_of(p, z, case.dim), gradient(case, dtype)
    by_weight = weight is not None and weight.dtype != torch.bool
    needs = (True, True, center is not None, by_weight)
    u = kernel.forward(z, p, center, dim, weight)
    return u, grad, kernel.backward(grad, z, p, center, dim, needs, weight)


#: 50 digits take long: each case is computed once for all kernels. By name and dtype.
TRUTHS: dict[tuple[str, torch.dtype], tuple[Tensor, Tensor, Tensor, Tensor]] = {}


def truth(case: Case, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The value and the gradients in z, p and weight of a case, in 50 digits."""
    key = case.name, dtype
    if key not in TRUTHS:
        z, p, center, weight = case.tensors(dtype)
        TRUTHS[key] = exact(z, p, center, case.dim, gradient(case, dtype), weight)
    return TRUTHS[key]


def assert_accurate(kernel, case: Case, dtype: torch.dtype) -> None:
    """Value and all gradients against 50 digits, in single or double precision."""
    z, p, center, _ = case.tensors(dtype)
    u, grad, (dz, dp, dc, dw) = run(kernel, case, dtype)
    true_u, true_dz, true_dp, true_dw = truth(case, dtype)
    assert u.dtype == dz.dtype == dtype
    assert u.shape == grad.shape
    assert dz.shape == z.shape
    order = order_of(p, z, case.dim)
    assert ulps(u, true_u) <= 4
    assert relative_to_largest(dz, true_dz) <= 1e-5
    true_dp = true_dp.unsqueeze(case.dim).sum_to_size(order.shape)
    assert relative_to_largest(dp, true_dp) <= 1e-5
    if center is not None:
        assert relative_to_largest(dc, -true_dz.sum_to_size(center.shape)) <= 1e-5
    if dw is not None:
        assert relative_to_largest(dw, true_dw) <= 1e-5


def assert_rounded_once(kernel, case: Case, dtype: torch.dtype) -> None:
    """Value and gradient in z against 50 digits, in half precision."""
    u, _, (dz, *_) = run(kernel, case, dtype)
    true_u, true_dz, *_ = truth(case, dtype)
    assert u.dtype == dz.dtype == dtype
    assert ulps(u, true_u) <= 0.51
    assert relative_to_largest(dz, true_dz) <= torch.finfo(dtype).eps
