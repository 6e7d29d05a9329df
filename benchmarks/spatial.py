"""Pooling over space: ``LpPool2d`` and ``GlobalLpPool`` against torch's layers and formulas.

Features are non-negative, as behind a ReLU, so that GeM and ``nn.LPPool2d`` compute a norm, too.
"""

from math import prod

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, pad, unfold

from lpunits import GlobalLpPool, LpPool2d, reference
from timing import OURS, Case, Contestant, Result, Settings, measure

QUESTION = "spatial"
WINDOW, GLOBAL = GROUPS = "LpPool2d", "GlobalLpPool"
FORMATS = {"channels first": torch.contiguous_format, "channels last": torch.channels_last}
WINDOWS = ((2, 2, 0), (3, 2, 1))  # kernel, stride, padding
LARGE, SMALL = (16, 64, 56, 56), (32, 256, 7, 7)
EPSILON = 1e-6  # GeM's


def run(settings: Settings) -> list[Result]:
    """Windows and whole images, in both layouts of memory."""
    results = []
    for layout, memory_format in FORMATS.items():
        for window in WINDOWS:
            z = _features(LARGE, memory_format, settings.shrink)
            name = "k={} s={} p={}".format(*window)
            case = Case(QUESTION, f"{WINDOW}, {layout}", name, z.numel(), _windows(z, *window))
            results += measure(case, settings)
        for shape in (SMALL, LARGE):
            z = _features(shape, memory_format, settings.shrink)
            name = "x".join(map(str, z.shape))
            case = Case(QUESTION, f"{GLOBAL}, {layout}", name, z.numel(), _whole(z))
            results += measure(case, settings)
    return results


