"""The unit itself: ``lp_pool`` against its formula in torch and against other units.

All contestants of a case use the same tensors, with learned orders around 3, one per unit, and
compute the gradients of everything that is learned. Over the filters, the unit has centres: the
formula and the ReLU subtract them as well, and maxout adds biases. Over the last dimension, as in
``LpPool``, there are none.
"""

from collections.abc import Container
from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from lpunits import lp_pool, reference
from timing import BOTH, OURS, Case, Contestant, Result, Settings, measure, truth

QUESTION = "pooling"
MAIN = "over the filters"
RECURRENT = "over the filters, a recurrent step"
FEW = "over the filters, a few values"
SHORT = "over a short last dimension"
LONG = "over a long last dimension"
SHAPES = {
    FEW: [(4, 2, 16)],
    RECURRENT: [(16, 2, 400)],
    MAIN: [(100, 5, 240), (1024, 4, 1024), (4096, 2, 512)],
    SHORT: [(1024, 1024, 2), (100, 240, 5), (1024, 512, 8)],
    LONG: [(64, 256, 49), (16, 256, 784), (8, 256, 3136)],
}
SWEEP = "growing batches"
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
SWEPT = (OURS, "maxout, amax", "ReLU", "copy")


def run(settings: Settings) -> list[Result]:
    """Every shape, every contestant."""
    results = []
    for group, shapes in SHAPES.items():
        for shape in shapes:
            shape = (max(1, shape[0] // settings.shrink), *shape[1:])
            values = None if group == FEW else prod(shape)  # the few cost nothing, the call does
            competitors = contestants(shape, dim=2 if group in (SHORT, LONG) else 1)
            results += measure(Case(QUESTION, group, str(shape), values, competitors), settings)
    return results


def sweep(settings: Settings) -> list[Result]:
    """The same layer at growing batches: the cost of a value should not change."""
    results = []
    for size in SIZES:
        shape = (max(1, size // settings.shrink // 1000), 4, 250)
        found = contestants(shape, dim=1, names=SWEPT)
        case = Case(QUESTION, SWEEP, str(shape), prod(shape), found, (BOTH,))
        results += measure(case, replace(settings, compile=False))
    return results


def contestants(
    shape: tuple[int, int, int], dim: int, names: Container[str] | None = None
) -> list[Contestant]:
    """Ours first, then the formula written out, then the others; all, or those named."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(shape, generator=generator).requires_grad_()
    p = torch.linspace(2.5, 3.5, shape[2 if dim == 1 else 1]).requires_grad_()
    shift = ((0.1 * torch.randn(shape[1:], generator=generator)).requires_grad_(),) * (dim == 1)
    upstream = torch.randn(shape[:dim] + shape[dim + 1 :], generator=generator)
    upstream_relu = torch.randn(shape, generator=generator)

    def ours(z: Tensor, p: Tensor, c: Tensor | None = None) -> Tensor:
        return lp_pool(z, p, center=c, dim=dim)

    def norm(z: Tensor, p: Tensor, c: Tensor | None = None) -> Tensor:
        return reference.lp_pool(z, p, center=c, dim=dim)

    def naive(z: Tensor, p: Tensor, c: Tensor | None = None) -> Tensor:  # as one would write it
        b = z if c is None else z - c
        return b.abs().pow(p.unsqueeze(dim - 1)).mean(dim).pow(1 / p)

    def amax(z: Tensor, b: Tensor | None = None) -> Tensor:
        return (z if b is None else z + b).amax(dim)

    def maximum(z: Tensor, b: Tensor | None = None) -> Tensor:
        return (z if b is None else z + b).max(dim).values

    def relu(z: Tensor, c: Tensor | None = None) -> Tensor:
        return torch.relu(z if c is None else z - c)

    found = [
        (OURS, ours, norm, (z, p, *shift), upstream),
        ("naive", naive, norm, (z, p, *shift), upstream),
        ("maxout, amax", amax, amax, (z, *shift), upstream),
        ("maxout, max", maximum, amax, (z, *shift), upstream),
        ("ReLU", relu, relu, (z, *shift), upstream_relu),
    ]
    if shift:  # a maxout layer can leave its biases to the matrix product
        found.insert(4, ("amax, no bias", amax, amax, (z,), upstream))
    chosen = [
        Contestant(name, function, inputs, upstream=above, expected=truth(formula, inputs, above))
        for name, function, formula, inputs, above in found
        if names is None or name in names
    ]
    data = z.detach()
    return [*chosen, Contestant("copy", torch.empty(shape).copy_, (data,), expected=(data,))]
