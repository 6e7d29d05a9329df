"""The pooling layers: :func:`~lpunits.lp_pool`, its windows and segments, with learned orders.

Each takes the options of :class:`~lpunits.orders.Ordered`: ``order``, ``learn_order``, ``shared``,
``order_range``, ``device``, ``dtype``.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, Unpack

import torch
from torch import Tensor

from lpunits.arguments import check_floating, check_mask, check_sizes, counted_positions
from lpunits.functional import lp_pool
from lpunits.orders import Ordered, OrderOptions
from lpunits.segments import segment_lp_pool
from lpunits.windows import (
    adaptive_lp_pool1d,
    adaptive_lp_pool2d,
    adaptive_lp_pool3d,
    checked_output,
    checked_windows,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
)


class LpPool(Ordered):
    r""":func:`~lpunits.lp_pool` over one dimension, with a learned order for each unit.

    .. math:: u_j = \Bigl( \frac{1}{N} \sum_{i=1}^{N} |z_{ij}|^{p_j} \Bigr)^{1/p_j}

    The units are the last dimension of what remains: ``(..., units, filters)`` is pooled over
    ``dim=-1``, ``(..., filters, units)`` over ``dim=-2``.

    >>> LpPool(units=3, order=2.0)(torch.tensor([[3.0, 4.0], [0.0, 0.0], [1.0, -1.0]]))
    tensor([3.5355, 0.0000, 1.0000], grad_fn=<...>)

    Args:
        units: Size of the last dimension of the output.
        dim: The dimension that is pooled away.
        options: Orders, device and dtype, as in :class:`~lpunits.orders.Ordered`.
    """

    def __init__(self, units: int, *, dim: int = -1, **options: Unpack[OrderOptions]) -> None:
        check_sizes(units=units)
        super().__init__(units, **options)
        if isinstance(dim, bool) or not isinstance(dim, int):
            raise TypeError(f"dim must be an integer, got {dim!r}")
        self.units, self.dim = units, dim
        self.reset_parameters()

    def forward(
        self, z: Tensor, *, mask: Tensor | None = None, weight: Tensor | None = None
    ) -> Tensor:
        """Pool over ``dim``; the last dimension of the result are the units."""
        return lp_pool(z, self.order, dim=self.dim, mask=mask, weight=weight)

    def extra_repr(self) -> str:
        """Size, orders and dimension."""
        return f"units={self.units}, {super().extra_repr()}, dim={self.dim}"


class _Channels(Ordered):
    """An order for each channel of what is pooled."""

    def __init__(self, channels: int, **options: Unpack[OrderOptions]) -> None:
        check_sizes(channels=channels)
        super().__init__(channels, **options)
        self.channels = channels
        self.reset_parameters()

    def extra_repr(self) -> str:
        """Size and orders."""
        return f"channels={self.channels}, {super().extra_repr()}"


class _Spatial(_Channels):
    """Windows over the last ``spatial`` dimensions."""

    spatial: ClassVar[int]

    def _check(self, z: Tensor) -> None:
        check_floating("input", z)
        if z.ndim not in (self.spatial + 1, self.spatial + 2):
            raise ValueError(
                f"input must have {self.spatial + 1} or {self.spatial + 2} dimensions, "
                f"(batch,) channels and {self.spatial} of space, got the shape {tuple(z.shape)}"
            )
        dim = z.ndim - self.spatial - 1
        if z.shape[dim] != self.channels:
            raise ValueError(
                f"input must have channels={self.channels} as dimension {dim}, "
                f"got the shape {tuple(z.shape)}"
            )


class _LpPoolNd(_Spatial):
    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        *,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        **options: Unpack[OrderOptions],
    ) -> None:
        super().__init__(channels, **options)
        windows = checked_windows(self.spatial, kernel_size, stride, padding, dilation)
        self.kernel_size, self.stride, self.padding, self.dilation = windows
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, z: Tensor) -> Tensor:
        """``(batch, channels, *size)`` or ``(channels, *size)``, as torch's own pooling layers."""
        self._check(z)
        return (lp_pool1d, lp_pool2d, lp_pool3d)[self.spatial - 1](
            z,
            self.order,
            self.kernel_size,
            self.stride,
            self.padding,
            dilation=self.dilation,
            ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad,
        )

    def extra_repr(self) -> str:
        """Sizes and orders."""
        options = f", dilation={self.dilation}" * (max(self.dilation) > 1)
        options += ", ceil_mode=True" * self.ceil_mode
        options += ", count_include_pad=False" * (not self.count_include_pad)
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
            f"{options}, {super().extra_repr()}"
        )