def _features(shape: tuple[int, ...], memory_format: torch.memory_format, shrink: int) -> Tensor:
    shape = (max(1, shape[0] // shrink), *shape[1:])
    z = torch.randn(shape, generator=torch.Generator().manual_seed(0)).abs_().add_(EPSILON)
    return z.contiguous(memory_format=memory_format).requires_grad_()


def _windows(z: Tensor, kernel: int, stride: int, padding: int) -> list[Contestant]:
    channels = z.shape[1]
    layer = LpPool2d(channels, kernel, stride, padding, order=_orders(channels))
    torch_lp = nn.LPPool2d(3.0, kernel, stride)
    average = nn.AvgPool2d(kernel, stride, padding)
    maximum = nn.MaxPool2d(kernel, stride, padding)
    p, p3 = _learned(layer)

    def naive() -> Tensor:
        return avg_pool2d(z.abs().pow(p3), kernel, stride, padding).pow(1 / p3)

    def gem() -> Tensor:
        return avg_pool2d(z.clamp(min=EPSILON).pow(p3), kernel, stride, padding).pow(1 / p3)

    def torchs() -> Tensor:  # sums, and knows no padding
        return torch_lp(pad(z, [padding] * 4) if padding else z)

    def truth(z: Tensor, rho: Tensor) -> Tensor:
        columns = unfold(z, kernel, padding=padding, stride=stride)
        groups = columns.unflatten(1, (channels, kernel * kernel))
        return reference.lp_pool(groups, reference.order(rho)[:, None], dim=2).reshape(shape)

    with torch.no_grad():
        shape = average(z).shape
        at_three = torch.full_like(layer.rho, 2.0).expm1().log().double()  # p = 1 + softplus = 3
        summed = truth(z.double(), at_three) * (kernel * kernel) ** (1 / 3)
        pooled = average(z.double()), maximum(z.double())
    upstream = _upstream(pooled[0], z)
    # GeM is the naive formula here: every value is above its epsilon.
    value, by_rho, by_p = _truth(truth, z, layer.rho, upstream)
    return [
        Contestant(OURS, lambda: layer(z), (z, layer.rho), upstream, (value, *by_rho)),
        Contestant("naive", naive, (z, p), upstream, (value, *by_p)),
        Contestant("GeM", gem, (z, p), upstream, (value, *by_p)),
        Contestant("nn.LPPool2d", torchs, (z,), upstream, (summed,)),
        Contestant("nn.AvgPool2d", lambda: average(z), (z,), upstream, pooled[:1]),
        Contestant("nn.MaxPool2d", lambda: maximum(z), (z,), upstream, pooled[1:]),
        _copy(z),
    ]


def _whole(z: Tensor) -> list[Contestant]:
    channels, size = z.shape[1], z.shape[2:]
    layer = GlobalLpPool(channels, order=_orders(channels), keepdim=True)
    torch_lp = nn.LPPool2d(3.0, size)
    p, p3 = _learned(layer)
    one = torch.full((1,), 3.0).requires_grad_()

    def naive() -> Tensor:
        return z.abs().pow(p3).mean((2, 3), keepdim=True).pow(1 / p3)

    def gem() -> Tensor:  # as published: one order for all channels
        return avg_pool2d(z.clamp(min=EPSILON).pow(one), size).pow(1 / one)

    def gem_per_channel() -> Tensor:
        return z.clamp(min=EPSILON).pow(p3).mean((2, 3), keepdim=True).pow(1 / p3)

    def truth(z: Tensor, rho: Tensor) -> Tensor:
        return reference.lp_pool(z.flatten(2), reference.order(rho))[..., None, None]

    with torch.no_grad():
        at_three = reference.lp_pool(z.double().flatten(2), 3.0)[..., None, None]
        summed = at_three * prod(size) ** (1 / 3)
        mean, largest = z.double().mean((2, 3), keepdim=True), z.amax((2, 3), keepdim=True)
    upstream = _upstream(mean, z)
    value, by_rho, by_p = _truth(truth, z, layer.rho, upstream)
    average, maximum = nn.AdaptiveAvgPool2d(1), nn.AdaptiveMaxPool2d(1)
    return [
        Contestant(OURS, lambda: layer(z), (z, layer.rho), upstream, (value, *by_rho)),
        Contestant("naive", naive, (z, p), upstream, (value, *by_p)),
        Contestant("GeM", gem, (z, one), upstream, (at_three,)),
        Contestant("GeM, per channel", gem_per_channel, (z, p), upstream, (value, *by_p)),
        Contestant("nn.LPPool2d", lambda: torch_lp(z), (z,), upstream, (summed,)),
        Contestant("nn.AvgPool2d", lambda: average(z), (z,), upstream, (mean,)),
        Contestant("nn.MaxPool2d", lambda: maximum(z), (z,), upstream, (largest,)),
        _copy(z),
    ]


def _orders(channels: int) -> list[float]:
    return torch.linspace(2.5, 3.5, channels).tolist()


def _learned(layer: LpPool2d | GlobalLpPool) -> tuple[Tensor, Tensor]:
    """The layer's orders as the formulas learn them, and the same shaped for an image."""
    p = layer.order.detach().requires_grad_()
    return p, p.reshape(-1, 1, 1)


def _upstream(output: Tensor, z: Tensor) -> Tensor:
    """A gradient from above, in the layout of memory in which the next layer would hand it down."""
    last = z.is_contiguous(memory_format=torch.channels_last) and not z.is_contiguous()
    g = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    return g.contiguous(memory_format=torch.channels_last) if last else g


def _copy(z: Tensor) -> Contestant:
    data, out = z.detach(), torch.empty_like(z, requires_grad=False)
    return Contestant("copy", lambda: out.copy_(data), expected=(data,))


def _truth(truth, z, rho, upstream):
    """The value, its gradients by z and rho, and its gradients by z and p: in double precision."""
    z, rho = (t.detach().double().requires_grad_() for t in (z, rho))
    u = truth(z, rho)
    by_z, by_rho = torch.autograd.grad(u, (z, rho), upstream.double())
    # p = 1 + softplus(rho), whose derivative is the sigmoid.
    return u.detach(), (by_z, by_rho), (by_z, by_rho / rho.detach().sigmoid())
