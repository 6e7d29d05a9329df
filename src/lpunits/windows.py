"""Windows that slide (:func:`lp_pool1d`), and that fill a size (:func:`adaptive_lp_pool1d`)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lpunits.arguments import check_floating, checked_orders, inside_a_transform, per_dimension
from lpunits.functional import lp_pool
from lpunits.ops import layouts, ops

Sizes = int | Sequence[int]


def lp_pool1d(
    z: Tensor,
    p: Tensor | float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    *,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    r""":func:`~lpunits.lp_pool` of windows that slide over one dimension, an order per channel.

    .. math:: u_{ct} = \Bigl( \frac{1}{k} \sum_{i=0}^{k-1} |z_{c, st + di}|^{p_c} \Bigr)^{1/p_c}

    The arguments mean what they mean in :func:`torch.nn.functional.avg_pool1d` and
    :func:`torch.nn.functional.max_pool1d`. Of non-negative input it is these, at p = 1 and inf.

    >>> z = torch.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0]]])
    >>> lp_pool1d(z, 1, kernel_size=2), lp_pool1d(z, float("inf"), 3, stride=2)
    (tensor([[[1.5000, 3.5000]]]), tensor([[[3., 5.]]]))

    Args:
        z: ``(batch, channels, length)`` or ``(channels, length)``.
        p: The order: a number from -inf to inf, or one per channel.
        kernel_size: Entries of a window.
        stride: From one window to the next; by default ``kernel_size``.
        padding: Zeros on both sides, at most half of a window.
        dilation: From one entry of a window to the next.
        ceil_mode: Whether a last window that does not fit is kept, with the entries that exist.
        count_include_pad: Whether the zeros of the padding count. They matter as much as zeros in z
            do: for p <= 0 their windows give 0.
    """
    return _windows(z, p, 1, kernel_size, stride, padding, dilation, ceil_mode, count_include_pad)


def lp_pool2d(
    z: Tensor,
    p: Tensor | float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    *,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    r"""Windows over two dimensions: :math:`u = (\mathrm{mean}_{window} |z|^{p_c})^{1/p_c}`.

    As :func:`lp_pool1d`, with a number or one for each of the two dimensions.
    :func:`torch.nn.functional.lp_pool2d` has a sum instead of the mean: for windows of k
    entries it gives ``k ** (1 / p)`` times as much.

    >>> z = torch.randn(2, 3, 8, 8)
    >>> torch.allclose(4**0.5 * lp_pool2d(z, 2, 2), torch.nn.functional.lp_pool2d(z, 2, 2))
    True
    """
    return _windows(z, p, 2, kernel_size, stride, padding, dilation, ceil_mode, count_include_pad)


def lp_pool3d(
    z: Tensor,
    p: Tensor | float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    *,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    r"""Windows over three dimensions: :math:`u = (\mathrm{mean}_{window} |z|^{p_c})^{1/p_c}`.

    As :func:`lp_pool1d`, with a number or one for each of the three dimensions.

    >>> lp_pool3d(torch.randn(2, 3, 4, 8, 8), 3, (2, 4, 4)).shape
    torch.Size([2, 3, 2, 2, 2])
    """
    return _windows(z, p, 3, kernel_size, stride, padding, dilation, ceil_mode, count_include_pad)


def adaptive_lp_pool1d(z: Tensor, p: Tensor | float, output_size: Any) -> Tensor:
    r""":func:`~lpunits.lp_pool` of windows that fill a given size, an order per channel.

    .. math:: u_{ct} = \Bigl( \mathrm{mean}_{\lfloor tn/m \rfloor \le i < \lceil (t+1)n/m \rceil}
        |z_{ci}|^{p_c} \Bigr)^{1/p_c}

    for n entries that become m: the windows of :func:`torch.nn.functional.adaptive_avg_pool1d` and
    :func:`torch.nn.functional.adaptive_max_pool1d`.

    >>> adaptive_lp_pool1d(torch.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0]]]), 1, 2)
    tensor([[[2., 4.]]])

    Args:
        z: ``(batch, channels, length)`` or ``(channels, length)``.
        p: The order: a number from -inf to inf, or one per channel.
        output_size: Windows along each dimension; None for as many as there are entries.
    """
    return _adaptive(z, p, 1, output_size)


def adaptive_lp_pool2d(z: Tensor, p: Tensor | float, output_size: Any) -> Tensor:
    r"""Windows that fill an image: :math:`u = (\mathrm{mean}_{window} |z|^{p_c})^{1/p_c}`.

    As :func:`adaptive_lp_pool1d`, with a number or one for each of the two dimensions.

    >>> adaptive_lp_pool2d(torch.randn(2, 3, 9, 8), 3, (7, None)).shape
    torch.Size([2, 3, 7, 8])
    """
    return _adaptive(z, p, 2, output_size)


def adaptive_lp_pool3d(z: Tensor, p: Tensor | float, output_size: Any) -> Tensor:
    r"""Windows that fill a volume: :math:`u = (\mathrm{mean}_{window} |z|^{p_c})^{1/p_c}`.

    As :func:`adaptive_lp_pool1d`, with a number or one for each of the three dimensions.

    >>> adaptive_lp_pool3d(torch.randn(2, 3, 9, 8, 8), 3, 1).shape
    torch.Size([2, 3, 1, 1, 1])
    """
    return _adaptive(z, p, 3, output_size)


def checked_windows(
    spatial: int, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Kernel, stride, padding and dilation, each with one number for each dimension."""
    kernel = per_dimension("kernel_size", kernel_size, spatial, least=1)
    steps = kernel if stride is None else per_dimension("stride", stride, spatial, least=1)
    widths = per_dimension("padding", padding, spatial, least=0)
    gaps = per_dimension("dilation", dilation, spatial, least=1)
    for size, width, gap in zip(kernel, widths, gaps, strict=True):
        if width > (gap * (size - 1) + 1) // 2:
            raise ValueError(
                f"padding must be at most half of kernel_size {kernel}, dilated by {gaps}, "
                f"got {widths}"
            )
    return kernel, steps, widths, gaps


