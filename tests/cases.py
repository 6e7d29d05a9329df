"""The inputs that every kernel must get right, and the truth in 50-digit arithmetic."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import torch
from torch import Tensor

from lpunits import functional
from lpunits.ops import ops

INF = math.inf
ORDERS = [1.0, 1.0001, 2.0, 3.0, 10.0, 1e2, 1e4, 1e6, INF]


@dataclass(frozen=True)
class Case:
    """One call of lp_pool; ``build`` makes (z, p, center) in float64."""

    name: str
    build: Callable[[], tuple[Tensor, Tensor | float, Tensor | None]]
    dim: int = -1
    half: bool = True  # whether the values also make sense in float16 and bfloat16

    def tensors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | float, Tensor | None]:
        """The inputs in ``dtype``, the same every time; an order stays at least float32."""
        torch.manual_seed(0)
        z, p, center = self.build()
        if isinstance(p, Tensor):
            p = p.to(torch.promote_types(dtype, torch.float32))
        return z.to(dtype), p, None if center is None else center.to(dtype)


def _randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def _orders() -> Tensor:
    return torch.tensor(ORDERS, dtype=torch.float64)


def _layer(filters: int, batch: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Filter-major, with one order per unit: the layout of LpLinear."""
    units = len(ORDERS)
    return _randn(batch, filters, units), _orders(), _randn(filters, units)


def _with_zeros() -> tuple[Tensor, Tensor, None]:
    z, p, _ = _layer(4)
    z[:, 1] = 0.0
    z[0] = 0.0  # groups of zeros
    z[1, 2:] = -0.0
    return z, p, None


def _ties() -> tuple[Tensor, Tensor, None]:
    z, p, _ = _layer(5)
    z[:, 1], z[:, 2] = z[:, 0], -z[:, 0]
    z[0] = 1.5  # all equal
    return z, p, None


def _near_ties() -> tuple[Tensor, Tensor, Tensor]:
    """Differences of a few last digits decide the gradient at large orders."""
    z, p, center = _layer(4, batch=32)
    spread = torch.rand(32, 4, len(ORDERS), dtype=torch.float64) * 1e-5
    return center + (1 + spread) * torch.where(z > 0, 1.0, -1.0), p, center


def _ties_and_a_zero() -> tuple[Tensor, float, None]:
    """So many equal entries that the weights are nearly equal in spite of the zero."""
    z = torch.ones(3, 300, dtype=torch.float64)
    z[:, 7] = 0.0
    return z, 3.0, None


def _wide() -> tuple[Tensor, Tensor, None]:
    """Magnitudes from 1e-38 to 1e38 in one group."""
    exponents = torch.linspace(-38, 38, 11, dtype=torch.float64)
    z = _randn(1, 11, len(ORDERS)).sign() * 10 ** exponents[None, :, None]
    return torch.cat([z, z[:, torch.randperm(11)]]), _orders(), None


def _denormal() -> tuple[Tensor, Tensor, None]:
    z, p, _ = _layer(4, batch=1)
    return z * 1e-41, p, None


def _huge() -> tuple[Tensor, Tensor, None]:
    z, p, _ = _layer(4)
    return z.tanh() * 3.4e38, p, None


def _last_dim(groups: int, size: int) -> tuple[Tensor, Tensor, None]:
    """A contiguous last dimension, with an order per channel: the layout of GlobalLpPool."""
    z = _randn(groups, len(ORDERS), size)
    return z, _orders(), None


