"""Calls of lp_pool: a few drawn choices, from which a seed makes the tensors.

By default every run draws the same examples, few enough for ``make test``. To draw new ones for an
hour, round after round, and to have every failure printed with what reproduces it::

    LPUNITS_FUZZ=3600 .venv/bin/python -m pytest tests/fuzz -q -s
"""

import math
import os
import random
from dataclasses import dataclass

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor

from accuracy import threads
from fuzz.truth import assert_gradient, assert_value, gradient_limit, truth, value_limit
from lpunits import lp_pool

SECONDS = float(os.environ.get("LPUNITS_FUZZ", "0"))
SIZES = [1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 31, 64, 97, 300, 1000]
NORMS = [1, 1.0001, 1.5, 2, 3, 10, 64, 65, 1e2, 1e4, 1e6, math.inf]
MEANS = [-math.inf, -1e4, -65, -3, -1, -0.5, -1e-6, 0, 1e-12, 1e-3, 0.1, 0.5, 0.9999]
ORDERS = MEANS + NORMS
WEIGHTS = [None, None, None, "mask", "weight", "both", "wide"]
LAYOUTS = ["contiguous", "permuted", "strided", "expanded", "offset", "channels_last"]
KINDS = ["normal", "ties", "image", "zeros", "nothing", "wide", 1e-5, 1e-6, 1e-7]
FULL = [torch.float32, torch.float64]
HALF = [torch.float16, torch.bfloat16]
SCALES = {
    torch.float64: [1, 1e-38, 1e38, 1e-300, 1e300, 1e-310],
    torch.float32: [1, 1e-3, 1e3, 1e-20, 1e20, 1e-38, 1e38, 1e-41],
    torch.bfloat16: [1, 1e-3, 1e3, 1e-38, 1e38],
    torch.float16: [1, 1e-3, 1e-6],
}
EXPONENTS = {torch.float64: (-150, 150), torch.float16: (-7, 0)}  # of "wide" values