class LpPool1d(_LpPoolNd):
    r"""Windows over one dimension, by :func:`~lpunits.lp_pool1d`, with an order per channel.

    .. math:: u_{ct} = \Bigl( \frac{1}{k} \sum_{i=0}^{k-1} |z_{c, st + di}|^{p_c} \Bigr)^{1/p_c}

    Takes ``(batch, channels, length)`` or ``(channels, length)``.

    >>> LpPool1d(channels=4, kernel_size=3, stride=2)(torch.randn(2, 4, 11)).shape
    torch.Size([2, 4, 5])

    Args:
        channels: Channels of input and output.
        kernel_size: Entries of a window.
        stride: From one window to the next; by default ``kernel_size``.
        padding: Zeros on both sides.
        dilation: From one entry of a window to the next.
        ceil_mode: Whether a last window that does not fit is kept, with the entries that exist.
        count_include_pad: Whether the zeros of the padding count.
        options: Orders, device and dtype, as in :class:`~lpunits.orders.Ordered`.
    """

    spatial = 1


class LpPool2d(_LpPoolNd):
    r"""Windows over two dimensions: :math:`u = (\mathrm{mean}_{window} |z|^{p_c})^{1/p_c}`.

    As :class:`LpPool1d`. Takes ``(batch, channels, height, width)`` or ``(channels, height,
    width)``; sizes are a number or one for each of the two dimensions. At order 1 and non-negative
    input it is :class:`torch.nn.AvgPool2d`, at order inf :class:`torch.nn.MaxPool2d`.
    :class:`torch.nn.LPPool2d` has a sum instead of the mean: for windows of k entries it gives
    ``k ** (1 / p)`` times as much.

    >>> LpPool2d(channels=8, kernel_size=2)(torch.randn(2, 8, 28, 28)).shape
    torch.Size([2, 8, 14, 14])
    """

    spatial = 2


class LpPool3d(_LpPoolNd):
    r"""Windows over three dimensions: :math:`u = (\mathrm{mean}_{window} |z|^{p_c})^{1/p_c}`.

    As :class:`LpPool1d`. Takes ``(batch, channels, depth, height, width)`` or the same without a
    batch.

    >>> LpPool3d(channels=8, kernel_size=(1, 2, 2))(torch.randn(2, 8, 4, 28, 28)).shape
    torch.Size([2, 8, 4, 14, 14])
    """

    spatial = 3


class _AdaptiveLpPoolNd(_Spatial):
    def __init__(self, channels: int, output_size: Any, **options: Unpack[OrderOptions]) -> None:
        super().__init__(channels, **options)
        self.output_size = checked_output(self.spatial, output_size)

    def forward(self, z: Tensor) -> Tensor:
        """``(batch, channels, *size)`` or ``(channels, *size)``."""
        self._check(z)
        pools = (adaptive_lp_pool1d, adaptive_lp_pool2d, adaptive_lp_pool3d)
        return pools[self.spatial - 1](z, self.order, self.output_size)

    def extra_repr(self) -> str:
        """Sizes and orders."""
        return f"output_size={self.output_size}, {super().extra_repr()}"