CASES = [
    *(Case(f"filters-{n}", lambda n=n: _layer(n), dim=1) for n in (1, 2, 3, 5, 8)),
    Case("zeros", _with_zeros, dim=1),
    Case("ties", _ties, dim=1),
    Case("near-ties", _near_ties, dim=1, half=False),
    Case("wide", _wide, dim=1, half=False),
    Case("denormal", _denormal, dim=1, half=False),
    Case("huge", _huge, dim=1, half=False),
    *(Case(f"last-{n}", lambda n=n: _last_dim(3, n)) for n in (1, 2, 3, 4, 5, 7, 8, 16, 49, 300)),
    Case(
        "ties-and-a-zero",
        lambda: (torch.ones(3, 1, 300).double().index_fill(2, torch.tensor(7), 0), 3.0, None),
    ),
    *(Case(f"order-{p:g}", lambda p=p: (_randn(5, 7), p, None)) for p in ORDERS),
    Case("one-order", lambda: (_randn(5, 3, 7), torch.tensor(2.5).double(), None), dim=1),
    Case("order-per-sample", lambda: (_randn(6, 3, 4), 1 + _randn(6, 1).exp(), None), dim=1),
    Case("order-per-output", lambda: (_randn(6, 3, 4), 1 + _randn(6, 4).exp(), None), dim=1),
    Case(
        "order-in-front", lambda: (_randn(4, 3, 5), 1 + _randn(3, 5).exp(), _randn(4, 3, 5)), dim=0
    ),
    Case("vector", lambda: (_randn(9), 3.0, _randn(9))),
    Case("rank-5", lambda: (_randn(2, 3, 4, 2, 3), 1 + _randn(4, 2, 3).exp(), None), dim=1),
    Case("one-center", lambda: (_randn(6, 3, 4), 3.0, _randn(1)), dim=1),
    Case("center-per-group", lambda: (_randn(6, 3, 4), 3.0, _randn(6, 1, 1)), dim=1),
    Case("center-last", lambda: (_randn(4, 3, 6), 1 + _randn(3).exp(), _randn(6))),
    Case("transposed", lambda: (_randn(9, 4, 6).mT, 1 + _randn(6).exp(), None), dim=2),
    Case("strided", lambda: (_randn(12, 10, 14)[::2, ::3, ::2], 3.0, _randn(4, 14)[:, ::2]), dim=1),
    Case(
        "expanded", lambda: (_randn(1, 4, 1).expand(5, 4, 3), 3.0, _randn(4, 1).expand(4, 3)), dim=1
    ),
    Case("expanded-group", lambda: (_randn(5, 1).expand(5, 6), 3.0, None)),
    Case("empty-batch", lambda: (_randn(0, 4, 3), 1 + _randn(3).exp(), _randn(4, 3)), dim=1),
    Case("many-units", lambda: (_randn(3, 4, 77), 1 + _randn(77).exp(), _randn(4, 77)), dim=1),
    Case("many-rows", lambda: (_randn(301, 2, 5), 1 + _randn(5).exp(), _randn(2, 5)), dim=1),
]


def exact_group(
    z: list[float], c: list[float], p: float, grad: float
) -> tuple[mpmath.mpf, list[mpmath.mpf], mpmath.mpf]:
    """Value, gradient in z and gradient in p of one group, in 50 digits."""
    with mpmath.workdps(50):
        b = [mpmath.mpf(zi) - mpmath.mpf(ci) for zi, ci in zip(z, c, strict=True)]
        a = [abs(bi) for bi in b]
        m, n = max(a), len(a)
        if m == 0:
            return mpmath.mpf(0), [mpmath.mpf(0)] * n, mpmath.mpf(0)
        signs = [mpmath.sign(bi) for bi in b]
        if p == INF:
            share = mpmath.mpf(grad) / sum(ai == m for ai in a)
            return m, [si * share if ai == m else 0 for ai, si in zip(a, signs, strict=True)], 0
        p, r = mpmath.mpf(p), [ai / m for ai in a]
        s = sum(ri**p for ri in r)
        k = (s / n) ** (1 / p)
        slope = [
            si * grad * k * ri ** (p - 1) / s if ri else 0 for ri, si in zip(r, signs, strict=True)
        ]
        log_mean = sum(ri**p * mpmath.log(ri) for ri in r if ri) / s
        return m * k, slope, grad * m * k * (log_mean / p - mpmath.log(s / n) / p**2)