def fuzz(examples: int) -> settings:
    """How a property is run: the same few examples every time, or new ones until time is up."""
    return settings(
        max_examples=examples * (5 if SECONDS else 1),
        derandomize=not SECONDS,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


@dataclass
class Call:
    """The arguments of lp_pool, a gradient to carry back, and the number of threads."""

    z: Tensor
    p: Tensor | float
    center: Tensor | None
    dim: int
    grad: Tensor
    threads: int = 1
    mask: Tensor | None = None
    weight: Tensor | None = None

    @property
    def counted(self) -> Tensor | None:
        """Mask and weight in one."""
        if self.mask is None or self.weight is None:
            return self.mask if self.weight is None else self.weight
        return self.mask * self.weight

    def _repr_pretty_(self, printer, cycle: bool) -> None:
        """What Hypothesis prints of a failure: all that can matter but the values."""
        for name, t in vars(self).items():
            tensor = isinstance(t, Tensor)
            shown = (t.dtype, tuple(t.shape), t.stride(), t.requires_grad) if tensor else t
            printer.text(f"{name}={shown} ")

    def run(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The value, and the gradients of all tensors that require one."""
        named = {"z": self.z, "p": self.p, "center": self.center, "weight": self.weight}
        wanted = {k: t for k, t in named.items() if isinstance(t, Tensor) and t.requires_grad}
        with threads(self.threads):
            counts = {"mask": self.mask, "weight": self.weight}
            u = lp_pool(self.z, self.p, center=self.center, dim=self.dim, **counts)
            assert u.requires_grad == bool(wanted)
            grads = torch.autograd.grad(u, list(wanted.values()), self.grad) if wanted else ()
        return u, dict(zip(wanted, grads, strict=True))

    def check(self) -> None:
        """Value and gradients against the truth."""
        u, grads = self.run()
        arguments = self.z, self.p, self.center, self.dim, self.grad, self.counted
        true_u, dz, dp, dw = truth(*arguments)
        limit = gradient_limit(self.z.dtype, self.p)
        assert_value(u, true_u, self.z.dtype, value_limit(self.z, self.p))
        if "z" in grads:
            assert_gradient("z", grads["z"], self.z, dz, limit)
        if "p" in grads:  # which is not rounded to half precision because z is
            # A rounding of z - center to 53 bits is forgiven: to this much of du/dp it is an error.
            eps = 0 if self.center is None else 4 * 2.0**-53
            size = (true_u * self.grad.double()).abs()
            slack = eps * (2 * dp.abs()).sqrt() * size.sqrt() + eps**2 * size
            assert_gradient("p", grads["p"], self.p, dp, min(limit, 1e-5), slack)
        if "center" in grads:
            assert_gradient("center", grads["center"], self.center, -dz, limit)
        if "weight" in grads:
            dw = dw if self.mask is None else dw * self.mask
            n = self.counted.detach().double().expand(self.z.shape).sum(self.dim, keepdim=True)
            size = (true_u * self.grad.double()).abs().unsqueeze(self.dim) / n.where(n > 0, 1)
            slack = (1e-40 if self.center is None else 4 * 2.0**-53) * size.expand_as(dw)
            assert_gradient("weight", grads["weight"], self.weight, dw, limit, slack)


@st.composite
def shapes(draw, ranks: tuple[int, int] = (1, 5), most: int = 70_000) -> tuple[list[int], int]:
    """A shape and the dimension to pool, counted from either end."""
    rank = draw(st.integers(*ranks))
    pooled = draw(st.integers(0, rank - 1))
    left = draw(st.sampled_from([30, 30, 300, 3000, most]))
    shape = [1] * rank
    for d in draw(st.permutations(range(rank))):
        size = draw(st.sampled_from(SIZES if d == pooled else [*SIZES, 0]))
        shape[d] = min(size, left)
        left //= max(shape[d], 1)
    return shape, pooled - rank * draw(st.booleans())


def broadcast_shapes(shape: list[int]) -> st.SearchStrategy[list[int]]:
    """Every shape that broadcasts to this one: some sizes 1, some leading dimensions left out."""
    kept = st.lists(st.booleans(), min_size=len(shape), max_size=len(shape))
    sizes = kept.map(lambda keep: [n if k else 1 for n, k in zip(shape, keep, strict=True)])
    return st.tuples(sizes, st.integers(0, len(shape))).map(lambda x: x[0][x[1] :])


def laid_out(t: Tensor, layout: str, seed: int) -> Tensor:
    """The same values in memory of another layout; what lies between them is NaN."""
    choose = random.Random(seed)
    dims = choose.sample(range(t.ndim), t.ndim)
    if layout == "permuted":
        return t.permute(dims).contiguous().permute([dims.index(d) for d in range(t.ndim)])
    if layout == "strided":
        steps = [(2, 3)[dims.index(d)] if d in dims[:2] else 1 for d in range(t.ndim)]
        sizes = [n * step + 1 for n, step in zip(t.shape, steps, strict=True)]
        memory = torch.full(sizes, torch.nan, dtype=t.dtype)
        view = memory[tuple(slice(1, None, step) for step in steps)]
        return view[tuple(slice(n) for n in t.shape)].copy_(t)
    if layout == "expanded":  # the only layout that changes the values
        for d in dims[: choose.randint(1, max(t.ndim, 1))]:
            t = t.narrow(d, 0, min(1, t.shape[d])).expand_as(t)
        return t
    if layout == "offset":
        memory = torch.full((t.numel() + 7,), torch.nan, dtype=t.dtype)
        return memory[3 : 3 + t.numel()].view(t.shape).copy_(t)
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if layout == "channels_last" and t.ndim in formats:
        return t.contiguous(memory_format=formats[t.ndim])
    return t.contiguous()


def values(
    kind: str | float, shape: list[int], dim: int, scale: float, dtype: torch.dtype, seed: int
) -> Tensor:
    """Values of one kind in float64, at most as large as ``scale``; a number is a near tie."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(shape, generator=generator, dtype=torch.float64).clamp(-3, 3) / 3
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    sign = torch.where(normal < 0, -1.0, 1.0).double()
    if kind == "normal":
        return scale * normal
    if kind == "ties":
        return scale * (4 * normal).round() / 4
    if kind == "image":
        return scale * (0.5 + 0.05 * uniform)
    if kind == "zeros":  # of both signs, and whole groups of them
        empty = (uniform < 0.5) | (uniform.narrow(dim, 0, 1) < 0.3)
        return scale * torch.where(empty, 0, uniform) * sign
    if kind == "nothing":
        return 0 * sign
    if kind == "wide":
        low, high = EXPONENTS.get(dtype, (-38, 38))
        return sign * 10 ** (low + (high - low) * uniform)
    return scale * sign * (1 - kind * uniform)


def weights(kind: str, shape: list[int], seed: int) -> Tensor:
    """Weights, of which a fifth is 0."""
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    left = torch.rand(shape, generator=generator) < 0.2
    return torch.where(left, 0, 10 ** (20 * uniform - 10) if kind == "wide" else 10 * uniform**4)


def orders(shape: list[int], kind: str | float, seed: int) -> Tensor:
    """One order everywhere, a mix of all, or such as are learned, in two ranges."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "mixed":
        choice = torch.randint(len(ORDERS), shape, generator=generator)
        return torch.tensor(ORDERS, dtype=torch.float64)[choice]
    if kind == "learned":
        return 1 + torch.randn(shape, generator=generator, dtype=torch.float64).exp()
    if kind == "free":
        return 2 * torch.randn(shape, generator=generator, dtype=torch.float64) ** 3
    return torch.full(shape, float(kind), dtype=torch.float64)


@st.composite
def calls(draw, dtypes: list[torch.dtype], most: int = 70_000) -> Call:
    """A call of lp_pool with everything drawn: shapes, layouts, dtypes, values and orders."""
    seed, dtype = draw(st.integers(0, 2**32)), draw(st.sampled_from(dtypes))
    shape, dim = draw(shapes(most=most))
    kind, scale = draw(st.sampled_from(KINDS)), draw(st.sampled_from(SCALES[dtype]))
    z = values(kind, shape, dim, scale, dtype, seed).to(dtype)
    z = laid_out(z, draw(st.sampled_from(LAYOUTS)), seed)

    out = list(z.select(dim, 0).shape)
    order = draw(st.sampled_from(["mixed", "learned", "free", *ORDERS]))
    p = orders(draw(broadcast_shapes(out)), order, seed + 1)
    p = p.to(draw(st.sampled_from([dtype, torch.float32, torch.float64])))
    p = laid_out(p, draw(st.sampled_from(LAYOUTS)), seed + 1)
    if isinstance(order, int | float) and draw(st.booleans()):
        p = order

    # Beside wide values a center makes ties that only more than 53 bits can tell apart.
    center = draw(st.sampled_from([None, "normal", "equal"] if kind != "wide" else [None]))
    if center is not None:
        small = draw(broadcast_shapes(shape))
        if center == "equal" and z.numel():  # to entries whose differences are then exactly 0
            full = [1] * (z.ndim - len(small)) + small
            c = z[tuple(slice(n) for n in full)].reshape(small).clone()
        else:
            c = values("normal", small, 0, scale, dtype, seed + 2).to(dtype)
        center = laid_out(c, draw(st.sampled_from(LAYOUTS)), seed + 2)

    grad = values("normal", out, 0, 1, dtype, seed + 3)
    if dtype != torch.float16 and (scale > 1e30 or kind == "wide"):
        grad = grad * 1e-6  # else the gradient in p, a sum of values, overflows
    counts = draw(st.sampled_from(WEIGHTS))
    if dtype != torch.float16 and counts == "wide":
        grad = grad * 1e-25  # the same for the gradient in weights, which are small
    grad = laid_out(grad.to(dtype), draw(st.sampled_from(LAYOUTS)), seed + 3)

    mask = weight = None
    if counts in ("mask", "both"):
        small = draw(broadcast_shapes(shape))
        mask = torch.rand(small, generator=torch.Generator().manual_seed(seed + 4)) < 0.7
        mask = laid_out(mask, draw(st.sampled_from(["contiguous", "permuted"])), seed + 4)
    if counts in ("weight", "both", "wide"):
        weight = weights(counts, draw(broadcast_shapes(shape)), seed + 5)
        weight = weight.to(draw(st.sampled_from([torch.float32, torch.float64])))
        weight = laid_out(weight, draw(st.sampled_from(LAYOUTS)), seed + 5)
    for t in (z, p, center, weight):
        if isinstance(t, Tensor) and draw(st.integers(0, 3)):
            t.requires_grad_()
    count = draw(st.sampled_from([1, 2]))
    call = Call(z, p, center, dim, grad, count, mask, weight)
    if counts and draw(st.booleans()):  # what is left out may be anything
        with torch.no_grad():
            z = torch.where(call.counted.expand(shape) == 0, torch.nan, z)
        call.z = z.requires_grad_(call.z.requires_grad)
    return call
