"""The inputs that every kernel must get right, and the truth in 50-digit arithmetic."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import torch
from torch import Tensor

from lpunits import arguments
from lpunits.ops import ops

INF = math.inf
NORMS = [1.0, 1.0001, 2.0, 3.0, 10.0, 1e2, 1e4, 1e6, INF]
MEANS = [-INF, -1e4, -1e2, -1.0, -0.5, -1e-6, 0.0, 1e-8, 1e-3, 0.1, 0.5, 0.9999]
ORDERS = MEANS + NORMS


@dataclass(frozen=True)
class Case:
    """One call of lp_pool; ``build`` makes (z, p, center) in float64, and a weight or a mask."""

    name: str
    build: Callable[[], tuple[Tensor | float | None, ...]]
    dim: int = -1
    half: bool = True  # whether the values also make sense in float16 and bfloat16

    def tensors(self, dtype: torch.dtype) -> tuple[Tensor | float | None, ...]:
        """The inputs in ``dtype``, the same every time; orders and weights at least in float32."""
        torch.manual_seed(0)
        z, p, center, *rest = self.build()
        wide = torch.promote_types(dtype, torch.float32)
        if isinstance(p, Tensor):
            p = p.to(wide)
        (weight,) = rest or (None,)
        if weight is not None and weight.dtype != torch.bool:
            weight = weight.to(wide)
        return z.to(dtype), p, None if center is None else center.to(dtype), weight


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


def _near_0() -> tuple[Tensor, Tensor, None]:
    """Orders from 1e-9 to 0.9 of both signs, of a wide group: here the root multiplies the most."""
    exponents = torch.linspace(-9, -0.05, 24, dtype=torch.float64)
    p = 10**exponents * torch.tensor([1.0, -1.0]).double().repeat(12)
    return _wide()[0][:, :, :1].expand(2, 11, 24) * _randn(2, 11, 24), p, None


def _some_zeros(entries: int) -> tuple[Tensor, Tensor, None]:
    """The root of the share of zeros, (k/n)^(1/p), is large beside what is left of the digits."""
    p = torch.tensor([0.9, 0.1, 0.03, 0.01, 3e-3], dtype=torch.float64)
    z = _randn(3, entries, len(p))
    z[0, entries // 2 :] = 0.0
    z[1, 1:] = 0.0
    z[2, 0] = 0.0
    return z, p, None


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


def _weighted(kind: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights and masks, with what is not a number where they leave something out."""
    z, p, center = _layer(7)
    if kind == "mask":
        weight = torch.rand(z.shape, dtype=torch.float64) < 0.6
        weight[1] = False  # groups without entries
        weight[2] = True
    elif kind == "lengths":
        weight = torch.arange(7)[:, None] < torch.tensor([7, 0, 1, 3, 4, 6])[:, None, None]
    else:
        weight = torch.rand(z.shape[1:] if kind == "shared" else z.shape, dtype=torch.float64)
        weight = torch.where(weight < 0.2, 0, 10 * weight**4)
    out = (weight == 0).expand_as(z)
    z[out & (torch.rand(z.shape) < 0.3)] = math.nan
    z[out & (torch.rand(z.shape) < 0.3)] = INF
    return z, p, center, weight


def _near_ties_weighted() -> tuple[Tensor, ...]:
    z, p, center = _near_ties()
    return z, p, center, torch.rand(z.shape, dtype=torch.float64).round(decimals=1)


WEIGHTS = ("mask", "lengths", "each", "shared")
CASES = [
    *(Case(f"filters-{n}", lambda n=n: _layer(n), dim=1) for n in (1, 2, 3, 5, 8)),
    Case("zeros", _with_zeros, dim=1),
    Case("ties", _ties, dim=1),
    Case("near-ties", _near_ties, dim=1, half=False),
    Case("wide", _wide, dim=1, half=False),
    Case("denormal", _denormal, dim=1, half=False),
    Case("near-0", _near_0, dim=1, half=False),
    Case("few-zeros", lambda: _some_zeros(7), dim=1, half=False),
    Case("many-zeros", lambda: _some_zeros(200), dim=1, half=False),
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
    *(Case(f"weighted-{kind}", lambda kind=kind: _weighted(kind), dim=1) for kind in WEIGHTS),
    Case("near-ties-weighted", _near_ties_weighted, dim=1, half=False),
    Case("weighted-last", lambda: (*_last_dim(3, 70), torch.rand(3, 1, 70) < 0.7)),
    Case("many-rows", lambda: (_randn(301, 2, 5), 1 + _randn(5).exp(), _randn(2, 5)), dim=1),
]


