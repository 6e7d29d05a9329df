"""Masks, and groups of any size: what a mask costs, and segments against PyTorch Geometric.

1,000,000 rows of 64 values in 10,000 groups, in any order, against the aggregations of PyG, which
sum by torch's own scatter (torch_scatter has no build for every torch).
"""

from functools import partial

import torch
from torch import Tensor
from torch_geometric.nn.aggr import MeanAggregation, PowerMeanAggregation

from lpunits import lp_pool, segment_lp_pool
from timing import OURS, Case, Contestant, Result, Settings, measure, truth

QUESTION = "segments and masks"
SEGMENTS, MASKS = "segments", "masks"
MEAN, POWER_MEAN, NO_MASK = "PyG, mean", "PyG, power mean", "no mask"
ROWS, WIDTH, GROUPS = 1_000_000, 64, 10_000
ORDER = 3.0


def run(settings: Settings) -> list[Result]:
    """Segments, then masks of two kinds."""
    return measure(_segments(settings), settings) + [
        result for case in _masks(settings) for result in measure(case, settings)
    ]


def _segments(settings: Settings) -> Case:
    """The gradient is by the values: PyG's mean has no order to learn."""
    generator = torch.Generator().manual_seed(0)
    rows, groups = ROWS // settings.shrink, GROUPS // settings.shrink
    z = (torch.rand(rows, WIDTH, generator=generator) + 0.01).requires_grad_()
    index = torch.randint(groups, (rows,), generator=generator)
    upstream = torch.rand(groups, WIDTH, generator=generator)
    p = torch.full((WIDTH,), ORDER)

    def mean(z: Tensor, power: float = 1.0) -> Tensor:
        total = z.new_zeros(groups, WIDTH).index_add(0, index, z.pow(power))
        return (total / index.bincount(minlength=groups).clamp(min=1).unsqueeze(1)).pow(1 / power)

    cube = partial(mean, power=ORDER)
    by_pyg = {"index": index, "dim_size": groups, "dim": 0}
    contestants = [
        Contestant(
            name, function, (z,), (), upstream, truth(formula, (z,), upstream), eager_only=True
        )
        for name, function, formula in (
            (OURS, lambda z: segment_lp_pool(z, p, index, num_segments=groups), cube),
            (MEAN, partial(MeanAggregation(), **by_pyg), mean),
            (POWER_MEAN, partial(PowerMeanAggregation(p=ORDER), **by_pyg), cube),
        )
    ]
    name = f"{rows:,} x {WIDTH} values in {groups:,} groups"
    return Case(QUESTION, SEGMENTS, name, z.numel(), contestants)


def _masks(settings: Settings) -> list[Case]:
    """A quarter of sequences is padding: by their lengths, or with a mask for every entry."""
    generator = torch.Generator().manual_seed(0)
    batch = max(1, 64 // settings.shrink)
    z = torch.randn(batch, 256, 128, generator=generator).requires_grad_()
    lengths = torch.randint(64, 129, (batch, 1, 1), generator=generator)
    upstream = torch.randn(batch, 256, generator=generator)
    p = torch.full((256,), ORDER, requires_grad=True)
    by_length = torch.arange(128) < lengths

    def contestant(name: str, mask: Tensor | None) -> Contestant:
        def formula(z: Tensor, p: Tensor) -> Tensor:
            count = torch.ones(()) if mask is None else mask.double()
            powers = z.abs().pow(p.unsqueeze(1)) * count
            return (powers.sum(-1) / count.expand(z.shape).sum(-1)).pow(1 / p)

        expected = truth(formula, (z, p), upstream)
        function = partial(_pooled, mask=mask)
        return Contestant(name, function, (z, p), (), upstream, expected, eager_only=True)

    masks = {"lengths": by_length, "each entry": by_length.expand(z.shape).contiguous()}
    return [
        Case(QUESTION, MASKS, kind, z.numel(), [contestant(OURS, mask), contestant(NO_MASK, None)])
        for kind, mask in masks.items()
    ]


def _pooled(z: Tensor, p: Tensor, mask: Tensor | None) -> Tensor:
    return lp_pool(z, p, mask=mask)