class AdaptiveLpPool1d(_AdaptiveLpPoolNd):
    r"""Windows that fill a length: :math:`u = (\mathrm{mean}_{window} |z|^{p_c})^{1/p_c}`.

    By :func:`~lpunits.adaptive_lp_pool1d`, with an order per channel.

    >>> AdaptiveLpPool1d(channels=4, output_size=5)(torch.randn(2, 4, 11)).shape
    torch.Size([2, 4, 5])

    Args:
        channels: Channels of input and output.
        output_size: Windows along each dimension; None for as many as there are entries.
        options: Orders, device and dtype, as in :class:`~lpunits.orders.Ordered`.
    """

    spatial = 1


class AdaptiveLpPool2d(_AdaptiveLpPoolNd):
    r"""Windows that fill an image: :math:`u = (\mathrm{mean}_{window} |z|^{p_c})^{1/p_c}`.

    >>> AdaptiveLpPool2d(channels=8, output_size=(7, None))(torch.randn(2, 8, 28, 9)).shape
    torch.Size([2, 8, 7, 9])
    """

    spatial = 2


class AdaptiveLpPool3d(_AdaptiveLpPoolNd):
    r"""Windows that fill a volume: :math:`u = (\mathrm{mean}_{window} |z|^{p_c})^{1/p_c}`.

    >>> AdaptiveLpPool3d(channels=8, output_size=2)(torch.randn(2, 8, 4, 9, 9)).shape
    torch.Size([2, 8, 2, 2, 2])
    """

    spatial = 3