def _largest() -> tuple[Tensor, Tensor, None]:
    """Up to the largest number of double precision, of which 1/m is denormal."""
    p = _orders()
    return (1 - 0.7 * torch.rand(8, 5, len(p)).double()) * torch.finfo(p.dtype).max, p, None


def _widest(entries: int) -> tuple[Tensor, Tensor, None]:
    """From 1e-300 to 1e300: the ratio of two entries overflows, and so does u/m."""
    p = torch.tensor([-3.0, -0.5, -1e-3, -1e-12, 0.0, 1e-300, 1e-12, 1e-3, 0.5, 3.0]).double()
    exponents = torch.linspace(-300, 300, entries, dtype=torch.float64)[None, :, None]
    return (_randn(4, entries, len(p)).exp() * 10**exponents).abs(), p, None


def _beside_zeros() -> tuple[Tensor, Tensor, None]:
    """The root is far below the smallest number, whatever it is multiplied by."""
    p = torch.tensor([1e-300, 1e-30, 1e-6, 1e-4], dtype=torch.float64)
    z = 1e306 * torch.rand(3, 9, len(p), dtype=torch.float64)
    z[:, 3:6] = 0.0
    return z, p, None


def _far_weights() -> tuple[Tensor, ...]:
    """Weights that outweigh what the largest entry is ahead by, and hardly any beside a zero."""
    orders = [-20.0, -3.0, -1.5, -1.0, 1e-30, 1e-15, 1e-12, 0.5, 1.0, 1.5, 3.0, 20.0]
    z = _randn(40, 6, len(orders))
    weight = 10 ** (20 * torch.rand(z.shape, dtype=torch.float64) - 10)
    z[:, 0, 4:7], weight[:, 0, 4:7] = 0.0, 1e-10
    return z, torch.tensor(orders, dtype=torch.float64), None, weight


#: For float64 alone: what no float32 can hold, or whose value is exact only by more digits.
DOUBLE_CASES = [
    Case("largest", _largest, dim=1),
    *(Case(f"widest-{n}", lambda n=n: _widest(n), dim=1) for n in (2, 5, 33)),
    Case("beside-zeros", _beside_zeros, dim=1),
    Case("far-weights", _far_weights, dim=1),
]


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
            s = sum(w[i] * r[i] ** p for i in counted)
            u = m * (s / n) ** (1 / p)
            slope = {i: u / m * w[i] * r[i] ** (p - 1) / s for i in counted if r[i]}
            log_mean = sum(w[i] * r[i] ** p * mpmath.log(r[i]) for i in counted if r[i]) / s
            dp = u * (log_mean / p - mpmath.log(s / n) / p**2)
            dw = {i: u / n * (r[i] ** p * n / s - 1) / p for i in counted}
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


def run(kernel, case: Case, dtype: torch.dtype):
    """The kernel's value and gradients on a case, with a gradient for it to carry back."""
    z, p, center, weight = case.tensors(dtype)
    dim, p = case.dim % z.ndim, order_of(p, z, case.dim)
    u = kernel.forward(z, p, center, dim, weight)
    grad = torch.randn(u.shape, dtype=torch.float64).to(dtype)
    by_weight = weight is not None and weight.dtype != torch.bool
    needs = (True, True, center is not None, by_weight)
    return u, grad, kernel.backward(grad, z, p, center, dim, needs, weight)


def assert_accurate(kernel, case: Case, dtype: torch.dtype) -> None:
    """Value and all gradients against 50 digits, in single or double precision."""
    z, p, center, weight = case.tensors(dtype)
    u, grad, (dz, dp, dc, dw) = run(kernel, case, dtype)
    true_u, true_dz, true_dp, true_dw = exact(z, p, center, case.dim, grad, weight)
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
    z, p, center, weight = case.tensors(dtype)
    u, grad, (dz, *_) = run(kernel, case, dtype)
    true_u, true_dz, *_ = exact(z, p, center, case.dim, grad, weight)
    assert u.dtype == dz.dtype == dtype
    assert ulps(u, true_u) <= 0.51
    assert relative_to_largest(dz, true_dz) <= torch.finfo(dtype).eps


def windows(kernel, stride=None, padding=0, dilation=1, ceil_mode=False, include=True, dims=2):
    sizes = [[n] * dims for n in (kernel, stride or kernel, padding, dilation)]
    return *sizes, ceil_mode, include
