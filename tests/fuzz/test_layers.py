"""The layers against the reference, on windows, images and projections."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from accuracy import threads
from fuzz.calls import LAYOUTS, NORMS, ORDERS, fuzz, laid_out, shapes, values
from fuzz.truth import assert_gradient, assert_value, truth
from lpunits import GlobalLpPool, LpLinear, LpPool, LpPool1d, LpPool2d, LpPool3d

LIMIT = 1e-5
Arrange = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
seeds = st.integers(0, 2**32)
kinds = st.sampled_from(["normal", "image", "ties", "zeros", 1e-6])


FREE = {"order_range": (-math.inf, math.inf)}


def some_orders(units: int, seed: int, among: Sequence[float] = ORDERS) -> list[float]:
    choice = torch.randint(len(among), (units,), generator=torch.Generator().manual_seed(seed))
    return [float(among[i]) for i in choice]


def check(layer: torch.nn.Module, z: Tensor, seed: int, arrange: Arrange, dim: int = -1) -> None:
    """A layer of free orders against the truth on what ``arrange`` makes of z, over ``dim``."""
    u = layer(z)
    grad = torch.randn(u.shape, generator=torch.Generator().manual_seed(seed))
    u.backward(grad)
    z64 = z.detach().double().requires_grad_()
    groups, order = arrange(z64, layer.order)
    true, slope, dp, _ = truth(groups, order, None, dim, grad)
    assert_value(u, true, torch.float32)
    dz, size = (
        torch.autograd.grad(groups, z64, g, retain_graph=True)[0] for g in (slope, slope.abs())
    )
    assert z.grad.shape == z.shape
    assert (z.grad - dz).abs().max() <= LIMIT * size.max()
    if isinstance(layer.rho, torch.nn.Parameter):  # not where all orders are inf
        assert_gradient("rho", layer.rho.grad.view(order.shape), order, dp, LIMIT)


def as_it_is(z: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    return z, p


def flat_images(z: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    return z.flatten(2), p


@fuzz(100)
@given(shapes(ranks=(3, 5)), kinds, st.sampled_from(LAYOUTS), seeds, st.sampled_from([1, 2]))
def test_lp_pool_and_global_pooling(drawn, kind, layout, seed, count):
    shape, dim = drawn
    shape = [max(n, 1) for n in shape]
    z = laid_out(values(kind, shape, dim, 1.0, torch.float32, seed).float(), layout, seed)
    units = shape[-2 if dim in (-1, len(shape) - 1) else -1]
    pool = LpPool(units, order=some_orders(units, seed), dim=dim, **FREE)
    global_pool = GlobalLpPool(shape[1], order=some_orders(shape[1], seed), **FREE)
    with threads(count):
        check(pool, z.clone().requires_grad_(), seed, as_it_is, dim)
        check(global_pool, z.requires_grad_(), seed, flat_images)


def test_lp_pool_over_the_second_of_four_dimensions():
    check(LpPool(5, dim=1, **FREE), torch.randn(3, 4, 6, 5, requires_grad=True), 0, as_it_is, 1)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_global_pooling_of_nearly_tied_images(layout):
    z = laid_out(0.5 + 0.05 * torch.rand(4, 8, 7, 7), layout, 0)
    check(GlobalLpPool(8, **FREE), z.requires_grad_(), 0, flat_images)


@st.composite
def windows(draw) -> tuple[list[int], list[int], list[int], list[int]]:
    """Sizes of an input of 1 to 3 dimensions, and kernel, stride and padding of each."""
    kernel = draw(st.lists(st.sampled_from([1, 2, 3, 4, 5, 7, 9]), min_size=1, max_size=3))
    stride = [draw(st.integers(1, 6)) for _ in kernel]
    padding = [draw(st.integers(0, k // 2)) for k in kernel]
    most = {1: 40, 2: 14, 3: 5}[len(kernel)]
    extra = [draw(st.integers(0, most)) for _ in kernel]
    space = [max(k - 2 * w, 1) + x for k, w, x in zip(kernel, padding, extra, strict=True)]
    return space, kernel, stride, padding


@fuzz(200)
@given(windows(), st.sampled_from([1, 2, 3, 17]), kinds, st.sampled_from(LAYOUTS), seeds)
def test_windows(sizes, channels, kind, layout, seed):
    space, kernel, stride, padding = sizes
    batch = seed % 3  # 0: no batch dimension
    shape = [*([batch] if batch else []), channels, *space]
    z = values(kind, shape, -1, 1.0, torch.float32, seed).float()
    z = laid_out(z, layout, seed).requires_grad_()
    layer = (LpPool1d, LpPool2d, LpPool3d)[len(space) - 1](
        channels, kernel, stride, padding, order=some_orders(channels, seed), **FREE
    )

    def cut(z: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        windows = torch.nn.functional.pad(z, [w for w in reversed(padding) for _ in range(2)])
        for d, (k, step) in enumerate(zip(kernel, stride, strict=True), z.ndim - len(space)):
            windows = windows.unfold(d, k, step)
        return windows.flatten(z.ndim), p.view(-1, *[1] * len(space))

    with threads(1 + seed % 2):
        check(layer, z, seed, cut)


@fuzz(100)
@given(
    st.lists(st.sampled_from([0, 1, 3, 16]), max_size=2),
    *(st.sampled_from([1, 2, 5, 17, 40]) for _ in range(3)),
    *(st.booleans(), st.sampled_from([1, 2]), seeds),
)
def test_lp_linear(batch, inputs, units, filters, center, count, seed):
    """On eighths, of which a product of matrices has no rounding error."""
    generator = torch.Generator().manual_seed(seed)

    def eighths(*shape: int) -> Tensor:
        return torch.randint(-30, 31, shape, generator=generator) / 8

    layer = LpLinear(
        inputs, units, filters, order=some_orders(units, seed, NORMS), center=center, bias=False
    )
    with torch.no_grad():
        layer.weight.copy_(eighths(filters, units, inputs))
        if center:
            layer.center.copy_(eighths(filters, units))
    x = eighths(*batch, inputs).requires_grad_()
    with threads(count):
        u = layer(x)
        grad = torch.randn(u.shape, generator=generator)
        u.backward(grad)
    weight, flat = layer.weight.detach().double(), x.detach().double().view(-1, inputs)
    z = torch.einsum("bi,fui->bfu", flat, weight)
    true, dz, dp, _ = truth(z, layer.order, layer.center, 1, grad.view(-1, units))
    assert_value(u, true.view(u.shape), torch.float32)
    if isinstance(layer.rho, torch.nn.Parameter):
        drho = dp * torch.sigmoid(layer.rho.detach().double())
        assert_gradient("rho", layer.rho.grad, layer.rho, drho, LIMIT)
    if center:
        assert_gradient("center", layer.center.grad, layer.center, -dz, LIMIT)
    for name, result, product, other in (
        ("weight", layer.weight.grad, "bfu,bi->fui", flat),
        ("x", x.grad.view(-1, inputs), "bfu,fui->bi", weight),
    ):
        error = (result - torch.einsum(product, dz, other)).abs()
        limit = LIMIT * torch.einsum(product, dz.abs(), other.abs())
        assert (error.numel() == 0) or (error.max() <= limit.max()), name
