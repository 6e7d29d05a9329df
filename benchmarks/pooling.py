"""The unit itself: ``lp_pool`` against the formulas and units that it competes with.

All contestants of a case work on the same tensors, with learned orders around 3, one per unit, and
give the gradients of everything that they learn. Where the unit has centres, its formula subtracts
them, the ReLU does too, and maxout adds its biases.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import cache
from math import prod

import torch
from torch import Tensor

from lpunits import lp_pool, reference
from timing import BOTH, OURS, Case, Contestant, Result, Settings, measure

QUESTION = "pooling"
MAIN = "over the filters"
SHORT = "over a short last dimension"
LONG = "over a long last dimension"
SWEEP = "growing batches"
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
BEYOND_ALL_CACHES = 50_000_000  # values, 200 MB: with its copy, more than a large shared cache
SWEPT = (OURS, "maxout, amax", "ReLU", "copy", "copy, allocated")
EPSILON = 1e-6  # GeM's


@dataclass(frozen=True)
class Layout:
    """A tensor to pool: its shape, batch first, and the dimension that is pooled away."""

    group: str
    shape: tuple[int, int, int]
    dim: int
    center: bool
    compile: bool = False


def _layouts() -> Iterator[Layout]:
    for shape in ((100, 5, 240), (1024, 4, 1024), (4096, 2, 512)):
        yield Layout(MAIN, shape, dim=1, center=True, compile=True)
    for shape in ((100, 240, 5), (1024, 1024, 4), (1024, 512, 8)):
        yield Layout(SHORT, shape, dim=2, center=True)
    # The features of a network's last layer, flattened: no centres there.
    for shape in ((64, 256, 49), (8, 256, 3136), (16, 64, 4096)):
        yield Layout(LONG, shape, dim=2, center=False)


def run(settings: Settings) -> list[Result]:
    """Every layout, every contestant."""
    results = []
    for layout in _layouts():
        shape = (max(1, layout.shape[0] // settings.shrink), *layout.shape[1:])
        competitors = contestants(shape, layout.dim, layout.center)
        if layout.compile and settings.compile:
            torch.compiler.reset()  # or the shapes together would reach the limit of recompilations
            competitors.insert(2, _compiled(competitors[1]))
        case = Case(QUESTION, layout.group, str(shape), prod(shape), competitors)
        results += measure(case, settings)
    return results


def sweep(settings: Settings) -> list[Result]:
    """The same layer at growing batches, all threads: the cost of a value should not change."""
    most = Settings((max(settings.threads),), settings.effort)
    results = []
    for size in (*SIZES, BEYOND_ALL_CACHES):
        shape = (max(1, size // settings.shrink // 1000), 4, 250)
        competitors = contestants(shape, 1, center=True, names=SWEPT)
        case = Case(QUESTION, SWEEP, str(shape), prod(shape), competitors, modes=(BOTH,))
        results += measure(case, most)
    return results


def contestants(
    shape: tuple[int, ...], dim: int, center: bool, names: Container[str] | None = None
) -> list[Contestant]:
    """Ours first, then the formula written out, then the others; all, or those named."""
    units = shape[2 if dim == 1 else 1]
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(shape, generator=generator).requires_grad_()
    positive = z.detach().abs().add_(EPSILON).requires_grad_()
    p = torch.linspace(2.5, 3.5, units).requires_grad_()
    c = 0.1 * torch.randn(shape[1:], generator=generator)
    learned = (z, p, c.requires_grad_()) if center else (z, p)
    affine = (z, c) if center else (z,)
    upstream = torch.randn(shape[:dim] + shape[dim + 1 :], generator=generator)
    upstream_relu = torch.randn(shape, generator=generator)
    out = torch.empty(shape)

    def ours() -> Tensor:
        return lp_pool(z, p, center=c if center else None, dim=dim)

    def naive() -> Tensor:
        return formula(z, p, c if center else None, dim)

    def gem() -> Tensor:
        return positive.clamp(min=EPSILON).pow(p.unsqueeze(dim - 1)).mean(dim).pow(1 / p)

    def amax() -> Tensor:
        return (z + c if center else z).amax(dim)

    def maximum() -> Tensor:
        return (z + c if center else z).max(dim).values

    def relu() -> Tensor:
        return torch.relu(z - c if center else z)

    truth = cache(lambda: _truth(learned, upstream, dim))
    shifted = (z + c if center else z).detach()
    largest = (torch.from_numpy(shifted.numpy().max(dim)),)
    data = z.detach()
    found: dict[str, Callable[[str], Contestant]] = {
        OURS: lambda name: Contestant(name, ours, learned, upstream, truth()),
        "naive": lambda name: Contestant(name, naive, learned, upstream, truth()),
        "GeM": lambda name: Contestant(
            name, gem, (positive, p), upstream, _truth((positive, p), upstream, dim)
        ),
        "maxout, amax": lambda name: Contestant(name, amax, affine, upstream, largest),
        "maxout, max": lambda name: Contestant(name, maximum, affine, upstream, largest),
        # A maxout layer can leave its biases to the matrix product.
        "amax, no bias": lambda name: Contestant(
            name, lambda: z.amax(dim), (z,), upstream, (data.max(dim).values,)
        ),
        "ReLU": lambda name: Contestant(
            name, relu, affine, upstream_relu, ((data - c if center else data).clamp(min=0),)
        ),
        "copy": lambda name: Contestant(name, lambda: out.copy_(data), expected=(data,)),
        # Every gradient needs memory of its own: what a copy costs that has to ask for it, too.
        "copy, allocated": lambda name: Contestant(name, data.clone, expected=(data,)),
    }
    if not center:
        del found["amax, no bias"]  # nobody has a bias
    with torch.no_grad():
        return [make(name) for name, make in found.items() if names is None or name in names]


def formula(z: Tensor, p: Tensor, center: Tensor | None, dim: int) -> Tensor:
    """The norm as one would write it down."""
    b = z if center is None else z - center
    return b.abs().pow(p.unsqueeze(dim - 1)).mean(dim).pow(1 / p)


def _compiled(naive: Contestant) -> Contestant:
    function = torch.compile(naive.function, dynamic=False)
    return Contestant(
        "naive, compiled", function, naive.inputs, naive.upstream, naive.expected, may_fail=True
    )


@torch.enable_grad()
def _truth(learned: tuple[Tensor, ...], upstream: Tensor, dim: int) -> tuple[Tensor, ...]:
    """The unit's value and all of its gradients, by the reference in double precision.

    In parts of the batch: the reference keeps several copies of what it is given.
    """
    z, *parameters = (t.detach() for t in learned)
    rows = max(1, 2**20 * len(z) // z.numel())
    values, by_z, by_parameters = (
        [],
        [],
        [torch.zeros_like(t, dtype=torch.double) for t in parameters],
    )
    for part, above in zip(z.split(rows), upstream.split(rows), strict=True):
        doubles = [t.double().requires_grad_() for t in (part, *parameters)]
        u = reference.lp_pool(*doubles[:2], center=(*doubles, None)[2], dim=dim)
        gradients = torch.autograd.grad(u, doubles, above.double())
        values.append(u.detach())
        by_z.append(gradients[0])
        for total, gradient in zip(by_parameters, gradients[1:], strict=True):
            total += gradient
    return torch.cat(values), torch.cat(by_z), *by_parameters
