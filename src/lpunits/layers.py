"""The layers of units: linear projections, pooled by :func:`~lpunits.lp_pool` or maxout."""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from lpunits.arguments import check_choice, check_floating, check_sizes
from lpunits.functional import lp_pool, maxout
from lpunits.orders import Ordered, Orders
from lpunits.start import STARTS, Statistics, draw_, spread, spread_, statistics


class LpLinear(Ordered):
    r"""A layer of Lp units: each pools its own linear projections by a norm of its own order.

    .. math::

        u_j = \Bigl( \frac{1}{N} \sum_{i=1}^{N} |w_{ij}^\top x - c_{ij}|^{p_j} \Bigr)^{1/p_j}
        \; (+\, b_j), \qquad p_j = 1 + \log(1 + e^{\rho_j})

    The bias starts at minus the mean of the norm, weights and centres at a scale that keeps the
    variance of a signal through any number of layers (:mod:`lpunits.start`). Of a sparse input,
    ``x.to_sparse()``, only those entries are multiplied that are not 0.

    >>> layer = LpLinear(784, units=240, filters=5, order=3.0)
    >>> layer(torch.randn(32, 784)).shape
    torch.Size([32, 240])
    >>> LpLinear(2, units=2, filters=2, order=[2, float("inf")], learn_order=False)
    LpLinear(in_features=2, units=2, filters=2, order=2..inf, learn_order=False)

    Args:
        in_features: Size of the input's last dimension.
        units: Size of the output's last dimension.
        filters: Projections per unit, the paper's N.
        order: The orders to start from: a number, one per unit, or a pair ``(low, high)`` to draw
            from. An infinite order stays. An order of exactly 1 lies at the flat end of the
            softplus and hardly moves: start from 1.1 if it should.
        learn_order: Whether ``rho`` is a parameter; if not, it is a buffer.
        shared: Whether one order serves all units.
        order_range: Where orders may go, ``(low, high)``; see :class:`lpunits.orders.Ordered`.
        center: Whether the projections have learned centres ``c``.
        bias: Whether a learned bias is added to each unit after the root; by default with the start
            ``"spread"``. A norm is positive, and a common mean slows the next layer down. That
            layer could absorb a constant, so a network with it can compute nothing more.
        start: ``"spread"``: centres start from a normal distribution, a bias at minus the mean
            output; ``"zero"``: both start at 0, as in the paper.
        device: Where the parameters live.
        dtype: The dtype of the parameters.

    Attributes:
        weight: ``(filters, units, in_features)``.
        center: ``(filters, units)``, or None.
        bias: ``(units,)``, or None.
        rho: ``(units,)``.
        order: The orders p, ``(units,)``.
    """

    def __init__(
        self,
        in_features: int,
        units: int,
        filters: int,
        *,
        order: Orders = 3.0,
        learn_order: bool = True,
        shared: bool = False,
        order_range: tuple[float, float] = (1.0, math.inf),
        center: bool = True,
        bias: bool | None = None,
        start: str = "spread",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(in_features=in_features, units=units, filters=filters)
        check_choice("start", start, STARTS)
        super().__init__(
            units, order, learn_order, device, dtype, shared=shared, order_range=order_range
        )
        self.in_features, self.units, self.filters = in_features, units, filters
        self.start = start
        self.weight = _parameter((filters, units, in_features), device, dtype)
        self.center = _parameter((filters, units), device, dtype) if center else None
        bias = start == "spread" if bias is None else bias
        self.bias = _parameter((units,), device, dtype) if bias else None
        self.reset_parameters()

    def reset_parameters(self, *, small: bool = False) -> None:
        """Draw new weights and centres, and set the orders to where they started.

        Args:
            small: Whether to start smaller, as the first layer of a network should, and layers in
                front of dropout: the norms then have the mean square of the inputs.
        """
        super().reset_parameters()
        initial = self.initial_statistics()
        scale = _scale(initial, self.start, small)
        draw_(self.weight, scale, zero_sum=not small)
        with torch.no_grad():
            if self.center is not None:
                spread_(self.center, self._spread).div_(scale.to(self.center))
            if self.bias is not None:
                self.bias.copy_(-initial.mean / scale if self.start == "spread" else 0 * scale)

    @property
    def out_features(self) -> int:
        """``units``, by the name that it has in :class:`torch.nn.Linear`."""
        return self.units

    @property
    def _spread(self) -> float:
        return spread(self.in_features) if self.center is not None and self.start == "spread" else 0

    def initial_statistics(self) -> Statistics:
        """Of the norms, with standard normal projections."""
        orders, unit = torch.tensor(self.initial_order, device="cpu").unique(return_inverse=True)
        # One by one: the slope of a unit among many would cost the backward pass of all of them.
        of_orders = (
            statistics(partial(lp_pool, p=p, dim=-2), self.filters, self._spread)
            for p in orders.split(1)
        )
        return Statistics(*(torch.cat(values)[unit] for values in zip(*of_orders, strict=True)))

    def forward(self, x: Tensor) -> Tensor:
        """``(..., in_features)`` to ``(..., units)``."""
        z = _project(x, self.weight, None)
        u = lp_pool(z, self.order, center=self.center, dim=-2)
        return u if self.bias is None else u + self.bias.to(u.dtype)  # autocast lowers u

    def extra_repr(self) -> str:
        """Sizes and orders."""
        sizes = f"in_features={self.in_features}, units={self.units}, filters={self.filters}"
        options = ", center=False" * (self.center is None) + ", bias=False" * (self.bias is None)
        return f"{sizes}, {super().extra_repr()}{options}"


class MaxoutLinear(nn.Module):
    r"""A layer of maxout units: :math:`u_j = \max_i \, (w_{ij}^\top x + b_{ij})`.

    >>> MaxoutLinear(784, units=240, filters=5)(torch.randn(32, 784)).shape
    torch.Size([32, 240])

    Args:
        in_features: Size of the input's last dimension.
        units: Size of the output's last dimension.
        filters: Projections per unit, often called pieces.
        bias: Whether each projection has a learned bias, ``(filters, units)``.
        start: ``"spread"``: biases start from a normal distribution; ``"zero"``: at 0.
        device: Where the parameters live.
        dtype: The dtype of the parameters.
    """

    def __init__(
        self,
        in_features: int,
        units: int,
        filters: int,
        *,
        bias: bool = True,
        start: str = "spread",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(in_features=in_features, units=units, filters=filters)
        check_choice("start", start, STARTS)
        super().__init__()
        self.in_features, self.units, self.filters = in_features, units, filters
        self.start = start
        self.weight = _parameter((filters, units, in_features), device, dtype)
        self.bias = _parameter((filters, units), device, dtype) if bias else None
        self.reset_parameters()

    def reset_parameters(self, *, small: bool = False) -> None:
        """Draw new weights and biases; see :meth:`LpLinear.reset_parameters`."""
        initial = self.initial_statistics()
        scale = _scale(initial, self.start, small)
        draw_(self.weight, scale, zero_sum=not small)
        if self.bias is not None:
            with torch.no_grad():
                spread_(self.bias, self._spread)
                if self.start == "spread":  # a shift of all filters is one of the unit
                    self.bias.sub_(initial.mean.to(self.bias))
                self.bias.div_(scale.to(self.bias))

    @property
    def _spread(self) -> float:
        return spread(self.in_features) if self.bias is not None and self.start == "spread" else 0

    def initial_statistics(self) -> Statistics:
        """Of a unit, with standard normal projections."""
        return statistics(lambda z: maxout(z, dim=-2), self.filters, self._spread)

    def forward(self, x: Tensor) -> Tensor:
        """``(..., in_features)`` to ``(..., units)``."""
        return maxout(_project(x, self.weight, self.bias), dim=-2)

    def extra_repr(self) -> str:
        """Sizes."""
        sizes = f"in_features={self.in_features}, units={self.units}, filters={self.filters}"
        return sizes + ", bias=False" * (self.bias is None)


def _scale(initial: Statistics, start: str, small: bool) -> Tensor:
    """What weights and centres are divided by, for each unit."""
    if small:
        return initial.root_mean_square
    if start == "zero":
        return initial.deviation
    # The deviation lets small signals grow, the slope lets large ones shrink, layer by layer.
    return (initial.deviation * initial.slope).sqrt()


def _project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """All projections in one matrix product, filter-major: ``(..., filters, units)``."""
    filters, units, in_features = weight.shape
    check_floating("input", x)
    if x.ndim == 0 or x.shape[-1] != in_features:
        raise ValueError(
            f"input must have in_features={in_features} as its last dimension, "
            f"got the shape {tuple(x.shape)}"
        )
    z = linear(x, weight.flatten(0, 1), None if bias is None else bias.flatten())
    return z.reshape(*x.shape[:-1], filters, units)


def _parameter(
    shape: tuple[int, ...], device: torch.device | str | None, dtype: torch.dtype | None
) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
