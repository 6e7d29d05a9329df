"""Masks and segments: what a mask costs, and segment pooling against the mean of other libraries.

``python benchmarks/segments.py`` checks first that what it times is right, then prints the fastest
of several runs of each contestant, taken in turns: 1,000,000 rows of 64 values in 10,000 groups, in
any order, against the formulas of PyG's mean and power mean aggregations in torch.
"""

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from lpunits import lp_pool, segment_lp_pool

ROWS, WIDTH, GROUPS = 1_000_000, 64, 10_000


def mean(z: Tensor, index: Tensor) -> Tensor:
    """PyG's and torch_scatter's mean: a sum by index, divided by how many there are."""
    spread = index.unsqueeze(1).expand_as(z)
    total = z.new_zeros(GROUPS, z.shape[1]).scatter_add_(0, spread, z)
    count = z.new_zeros(GROUPS).scatter_add_(0, index, z.new_ones(len(index)))
    return total / count.clamp(min=1).unsqueeze(1)


def power_mean(z: Tensor, index: Tensor, p: Tensor) -> Tensor:
    """PyG's PowerMeanAggregation: clamped values, their power, its mean, the root."""
    return mean(z.clamp(min=0, max=100).pow(p), index).clamp(min=0, max=100).pow(1 / p)


def fastest(contestants: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The shortest time of each, in milliseconds."""
    found = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, call in contestants.items():
            start = time.perf_counter()
            call()
            found[name] = min(found[name], 1e3 * (time.perf_counter() - start))
    return found


def segments(rounds: int, shrink: int = 1) -> dict[str, float]:
    """Forward, and forward with gradients of the values."""
    generator = torch.Generator().manual_seed(0)
    rows = ROWS // shrink
    z = torch.rand(rows, WIDTH, generator=generator) + 0.01
    index = torch.randint(GROUPS, (rows,), generator=generator)
    p = torch.full((WIDTH,), 3.0)
    formula = power_mean(z.double(), index, p.double()).float()
    torch.testing.assert_close(segment_lp_pool(z, p, index, num_segments=GROUPS), formula)
    torch.testing.assert_close(
        segment_lp_pool(z, 1, index, num_segments=GROUPS), mean(z.double(), index).float()
    )
    upstream = torch.rand(GROUPS, WIDTH, generator=generator)

    def step(function: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        leaf = z.detach().requires_grad_()
        return lambda: torch.autograd.grad(function(leaf), leaf, upstream)

    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "segment_lp_pool": lambda z: segment_lp_pool(z, p, index, num_segments=GROUPS),
        "mean": lambda z: mean(z, index),
        "power mean": lambda z: power_mean(z, index, p),
    }
    calls: dict[str, Callable[[], object]] = {
        f"{name}, forward": (lambda f=f: f(z)) for name, f in functions.items()
    }
    calls |= {f"{name}, with gradients": step(f) for name, f in functions.items()}
    return fastest(calls, rounds)


def masks(rounds: int) -> dict[str, float]:
    """Sequences with and without a mask, forward and with gradients."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(64, 256, 128, generator=generator)
    lengths = torch.randint(64, 129, (64, 1, 1), generator=generator)
    mask, p = torch.arange(128) < lengths, torch.full((256,), 3.0)
    first = lp_pool(z[0, :, : int(lengths[0])], p)
    torch.testing.assert_close(lp_pool(z, p, mask=mask)[0], first)
    leaf, upstream = z.clone().requires_grad_(), torch.randn(64, 256, generator=generator)
    full = mask.expand_as(z).contiguous()
    calls: dict[str, Callable[[], object]] = {}
    for name, given in (("no mask", None), ("lengths", mask), ("a mask of its own", full)):
        calls[f"{name}, forward"] = lambda m=given: lp_pool(z, p, mask=m)
        calls[f"{name}, with gradients"] = lambda m=given: torch.autograd.grad(
            lp_pool(leaf, p, mask=m), leaf, upstream
        )
    return fastest(calls, rounds)


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for name, milliseconds in (masks(4 * number) | segments(number)).items():
        print(f"{name:35} {milliseconds:9.1f} ms")
