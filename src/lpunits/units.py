"""The kinds of units by name: as layers for networks, and as functions for the recurrence."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lpunits.arguments import check_choice, check_sizes
from lpunits.functional import lp_pool
from lpunits.layers import LpLinear, MaxoutLinear
from lpunits.ops import ops
from lpunits.orders import Orders
from lpunits.start import statistics

ELEMENTWISE = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}
ACTIVATIONS = ("lp", "l2", "maxout", *ELEMENTWISE)


def check_layers(
    name: str, sizes: Sequence[int], activation: str, filters: int | Sequence[int] | None
) -> list[int]:
    """Check the sizes of some layers and the kind of their units; returns the filters of each."""
    check_choice("activation", activation, ACTIVATIONS)
    if filters is None:
        filters = 1 if activation in ELEMENTWISE else 2
    groups = [filters] * len(sizes) if isinstance(filters, int) else list(filters)
    if len(groups) != len(sizes):
        raise ValueError(
            f"filters must be a number or one for each of {len(sizes)} layers, got {filters!r}"
        )
    for size, group in zip(sizes, groups, strict=True):
        check_sizes(**{name: size}, filters=group)
    if activation in ELEMENTWISE and set(groups) - {1}:
        raise ValueError(f"filters must be 1 for {activation} units, got {filters!r}")
    return groups


def unit_layer(
    activation: str,
    in_features: int,
    units: int,
    filters: int,
    *,
    order: Orders,
    learn_order: bool,
    center: bool,
    bias: bool,
    **options: Any,
) -> nn.Linear | LpLinear | MaxoutLinear:
    """A layer of units; of elementwise ones, the linear part.

    Args:
        activation: The kind.
        in_features: Size of the input's last dimension.
        units: How many.
        filters: Projections per unit.
        order: The orders to start from, for ``"lp"``.
        learn_order: Whether the orders of ``"lp"`` are learned.
        center: Whether there is something to learn before the units pool: centres, or the biases of
            other kinds.
        bias: Whether ``"lp"`` and ``"l2"`` units have a bias after the root.
        options: ``start``, ``device`` and ``dtype``.
    """
    if activation in ELEMENTWISE:
        del options["start"]
        return nn.Linear(in_features, units, bias=center, **options)
    if activation == "maxout":
        return MaxoutLinear(in_features, units, filters, bias=center, **options)
    if activation == "l2":
        order, learn_order = 2.0, False
    options |= {"order": order, "learn_order": learn_order, "center": center, "bias": bias}
    return LpLinear(in_features, units, filters, **options)


def slopes(layer: nn.Module, activation: str) -> Tensor:
    """How far units move with a small change of standard normal projections: root mean squares.

    There is one for each unit, or one for all.
    """
    if isinstance(layer, LpLinear | MaxoutLinear):
        return layer.initial_statistics().slope
    return statistics(lambda z: pool(activation, z.squeeze(-2), None), 1, 0.0).slope


def pool(kind: str, z: Tensor, order: Tensor | None, out: Tensor | None = None) -> Tensor:
    """The values of units: of groups ``(rows, filters, units)``, or elementwise."""
    u: Tensor
    if kind == "lp":
        assert order is not None
        u = lp_pool(z, order, dim=1) if out is None else ops.lp_pool.out(z, order, None, 1, out=out)
    elif kind == "maxout":
        u = torch.amax(z, 1, out=out)
    elif kind == "relu":
        u = torch.threshold(z, 0, 0, out=out)
    else:
        u = getattr(torch, kind)(z, out=out)
    return u


def pool_backward(
    kind: str, grad: Tensor, z: Tensor, order: Tensor | None, dz: Tensor, dp: Tensor | None
) -> None:
    """Writes the gradient in z into ``dz``, and adds the one in the order to ``dp``."""
    if kind == "lp":
        by_order = ops.lp_pool_backward_into_.default(grad, z, order, 1, dp is not None, dz)
        if dp is not None:
            dp += by_order
    elif kind == "maxout":
        largest = z == z.amax(1, keepdim=True)
        torch.mul(largest, (grad / largest.sum(1)).unsqueeze(1), out=dz)
    elif kind == "relu":
        torch.mul(grad, z > 0, out=dz)
    else:
        slope = getattr(torch.ops.aten, f"{kind}_backward").grad_input
        slope(grad, pool(kind, z, None), grad_input=dz)