def checked_output(spatial: int, output_size: Any) -> tuple[int | None, ...]:
    """The output size along each dimension, None where it is that of the input."""
    sizes = tuple(output_size) if isinstance(output_size, Sequence) else (output_size,) * spatial
    known = tuple(n for n in sizes if n is not None)
    if len(sizes) != spatial or (
        known and per_dimension("output_size", known, len(known), least=1) != known
    ):
        raise ValueError(
            f"output_size must be a positive integer or None, or one for each of {spatial} "
            f"dimensions, got {output_size!r}"
        )
    return sizes


def _checked_input(z: Tensor, p: Tensor | float, spatial: int) -> tuple[Tensor, Tensor]:
    """Z with a batch, and an order for each channel."""
    check_floating("z", z)
    if z.ndim not in (spatial + 1, spatial + 2):
        raise ValueError(
            f"z must have {spatial + 1} or {spatial + 2} dimensions, (batch,) channels and "
            f"{spatial} of space, got the shape {tuple(z.shape)}"
        )
    batch = z if z.ndim == spatial + 2 else z.unsqueeze(0)
    return batch, checked_orders(p, z, batch.shape[1])


def _windows(
    z: Tensor,
    p: Tensor | float,
    spatial: int,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
) -> Tensor:
    batch, orders = _checked_input(z, p, spatial)
    windows = checked_windows(spatial, kernel_size, stride, padding, dilation)
    if 0 in batch.shape[2:] or min(layouts.window_counts(batch.shape[2:], *windows, ceil_mode)) < 1:
        raise ValueError(
            f"z must be at least as large as kernel_size {windows[0]}, dilated by {windows[3]}, "
            f"after padding, got the shape {tuple(z.shape)}"
        )
    if torch._C._get_tracing_state() and torch.onnx.is_in_onnx_export():
        raise NotImplementedError(
            "torch.onnx.export(dynamo=False) has no windows of every size: use dynamo=True"
        )
    pool = layouts.pool_nd if inside_a_transform(batch, orders) else ops.lp_pool_nd
    u: Tensor = pool(batch, orders, *windows, ceil_mode, count_include_pad)
    return u if z is batch else u.squeeze(0)


def _adaptive(z: Tensor, p: Tensor | float, spatial: int, output_size: Any) -> Tensor:
    batch, orders = _checked_input(z, p, spatial)
    space = batch.shape[2:]
    if 0 in space:
        raise ValueError(f"z must hold at least one value in space, got the shape {tuple(z.shape)}")
    wanted = checked_output(spatial, output_size)
    sizes = [n if m is None else m for n, m in zip(space, wanted, strict=True)]
    kernel = [n // m for n, m in zip(space, sizes, strict=True)]
    if all(n % m == 0 for n, m in zip(space, sizes, strict=True)):
        return _windows(z, orders, spatial, kernel, kernel, 0, 1, False, True)
    # Windows of unequal sizes: as large as the largest, with a mask for what is not in them.
    mask = torch.ones((1,) * (2 * spatial), dtype=torch.bool, device=z.device)
    for d, (n, m) in enumerate(zip(space, sizes, strict=True)):
        t = torch.arange(m, device=z.device).unsqueeze(1)
        begin, end = t * n // m, ((t + 1) * n + m - 1) // m
        longest = max(((t + 1) * n + m - 1) // m - t * n // m for t in range(m))
        at = begin + torch.arange(longest, device=z.device)
        batch = batch.index_select(2 + 2 * d, at.clamp(max=n - 1).flatten())
        batch = batch.unflatten(2 + 2 * d, (m, longest))
        mask = mask & (at < end)[(...,) + (None,) * (2 * (spatial - d - 1))]
    pooled = tuple(range(3, 3 + 2 * spatial, 2))
    u = lp_pool(batch, orders.reshape(-1, *[1] * spatial), dim=pooled, mask=mask)
    return u if z.ndim == spatial + 2 else u.squeeze(0)
