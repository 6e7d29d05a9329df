"""The pooling layers: thin modules around :func:`~lpunits.lp_pool` and its windows."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lpunits.arguments import check_sizes
from lpunits.functional import lp_pool
from lpunits.orders import Ordered, Orders
from lpunits.windows import checked_windows, lp_pool1d, lp_pool2d, lp_pool3d


class LpPool(Ordered):
    r""":func:`~lpunits.lp_pool` over one dimension, with a learned order for each unit.

    .. math:: u_j = \Bigl( \frac{1}{N} \sum_{i=1}^{N} |z_{ij}|^{p_j} \Bigr)^{1/p_j}

    The units are the last dimension of what remains: ``(..., units, filters)`` is pooled over
    ``dim=-1``, ``(..., filters, units)`` over ``dim=-2``.

    >>> LpPool(units=3, order=2.0)(torch.tensor([[3.0, 4.0], [0.0, 0.0], [1.0, -1.0]]))
    tensor([3.5355, 0.0000, 1.0000], grad_fn=<...>)

    Args:
        units: Size of the last dimension of the output.
        order: The orders to start from: a number from 1 to inf, or one per unit.
        learn_order: Whether ``rho`` is a parameter; if not, it is a buffer.
        dim: The dimension that is pooled away.
        device: Where the parameters live.
        dtype: The dtype of the parameters.
    """

    def __init__(
        self,
        units: int,
        *,
        order: Orders = 3.0,
        learn_order: bool = True,
        dim: int = -1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(units=units)
        super().__init__(units, order, learn_order, device, dtype)
        if isinstance(dim, bool) or not isinstance(dim, int):
            raise TypeError(f"dim must be an integer, got {dim!r}")
        self.units, self.dim = units, dim
        self.reset_parameters()

    def forward(self, z: Tensor) -> Tensor:
        """Pool over ``dim``; the last dimension of the result are the units."""
        return lp_pool(z, self.order, dim=self.dim)

    def extra_repr(self) -> str:
        """Size, orders and dimension."""
        return f"units={self.units}, {super().extra_repr()}, dim={self.dim}"


class _LpPoolNd(Ordered):
    """Pooling windows that slide over the last ``spatial`` dimensions."""

    spatial: int

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        *,
        order: Orders = 3.0,
        learn_order: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(channels=channels)
        super().__init__(channels, order, learn_order, device, dtype)
        self.channels = channels
        windows = checked_windows(self.spatial, kernel_size, stride, padding, 1)
        self.kernel_size, self.stride, self.padding, self.dilation = windows
        self.reset_parameters()

    def forward(self, z: Tensor) -> Tensor:
        """``(batch, channels, *size)`` or ``(channels, *size)``, as torch's own pooling layers."""
        if z.ndim not in (self.spatial + 1, self.spatial + 2):
            raise ValueError(
                f"input must have {self.spatial + 1} or {self.spatial + 2} dimensions, "
                f"(batch,) channels and {self.spatial} of space, got the shape {tuple(z.shape)}"
            )
        first = z.ndim - self.spatial
        _check_channels(z, first - 1, self.channels)
        pool = (lp_pool1d, lp_pool2d, lp_pool3d)[self.spatial - 1]
        return pool(z, self.order, self.kernel_size, self.stride, self.padding)

    def extra_repr(self) -> str:
        """Sizes and orders."""
        return (
            f"channels={self.channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"padding={self.padding}, {super().extra_repr()}"
        )


class LpPool1d(_LpPoolNd):
    r"""Windows over one dimension, each pooled by :func:`~lpunits.lp_pool`, an order per channel.

    .. math:: u_{ct} = \Bigl( \frac{1}{k} \sum_{i=0}^{k-1} |z_{c, st + i}|^{p_c} \Bigr)^{1/p_c}

    Takes ``(batch, channels, length)`` or ``(channels, length)``.

    >>> LpPool1d(channels=4, kernel_size=3, stride=2)(torch.randn(2, 4, 11)).shape
    torch.Size([2, 4, 5])

    Args:
        channels: Channels of input and output.
        kernel_size: Width of the window.
        stride: Step of the window, its width by default.
        padding: Zeros put on both sides; like other entries they count in N.
        order: The orders to start from: a number from 1 to inf, or one per channel.
        learn_order: Whether ``rho`` is a parameter; if not, it is a buffer.
        device: Where the parameters live.
        dtype: The dtype of the parameters.
    """

    spatial = 1


