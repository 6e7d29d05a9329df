"""PyTorch Geometric: :class:`LpAggregation`, for message passing and readout."""

import math
from typing import Any, Self, Unpack

from torch import Tensor, nn
from torch_geometric.nn.aggr import Aggregation, PowerMeanAggregation

from lpunits.arguments import check_sizes
from lpunits.orders import Ordered, OrderOptions
from lpunits.segments import segment_lp_pool


class LpAggregation(Ordered, Aggregation):  # type: ignore[misc]
    r"""Aggregate by a mean of learned order: :func:`~lpunits.segment_lp_pool` as PyG calls it.

    .. math:: u_g = \Bigl( \mathrm{mean}_{i \in g} |x_i|^p \Bigr)^{1/p}

    On non-negative features it is PyG's mean at order 1 and its max at order inf. It takes an
    unsorted ``index``, or ``ptr``; a node without neighbours gets 0.

    >>> import torch
    >>> from torch_geometric.nn import SAGEConv
    >>> conv = SAGEConv(16, 32, aggr=LpAggregation(channels=16))
    >>> edges = torch.tensor([[0, 1, 2, 2], [1, 0, 0, 1]])
    >>> conv(torch.randn(3, 16).relu(), edges).shape
    torch.Size([3, 32])

    Args:
        channels: Features, each with an order of its own; 1 for one order that serves any number
            of features, as in ``PowerMeanAggregation``.
        options: Orders, device and dtype, as in :class:`~lpunits.orders.Ordered`.
    """

    def __init__(self, channels: int = 1, **options: Unpack[OrderOptions]) -> None:
        check_sizes(channels=channels)
        super().__init__(channels, **options)
        self.channels = channels
        self.reset_parameters()

    @classmethod
    def from_power_mean(cls, source: PowerMeanAggregation, **options: Any) -> Self:
        """The layer that continues a ``PowerMeanAggregation``, with its p, learned if that was.

        Its orders are free, from -inf to inf, as p was. Features are taken by their absolute
        values; PyG clamps them to 1e-4 to 100. An empty group gives 0; in PyG the p-th root of
        1e-4.

        >>> LpAggregation.from_power_mean(PowerMeanAggregation(p=2.0, learn=True, channels=8))
        LpAggregation(channels=8, order=2, learn_order=True, order_range=(-inf, inf))
        """
        order = source.p.detach() if isinstance(source.p, Tensor) else float(source.p)
        own: dict[str, Any] = {"learn_order": source.learn, "order_range": (-math.inf, math.inf)}
        return cls(source.channels, order=order, **(own | options))

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
        max_num_elements: int | None = None,
    ) -> Tensor:
        """Pool the rows of each group; the last dimension of x are the features."""
        if self.channels not in (1, x.shape[-1]):
            raise ValueError(
                f"x must have channels={self.channels} as its last dimension, got the shape "
                f"{tuple(x.shape)}"
            )
        index = index if ptr is None else None  # both say the same
        return segment_lp_pool(x, self.order, index, offsets=ptr, num_segments=dim_size, dim=dim)

    def extra_repr(self) -> str:
        """Size and orders."""
        return f"channels={self.channels}, {super().extra_repr()}"

    __repr__ = nn.Module.__repr__