def exact(
    z: Tensor, p: Tensor | float, center: Tensor | None, dim: int, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """u and the gradients in z, p (one per output) and z - center, rounded to float64."""
    z = z.double().movedim(dim, -1)
    c = torch.zeros(()) if center is None else center
    while c.ndim and c.ndim < z.ndim:
        c = c.unsqueeze(0)
    c = c.double().movedim(dim, -1).expand(z.shape) if c.ndim else c.double().expand(z.shape)
    orders = torch.as_tensor(p, dtype=torch.float64).expand(z.shape[:-1])
    groups = [
        exact_group(*group)
        for group in zip(
            z.reshape(-1, z.shape[-1]).tolist(),
            c.reshape(-1, z.shape[-1]).tolist(),
            orders.reshape(-1).tolist(),
            grad.double().reshape(-1).tolist(),
            strict=True,
        )
    ]
    u = torch.tensor([float(g[0]) for g in groups], dtype=torch.float64).reshape(grad.shape)
    dz = torch.tensor([[float(x) for x in g[1]] for g in groups], dtype=torch.float64)
    dp = torch.tensor([float(g[2]) for g in groups], dtype=torch.float64).reshape(grad.shape)
    return u, dz.reshape(z.shape).movedim(-1, dim), dp


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
    spacing = torch.finfo(result.dtype).smallest_normal * torch.finfo(result.dtype).eps
    error = ((result.double() - truth).abs().max() - spacing).clamp(min=0)
    return (error / truth.abs().max().clamp(min=torch.finfo(torch.float64).tiny)).item()


class Operator:
    """The operator as it serves tensors here, with the signatures of a kernel."""

    @staticmethod
    def forward(z, p, center, dim):
        return ops.lp_pool(z, p, center, dim)

    @staticmethod
    def backward(grad, z, p, center, dim, needs):
        found = ops.lp_pool_backward(grad, z, p, center, dim, *needs[1:])
        return tuple(t if need else None for t, need in zip(found, needs, strict=True))


def run(kernel, case: Case, dtype: torch.dtype):
    """The kernel's value and gradients on a case, with a gradient for it to carry back."""
    z, p, center = case.tensors(dtype)
    dim = case.dim % z.ndim
    p = functional._checked_order(p, z, dim)
    u = kernel.forward(z, p, center, dim)
    grad = torch.randn(u.shape, dtype=torch.float64).to(dtype)
    return u, grad, kernel.backward(grad, z, p, center, dim, (True, True, center is not None))


def assert_accurate(kernel, case: Case, dtype: torch.dtype) -> None:
    """Value and all gradients against 50 digits, in single or double precision."""
    z, p, center = case.tensors(dtype)
    u, grad, (dz, dp, dc) = run(kernel, case, dtype)
    true_u, true_dz, true_dp = exact(z, p, center, case.dim, grad)
    assert u.dtype == dz.dtype == dtype
    assert u.shape == grad.shape
    assert dz.shape == z.shape
    assert ulps(u, true_u) <= 4
    assert relative_to_largest(dz, true_dz) <= 1e-5
    order = functional._checked_order(p, z, case.dim % z.ndim)
    true_dp = true_dp.unsqueeze(case.dim).sum_to_size(order.shape)
    assert relative_to_largest(dp, true_dp) <= 1e-5
    if center is not None:
        assert relative_to_largest(dc, -true_dz.sum_to_size(center.shape)) <= 1e-5


def assert_rounded_once(kernel, case: Case, dtype: torch.dtype) -> None:
    """Value and gradient in z against 50 digits, in half precision."""
    z, p, center = case.tensors(dtype)
    u, grad, (dz, _, _) = run(kernel, case, dtype)
    true_u, true_dz, _ = exact(z, p, center, case.dim, grad)
    assert u.dtype == dz.dtype == dtype
    assert ulps(u, true_u) <= 0.51
    assert relative_to_largest(dz, true_dz) <= torch.finfo(dtype).eps