class LpPool2d(_LpPoolNd):
    r"""Windows over two dimensions: :math:`u = (\mathrm{mean}_{window} |z|^{p_c})^{1/p_c}`.

    As :class:`LpPool1d`, with an order per channel.
    Takes ``(batch, channels, height, width)`` or ``(channels, height, width)``; ``kernel_size``,
    ``stride`` and ``padding`` are a number or one for each of the two. At order 1 and
    non-negative input it is :class:`torch.nn.AvgPool2d`, at order inf
    :class:`torch.nn.MaxPool2d`.

    >>> LpPool2d(channels=8, kernel_size=2)(torch.randn(2, 8, 28, 28)).shape
    torch.Size([2, 8, 14, 14])
    """

    spatial = 2


class LpPool3d(_LpPoolNd):
    r"""Windows over three dimensions: :math:`u = (\mathrm{mean}_{window} |z|^{p_c})^{1/p_c}`.

    As :class:`LpPool1d`, with an order per channel.
    Takes ``(batch, channels, depth, height, width)`` or the same without a batch.

    >>> LpPool3d(channels=8, kernel_size=(1, 2, 2))(torch.randn(2, 8, 4, 28, 28)).shape
    torch.Size([2, 8, 4, 14, 14])
    """

    spatial = 3


class GlobalLpPool(Ordered):
    r"""Pool all of space into one value per channel: generalised-mean (GeM) pooling, done right.

    .. math:: u_c = \Bigl( \frac{1}{|\Omega|} \sum_{t \in \Omega} |z_{ct}|^{p_c} \Bigr)^{1/p_c}

    The usual formula, ``z.clamp(min=eps).pow(p).mean().pow(1 / p)``, overflows, loses small values
    to its clamp, and turns NaN for large orders. This one has no epsilon and an order per channel;
    on non-negative input it is the same mean. For GeM's behaviour on input with negative values,
    put a ReLU in front.

    >>> GlobalLpPool(channels=8)(torch.randn(2, 8, 7, 7).relu()).shape
    torch.Size([2, 8])

    Args:
        channels: Channels of input and output.
        order: The orders to start from: a number from 1 to inf, or one per channel.
        learn_order: Whether ``rho`` is a parameter; if not, it is a buffer.
        keepdim: Whether the pooled dimensions stay, with size 1.
        device: Where the parameters live.
        dtype: The dtype of the parameters.
    """

    def __init__(
        self,
        channels: int,
        *,
        order: Orders = 3.0,
        learn_order: bool = True,
        keepdim: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(channels=channels)
        super().__init__(channels, order, learn_order, device, dtype)
        self.channels, self.keepdim = channels, keepdim
        self.reset_parameters()

    def forward(self, z: Tensor) -> Tensor:
        """``(batch, channels, *space)`` to ``(batch, channels)``, space of any number of dims."""
        if z.ndim < 3:
            raise ValueError(
                "input must have a batch, channels and at least one dimension of space, "
                f"got the shape {tuple(z.shape)}"
            )
        _check_channels(z, 1, self.channels)
        u = lp_pool(z.flatten(2), self.order)
        return u.reshape(*u.shape, *[1] * (z.ndim - 2)) if self.keepdim else u

    def extra_repr(self) -> str:
        """Size and orders."""
        return f"channels={self.channels}, {super().extra_repr()}"


def _check_channels(z: Tensor, dim: int, channels: int) -> None:
    if z.shape[dim] != channels:
        raise ValueError(
            f"input must have channels={channels} as dimension {dim}, "
            f"got the shape {tuple(z.shape)}"
        )
