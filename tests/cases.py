"""The inputs that every kernel must get right."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

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


def _masked_near_ties() -> tuple[Tensor, ...]:
    """Nearly equal entries, beside one that is left out: 0, as far from them as can be."""
    z, p, _ = _layer(7)
    mask = torch.ones(7, 1, dtype=torch.bool).index_fill(0, torch.tensor(5), False)
    return 1 + 1e-5 * z.sigmoid(), p, None, mask


def _weighted_norms(filters: int, kind: str) -> tuple[Tensor, ...]:
    """Orders of 1 and more alone, which single precision serves, in the sizes that are unrolled."""
    p = torch.tensor([1.0, 1.1, 1.5, 2.0, 2.5, 3.0, 7.0, 20.0] * 3, dtype=torch.float64)
    z, weight = _randn(40, filters, len(p)), torch.rand(40, filters, len(p)).double()
    z[:8] = 1 + 1e-3 * z[:8]
    if kind == "mask":
        return z, p, None, weight < 0.7
    if kind == "wide":  # the small entries count, by their weights
        z[:, 0] *= 1e3
        weight[:, 1:] *= 1e4
    return z, p, None, weight


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
    *(Case(f"last-{n}", lambda n=n: _last_dim(3, n)) for n in (1, 2, 3, 4, 5, 7, 8, 16, 49)),
    Case("last-300", lambda: _last_dim(1, 300)),
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
    Case(
        "near-ties-weighted",
        lambda: (*_near_ties(), torch.rand(32, 4, len(ORDERS)).double().round(decimals=1)),
        dim=1,
        half=False,
    ),
    Case("near-ties-masked", _masked_near_ties, dim=1, half=False),
    *(
        Case(f"norms-{n}-{kind}", lambda n=n, kind=kind: _weighted_norms(n, kind), dim=1)
        for n in (2, 3, 4, 5, 9)
        for kind in ("mask", "weight", "wide")
    ),
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


def _outweighed() -> tuple[Tensor, ...]:
    """Entries far apart, of which one has nearly all the weight: the divergence is small."""
    z = _randn(12, 6, 5) * 10 ** torch.linspace(-1, 1, 6, dtype=torch.float64)[None, :, None]
    weight = torch.rand(z.shape, dtype=torch.float64)
    weight[:, 2] = 10 ** torch.linspace(10, 18, 12, dtype=torch.float64)[:, None]
    return z, torch.tensor([-2.0, -0.5, 0.7, 1.0, 2.0], dtype=torch.float64), None, weight


def _large_near_0() -> tuple[Tensor, ...]:
    """1/p overflows together with the largest numbers: not the gradients, which are smaller."""
    p = torch.tensor([-1e-60, -1e-300, 0.0, 1e-300, 1e-60], dtype=torch.float64)
    z = 1e280 * (1 + 1e-3 * _randn(4, 6, len(p)))
    return z, p, None, torch.rand(z.shape, dtype=torch.float64)


#: For float64 alone: what no float32 can hold, or whose value is exact only by more digits.
DOUBLE_CASES = [
    Case("largest", _largest, dim=1),
    *(Case(f"widest-{n}", lambda n=n: _widest(n), dim=1) for n in (2, 5, 33)),
    Case("beside-zeros", _beside_zeros, dim=1),
    Case("far-weights", _far_weights, dim=1),
    Case("outweighed", _outweighed, dim=1),
    Case("large-near-0", _large_near_0, dim=1),
]


def windows(kernel, stride=None, padding=0, dilation=1, ceil_mode=False, include=True, dims=2):
    sizes = [[n] * dims for n in (kernel, stride or kernel, padding, dilation)]
    return *sizes, ceil_mode, include