class GlobalLpPool(_Channels):
    r"""Pool all of space into one value per channel: generalised-mean (GeM) pooling, done right.

    .. math:: u_c = \Bigl( \frac{1}{|\Omega|} \sum_{t \in \Omega} |z_{ct}|^{p_c} \Bigr)^{1/p_c}

    The usual formula, ``z.clamp(min=eps).pow(p).mean().pow(1 / p)``, overflows, loses small values
    to its clamp, and turns NaN for large orders. This one has no epsilon and an order per channel;
    on non-negative input it is the same mean. For GeM's behaviour on input with negative values,
    put a ReLU in front.

    >>> GlobalLpPool(channels=8)(torch.randn(2, 8, 7, 7).relu()).shape
    torch.Size([2, 8])

    Sequences of several lengths, of which the padding does not count:

    >>> GlobalLpPool(channels=8)(torch.randn(2, 8, 30), lengths=torch.tensor([30, 12])).shape
    torch.Size([2, 8])

    Single images, without a batch, as torch's own layers take them; these know how many dimensions
    of space there are:

    >>> GlobalLpPool(channels=8, spatial=2)(torch.randn(8, 7, 7)).shape
    torch.Size([8])

    Args:
        channels: Channels of input and output.
        keepdim: Whether the pooled dimensions stay, with size 1.
        spatial: How many dimensions of space there are. Then the batch may be missing. By default
            any number, behind a batch.
        options: Orders, device and dtype, as in :class:`~lpunits.orders.Ordered`.
    """

    spatial: int | None = None  # of modules that were pickled without

    def __init__(
        self,
        channels: int,
        *,
        keepdim: bool = False,
        spatial: int | None = None,
        **options: Unpack[OrderOptions],
    ) -> None:
        super().__init__(channels, **options)
        if spatial is not None:
            check_sizes(spatial=spatial)
        self.keepdim, self.spatial = keepdim, spatial

    @classmethod
    def from_gem(
        cls, gem: float | Tensor | Mapping[str, Tensor], channels: int, **options: Any
    ) -> Self:
        """The layer that continues a GeM pooling, from its p or from its ``state_dict``.

        GeM's one p for all channels becomes one shared order; a p per channel, one per channel.

        >>> GlobalLpPool.from_gem({"p": torch.tensor([2.7])}, channels=512)
        GlobalLpPool(channels=512, order=2.7, learn_order=True, shared=True)
        """
        return cls(channels, **(_order_in(gem) | options))

    def forward(
        self, z: Tensor, mask: Tensor | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        """``(batch, channels, *space)`` to ``(batch, channels)``, space of any number of dims.

        Args:
            z: The values. ``(channels, length)`` needs no batch; nor does ``(channels, *space)`` if
                the layer knows how many dimensions ``spatial`` has.
            mask: Booleans, which positions count: ``(batch, *space)``, of one dimension less than
                z, or such as broadcast to z.
            lengths: How many positions of each sequence count, ``(batch,)``.
        """
        check_floating("input", z)
        batched = z.ndim > (2 if self.spatial is None else self.spatial + 1)
        space = z.ndim - 1 - batched
        known = space > 0 if self.spatial is None else space == self.spatial
        if not known or z.shape[int(batched)] != self.channels:
            spatial = f"{self.spatial or 'at least 1'} of space"
            hint = " (images without a batch need spatial=2)" * (self.spatial is None)
            raise ValueError(
                f"input must have channels={self.channels} as dimension {int(batched)} "
                f"and {spatial}, got the shape {tuple(z.shape)}{hint}"
            )
        if isinstance(mask, Tensor) and mask.ndim == z.ndim - 1:
            mask = mask.unsqueeze(int(batched))
        if lengths is not None:
            check_mask(mask, z)
            counted = counted_positions(lengths, z, int(batched)).unsqueeze(int(batched))
            mask = counted if mask is None else mask & counted
        dims = tuple(range(-space, 0))
        order = self.order.reshape(-1, *[1] * space) if self.keepdim else self.order
        return lp_pool(z, order, dim=dims, keepdim=self.keepdim, mask=mask)


class SegmentLpPool(_Channels):
    r"""Groups of any size, by :func:`~lpunits.segment_lp_pool`, with an order per channel.

    .. math:: u_{gc} = \Bigl( \mathrm{mean}_{i \in g} |z_{ic}|^{p_c} \Bigr)^{1/p_c}

    >>> pool = SegmentLpPool(channels=8)
    >>> pool(torch.randn(10, 8), torch.tensor([0, 0, 1, 0, 2, 2, 2, 1, 1, 0])).shape
    torch.Size([3, 8])

    Args:
        channels: Size of the last dimension.
        options: Orders, device and dtype, as in :class:`~lpunits.orders.Ordered`.
    """

    @classmethod
    def from_power_mean(
        cls, source: float | Tensor | Mapping[str, Tensor], channels: int, **options: Any
    ) -> Self:
        """The layer that continues PyG's ``PowerMeanAggregation``, from its p or ``state_dict``.

        It takes absolute values instead of a clamp to 0 to 100: the same on such input.

        >>> SegmentLpPool.from_power_mean({"p": torch.tensor([1.5, 2.0])}, channels=2)
        SegmentLpPool(channels=2, order=1.5..2, learn_order=True, order_range=(-inf, inf))
        """
        free = {"order_range": (-math.inf, math.inf)}  # PyG starts at 1, where 1 + softplus is flat
        return cls(channels, **(free | _order_in(source) | options))

    def forward(
        self,
        z: Tensor,
        index: Tensor | None = None,
        *,
        offsets: Tensor | None = None,
        num_segments: int | None = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        """``(rows, ..., channels)`` to ``(segments, ..., channels)``."""
        check_floating("input", z)
        if z.ndim < 2 or z.shape[-1] != self.channels:
            raise ValueError(
                f"input must have rows in front and channels={self.channels} as its last "
                f"dimension, got the shape {tuple(z.shape)}"
            )
        groups = {"offsets": offsets, "num_segments": num_segments, "weight": weight}
        return segment_lp_pool(z, self.order, index, **groups)  # type: ignore[arg-type]


def _order_in(source: float | Tensor | Mapping[str, Tensor]) -> dict[str, Any]:
    """The p of another library's layer: a number, a tensor, or the one in a state_dict."""
    if isinstance(source, Mapping):
        found = [t for name, t in source.items() if name.split(".")[-1] == "p"]
        if len(found) != 1:
            raise ValueError(f"state_dict must hold one entry named p, got {sorted(source)}")
        source = found[0]
    order = torch.as_tensor(source).detach().flatten().tolist()
    one = len(order) == 1
    return {"order": order[0] if one else order, "shared": one}
