"""The multilayer perceptrons of the paper and of its baselines."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from lpunits.arguments import check_choice, check_sizes
from lpunits.dropout import Dropout, GaussianNoise
from lpunits.layers import LpLinear, MaxoutLinear
from lpunits.orders import Orders
from lpunits.units import ELEMENTWISE, check_layers, unit_layer

NORMALIZATIONS = {"none": None, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


class MLP(nn.Sequential):
    r"""Hidden layers of one kind of unit, dropout, and a linear output of class scores (logits).

    .. math:: y = U^\top \phi_L ( \cdots \phi_1 ( x ) ) + d

    where a hidden layer is ``"lp"`` (:class:`LpLinear`), ``"l2"`` (the same with p fixed to 2),
    ``"maxout"`` (:class:`MaxoutLinear`), ``"relu"``, ``"sigmoid"`` or ``"tanh"`` (linear, then the
    function).

    >>> net = MLP(784, [240, 240], 10, filters=5, dropout=0.5, input_dropout=0.2)
    >>> net(torch.randn(100, 784)).shape
    torch.Size([100, 10])

    Args:
        in_features: Size of the input's last dimension.
        hidden: Units of each hidden layer.
        classes: Outputs.
        activation: The kind of the hidden units.
        filters: Projections per unit, for all layers or for each; 2 by default. The elementwise
            units (relu, sigmoid, tanh) have one.
        order: The orders to start from, for ``"lp"``: for all layers, or a list of one for each.
        learn_order: Whether the orders of ``"lp"`` are learned.
        center: Whether ``"lp"`` and ``"l2"`` units have centres.
        bias: Whether ``"lp"`` and ``"l2"`` units have a bias after the root; by default with the
            start ``"spread"``, unless a normalisation follows, which takes the mean away too.
        normalization: ``"batch"`` or ``"layer"`` normalisation after the units, or ``"none"``.
            After them, because the values of a norm have a large common mean, which it takes away.
        dropout: Probability to drop a hidden unit; the weights then start smaller.
        input_dropout: Probability to drop an input.
        noise: Standard deviation of Gaussian noise that training adds to the outputs of each hidden
            layer, after its normalisation; with batch normalisation it can replace dropout.
        input_noise: The same for the inputs.
        start: Where centres and biases of ``"lp"``, ``"l2"`` and ``"maxout"`` units start:
            ``"spread"`` or, as in the paper, at ``"zero"`` (:mod:`lpunits.start`).
        device: Where the parameters live.
        dtype: The dtype of the parameters.
    """

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int],
        classes: int,
        *,
        activation: str = "lp",
        filters: int | Sequence[int] | None = None,
        order: Orders | list[Orders] = 3.0,
        learn_order: bool = True,
        center: bool = True,
        bias: bool | None = None,
        normalization: str = "none",
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        noise: float = 0.0,
        input_noise: float = 0.0,
        start: str = "spread",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_choice("normalization", normalization, NORMALIZATIONS)
        if isinstance(hidden, str) or not isinstance(hidden, Sequence):
            raise TypeError(f"hidden must be a sequence of layer sizes, got {hidden!r}")
        check_sizes(in_features=in_features, classes=classes)
        groups = check_layers("hidden", hidden, activation, filters)
        for name, rate in (("dropout", dropout), ("input_dropout", input_dropout)):
            if not 0 <= rate < 1:
                raise ValueError(f"{name} must be a probability from 0 to below 1, got {rate}")
        for name, std in (("noise", noise), ("input_noise", input_noise)):
            if not 0 <= std < math.inf:
                raise ValueError(f"{name} must be a finite number of at least 0, got {std}")
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        layers: list[nn.Module] = [GaussianNoise(input_noise)] if input_noise else []
        if input_dropout:
            layers.append(Dropout(input_dropout))
        options: dict[str, Any] = {
            "learn_order": learn_order,
            "center": center or activation not in ("lp", "l2"),
            "bias": start == "spread" and normalization == "none" if bias is None else bias,
            "start": start,
        }
        each = isinstance(order, list) and len(order) == len(hidden)
        orders = order if isinstance(order, list) and each else [order] * len(hidden)
        for units, size, options["order"] in zip(hidden, groups, orders, strict=True):
            layers.append(unit_layer(activation, in_features, units, size, **options, **place))
            if activation in ELEMENTWISE:
                layers.append(ELEMENTWISE[activation]())
            if (normalize := NORMALIZATIONS[normalization]) is not None:
                layers.append(normalize(units, **place))
            if noise:
                layers.append(GaussianNoise(noise))
            if dropout:
                layers.append(Dropout(dropout))
            in_features = units
        pooled = [layer for layer in layers if isinstance(layer, LpLinear | MaxoutLinear)]
        for layer in pooled if dropout else pooled[:1] if start == "spread" else []:
            layer.reset_parameters(small=True)
        output = nn.Linear(in_features, classes, **place)
        if activation not in ELEMENTWISE and start == "spread" and not dropout:
            with torch.no_grad():
                output.weight /= 3  # a network that starts small, see lpunits.start
        super().__init__(*layers, output)

    def __getitem__(self, index: slice | int) -> Any:
        """A layer, or a part of the net as an ordinary Sequential."""
        part = list(self)[index]
        return nn.Sequential(*part) if isinstance(part, list) else part
