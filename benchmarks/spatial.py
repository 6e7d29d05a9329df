"""Spatial pooling: ``LpPool1d/2d/3d`` and ``GlobalLpPool`` against torch's layers and formulas.

Features are positive, as after a ReLU, so that GeM and ``nn.LPPool2d`` compute the same norm.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

import lpunits
from lpunits import reference
from lpunits.ops import plain
from timing import OURS, Case, Contestant, Result, Settings, measure, truth

QUESTION = "spatial"
FORMATS = {"channels first": torch.contiguous_format, "channels last": torch.channels_last}
WINDOWS = tuple(f"LpPool2d, {layout}" for layout in FORMATS)
OTHER_WINDOWS = ("LpPool1d", "LpPool3d")
GLOBAL = tuple(f"GlobalLpPool, {layout}" for layout in FORMATS)
GEM = ("GeM", "GeM, per channel")
PLAIN = "plain torch"
EPSILON = 1e-6  # GeM's
Window = tuple[tuple[int, ...], int, int]  # kernel, stride, padding


def run(settings: Settings) -> list[Result]:
    """Windows and whole images, in both layouts of memory; then windows over other dimensions."""
    results = []
    for windows, whole, layout in zip(WINDOWS, GLOBAL, FORMATS.values(), strict=True):
        large = _features((16, 64, 56, 56), settings, layout)
        small = _features((32, 256, 7, 7), settings, layout)
        for window in (((2, 2), 2, 0), ((3, 3), 2, 1)):
            results += _windows(windows, large, window, settings)
        for z in (small, large):
            results += _whole(whole, z, settings)
    for group, shape in zip(OTHER_WINDOWS, ((16, 64, 3136), (4, 64, 16, 28, 28)), strict=True):
        window = ((2,) * (len(shape) - 2), 2, 0)
        results += _windows(group, _features(shape, settings), window, settings)
    return results


def _windows(group: str, z: Tensor, window: Window, settings: Settings) -> list[Result]:
    kernel, stride, padding = window
    dims = len(kernel)
    layer = getattr(lpunits, f"LpPool{dims}d")(z.shape[1], *window, order=_orders(z))
    norm, average, maximum = (getattr(nn, f"{kind}Pool{dims}d") for kind in ("LP", "Avg", "Max"))
    layers = layer, norm(3.0, kernel[0], stride), average(*window), maximum(*window)
    name = f"k={kernel[0]} s={stride} p={padding}"
    found = _contestants(z, *layers, window)
    return measure(Case(QUESTION, group, name, z.numel(), found), settings)


def _whole(group: str, z: Tensor, settings: Settings) -> list[Result]:
    """One window, as large as the image."""
    size = tuple(z.shape[2:])
    layer = lpunits.GlobalLpPool(z.shape[1], order=_orders(z), keepdim=True)
    layers = layer, nn.LPPool2d(3.0, size), nn.AdaptiveAvgPool2d(1), nn.AdaptiveMaxPool2d(1)
    found = _contestants(z, *layers, (size, 1, 0))
    (formula,) = (c for c in found if c.name == GEM[1])
    found.append(replace(formula, name=PLAIN, function=_plain, eager_only=True))
    name = "x".join(map(str, z.shape))
    return measure(Case(QUESTION, group, name, z.numel(), found), settings)


def _contestants(
    z: Tensor,
    layer: lpunits.LpPool2d | lpunits.GlobalLpPool,
    norm: nn.Module,
    average: nn.Module,
    maximum: nn.Module,
    window: Window,
) -> list[Contestant]:
    """Our layer, the formulas by torch's average, and torch's layers."""
    groups, unpadded = partial(_groups, window=window), (*window[:2], 0)
    upstream = torch.randn(maximum(z).shape, generator=torch.Generator().manual_seed(1))
    if not z.is_contiguous():  # as the next layer would return it
        upstream = upstream.contiguous(memory_format=torch.channels_last)
    per_channel = (-1, *[1] * (z.ndim - 2))
    p = layer.order.detach().reshape(per_channel).requires_grad_()
    one = torch.full((1,), 3.0).requires_grad_()  # GeM as published: one order for all channels
    # torch's norm knows no padding: it gets padded features, and does not pay for that.
    padded = pad(z.detach(), [window[2]] * 2 * (z.ndim - 2)).requires_grad_()

    def gem(z: Tensor, p: Tensor) -> Tensor:
        return average(z.clamp(min=EPSILON).pow(p)).pow(1 / p)

    def exact(z: Tensor, p: Tensor) -> Tensor:
        return reference.lp_pool(groups(z), p)

    def exact_by_rho(z: Tensor, rho: Tensor) -> Tensor:
        return exact(z, reference.order(rho).reshape(per_channel))

    def exact_sum(z: Tensor) -> Tensor:
        values = _groups(z, unpadded)
        return reference.lp_pool(values, 3.0) * values.shape[-1] ** (1 / 3)

    rows = [
        (OURS, layer, exact_by_rho, (z,), (layer.rho,)),
        (GEM[0], gem, exact, (z, one), ()),
        (GEM[1], gem, exact, (z, p), ()),
        (_name(norm), norm, exact_sum, (padded,), ()),
        (_name(average), average, lambda z: groups(z).mean(-1), (z,), ()),
        (_name(maximum), maximum, lambda z: groups(z).amax(-1), (z,), ()),
    ]
    found = [
        Contestant(name, function, inputs, own, upstream, truth(formula, inputs + own, upstream))
        for name, function, formula, inputs, own in rows
    ]
    # Its gradient by the one order is a sum over everything, in which single precision cancels.
    found[1].expected = found[1].expected[:2]
    data = z.detach()
    return [*found, Contestant("copy", torch.empty_like(data).copy_, (data,), expected=(data,))]


def _plain(z: Tensor, p: Tensor) -> Tensor:
    return _Plain.apply(z.flatten(2), p.flatten(1))[..., None, None]


class _Plain(torch.autograd.Function):
    """The operator without the compiled library; torch.compile would call it as it is."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, p: Tensor) -> Tensor:
        ctx.save_for_backward(z, p)
        return plain.forward(z, p, None, 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return plain.backward(grad, *ctx.saved_tensors, None, 2, (True, True, False))[:2]


def _features(
    shape: tuple[int, ...],
    settings: Settings,
    layout: torch.memory_format = torch.contiguous_format,
) -> Tensor:
    shape = (max(1, shape[0] // settings.shrink), *shape[1:])
    z = torch.randn(shape, generator=torch.Generator().manual_seed(0)).abs_().add_(EPSILON)
    return z.contiguous(memory_format=layout).requires_grad_()


def _orders(z: Tensor) -> list[float]:
    return torch.linspace(2.5, 3.5, z.shape[1]).tolist()


def _groups(z: Tensor, window: Window) -> Tensor:
    """The values of each window, along a new last dimension."""
    kernel, stride, padding = window
    z = pad(z, [padding] * 2 * len(kernel))
    for dim, size in enumerate(kernel, start=2):
        z = z.unfold(dim, size, stride)
    return z.flatten(2 + len(kernel))


def _name(layer: nn.Module) -> str:
    return f"nn.{type(layer).__name__}"
