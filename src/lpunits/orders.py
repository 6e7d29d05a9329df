"""Learned orders: how they are kept, bounded, shared, started, frozen, watched.

An order p is learned through ``rho``, of which a smooth function keeps it in its range. The default
range, from 1 to inf, is the paper's: ``p = 1 + softplus(rho)``.
"""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

Orders = float | Sequence[float] | tuple[float, float] | Tensor


class _Range(NamedTuple):
    """Where orders may go, and the smooth bijection from all numbers rho to there."""

    low: float
    high: float
    bounded: tuple[bool, bool] = (True, False)  # below, above: no numbers, which graphs would watch

    @classmethod
    def checked(cls, pair: Any) -> "_Range":
        numbers = isinstance(pair, Sequence) and all(
            isinstance(x, Real) and not isinstance(x, bool) for x in pair
        )
        if not numbers or len(pair) != 2 or not pair[0] < pair[1]:
            raise ValueError(
                f"order_range must be a pair (low, high) with low below high, got {pair!r}"
            )
        low, high = float(pair[0]), float(pair[1])
        return cls(low, high, (low > -math.inf, high < math.inf))

    def order_of(self, rho: Tensor) -> Tensor:
        """p; torch's threshold of 20 would be a step of 2e-9 in float64."""
        below, above = self.bounded
        if not below:
            return self.high - softplus(-rho, threshold=40) if above else rho
        if not above:
            return self.low + softplus(rho, threshold=40)
        return self.low + (self.high - self.low) * torch.sigmoid(rho)

    def infinity(self, rho: Tensor) -> Tensor:
        """What a marked order is: the infinite end of the range, of two that of rho's sign."""
        below, above = self.bounded
        infinity = torch.full_like(rho, -math.inf if above else math.inf)
        return infinity if below or above else torch.copysign(infinity, rho.detach())

    def inside(self, sign: Tensor) -> Tensor:
        """A number of the range, to keep where an order is marked as infinite."""
        below, above = self.bounded
        if below:
            return torch.full_like(sign, self.low + 1)
        return torch.full_like(sign, self.high - 1) if above else 2 * sign

    def rho_of(self, p: Tensor, dtype: torch.dtype) -> Tensor:
        """The rho in ``dtype`` for which :meth:`order_of`, computed in ``dtype``, is p.

        The inverse can miss p by the last digit after rounding, so its neighbours are tried too;
        for a few p in a thousand the bijection skips that very value, and the last digit stays. At
        the ends of the range, where rho would be infinite, it is as large as makes a difference.
        """
        eps = torch.finfo(dtype).eps / 4
        below, above = self.bounded
        if not below and not above:
            return p.to(dtype)
        if below and above:
            rho = torch.logit((p - self.low) / (self.high - self.low), eps=eps).to(dtype)
        else:
            excess = (p - self.low if below else self.high - p).clamp(min=eps)
            rho = excess + torch.log(-torch.expm1(-excess))
            rho = torch.where(excess.isinf(), excess, rho).to(dtype) * (1 if below else -1)
        steps = torch.arange(-16, 17, dtype=torch.float64, device=p.device) * 2 * eps
        candidates = (rho.double() * (1 + steps[:, None])).to(dtype)
        miss = (self.order_of(candidates).double() - p).abs()
        best = candidates.gather(0, miss.nan_to_num(nan=math.inf).argmin(0, keepdim=True))[0]
        return torch.where(p.isinf(), rho, best)


class OrderOptions(TypedDict, total=False):
    """What every module with orders takes."""

    order: Any  #: where orders start: a number, one per unit (list, tensor), or a pair to draw from
    learn_order: bool  #: whether ``rho`` is a parameter (default); if not, it is a buffer
    shared: bool  #: whether one order serves all units
    order_range: tuple[float, float]  #: where orders may go; (1, inf) by default
    device: torch.device | str | None  #: where the parameters live
    dtype: torch.dtype | None  #: the dtype of the parameters


class Ordered(nn.Module):
    """A module with one order per unit: ``rho``, a parameter if learned and a buffer if not.

    Reading ``module.order`` gives the orders; ``module.order = values`` sets them.

    >>> from lpunits import LpPool
    >>> pool = LpPool(units=3, order=2.0, order_range=(0.5, 8.0))
    >>> pool.order = [1.0, 2.0, 4.0]
    >>> pool.order
    tensor([1., 2., 4.], grad_fn=<...>)

    Args:
        units: How many orders there are.
        order: Where they start: a number, one per unit (a list, a tensor, an array), or a pair
            ``(low, high)``, a tuple, to draw from.
        learn_order: Whether ``rho`` is a parameter; if not, it is a buffer.
        shared: Whether one order serves all units.
        order_range: Where orders may go, ``(low, high)``. From ``(1, inf)``, all norms, an order is
            ``1 + softplus(rho)``; between two numbers a sigmoid; ``(-inf, inf)`` is rho itself.
        device: Where the parameters live.
        dtype: The dtype of the parameters.
    """

    rho: Tensor
    infinite: Tensor | None
    shared = False
    _range, _drawn_from = _Range(1.0, math.inf), None  # of modules that were pickled without

    def __init__(
        self,
        units: int,
        order: Any = 3.0,
        learn_order: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        shared: bool = False,
        order_range: tuple[float, float] = (1.0, math.inf),
    ) -> None:
        super().__init__()
        self._range = _Range.checked(order_range)
        self._count, self.shared = units, shared
        kept = 1 if shared else units
        pair = isinstance(order, tuple) and len(order) == 2
        self._drawn_from = tuple(_checked_orders(order, 2, self._range)) if pair else None
        low, high = self._drawn_from or (0, 0)
        if not -math.inf < low <= high < math.inf:
            raise ValueError(
                f"order must be drawn from a pair (low, high) of finite numbers, got {order!r}"
            )
        self.initial_order = _checked_orders(order[0] if pair else order, kept, self._range)
        rho = torch.empty(kept, device=device, dtype=dtype)
        if not rho.is_floating_point():
            raise TypeError(f"dtype must be a floating-point dtype, got {rho.dtype}")
        if learn_order and not all(map(math.isinf, self.initial_order)):
            self.rho = nn.Parameter(rho)
        else:
            self.register_buffer("rho", rho)
        self.register_buffer("infinite", None)
        self._mark_infinite(torch.tensor(self.initial_order, dtype=torch.float64, device="cpu"))

    def reset_parameters(self) -> None:
        """Set every order back to where it started, or draw it anew."""
        if self._drawn_from:
            low, high = self._drawn_from
            drawn = torch.rand(len(self.initial_order), dtype=torch.float64, device="cpu")
            self.initial_order = tuple((low + (high - low) * drawn).tolist())
        self._set(torch.tensor(self.initial_order, dtype=torch.float64, device="cpu"))

    @property
    def order(self) -> Tensor:
        """The orders p, one per unit."""
        p = self._range.order_of(self.rho)
        if self.infinite is not None:
            p = torch.where(self.infinite, self._range.infinity(self.rho), p)
        return p.expand(self._count) if self.shared else p

    @order.setter
    def order(self, values: Any) -> None:
        p = _checked_orders(values, len(self.initial_order), self._range)
        self._set(torch.tensor(p, dtype=torch.float64, device="cpu"))

    def _set(self, p: Tensor) -> None:
        self._mark_infinite(p)
        if self.infinite is not None:
            p = torch.where(p.isfinite(), p, self._range.inside(p.sign()))
        with torch.no_grad():
            self.rho.copy_(self._range.rho_of(p, self.rho.dtype))

    def _mark_infinite(self, p: Tensor) -> None:
        # Beside learned orders an infinite one is a mark, not a rho = inf: weight decay, averaging
        # and a norm of the parameters would turn that into NaN.
        learned = isinstance(self.rho, nn.Parameter)
        marked = learned and bool(p.isinf().any())
        self.infinite = p.isinf().to(self.rho.device) if marked else None

    def __prepare_scriptable__(self) -> "Ordered":
        raise TypeError(
            f"torch.jit.script cannot compile {type(self).__name__}: use torch.export, "
            "torch.compile or torch.jit.trace"
        )

    def extra_repr(self) -> str:
        """The range of the orders, and whether they are learned."""
        orders = torch.tensor(self.initial_order) if self.rho.is_meta else self.order.detach()
        low, high = (f"{p:.4g}" for p in torch.aminmax(orders))
        learned = any("rho" in name for name, _ in self.named_parameters())
        options = ", shared=True" * self.shared
        if self._range[:2] != (1, math.inf):
            options += f", order_range=({self._range.low:g}, {self._range.high:g})"
        return f"order={low if low == high else f'{low}..{high}'}, learn_order={learned}{options}"


def orders(model: nn.Module) -> dict[str, Tensor]:
    """The orders of every layer that has some, by the layer's name: for logs.

    >>> from lpunits import MLP
    >>> {name: p.tolist() for name, p in orders(MLP(4, [2, 2], 3, order=[2.0, 5.0])).items()}
    {'0': [2.0, 2.0], '1': [5.0, 5.0]}
    """
    return {
        name or "order": module.order.detach().clone()
        for name, module in model.named_modules()
        if isinstance(module, Ordered)
    }


def freeze_orders(model: nn.Module, frozen: bool = True) -> None:
    """Keep all orders as they are, or let them learn again: ``requires_grad`` of every ``rho``.

    >>> from lpunits import LpLinear
    >>> layer = LpLinear(4, units=3, filters=2)
    >>> freeze_orders(layer)
    >>> layer.rho.requires_grad, layer.weight.requires_grad
    (False, True)
    >>> freeze_orders(layer, False)
    """
    for rho in _special_parameters(model)["rho"]:
        rho.requires_grad_(not frozen)


def _special_parameters(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """What is behind the ``rho`` and the ``center`` of every module that has orders."""
    special: dict[str, list[nn.Parameter]] = {"rho": [], "center": []}
    for module in model.modules():
        if isinstance(module, Ordered):
            for path, parameter in module.named_parameters():
                name = path.removeprefix("parametrizations.").split(".")[0]
                special.get(name, []).append(parameter)
    return special


def param_groups(
    model: nn.Module,
    lr: float,
    *,
    order_scale: float = 5.0,
    center_scale: float = 1.0,
    weight_decay: float = 0.0,
) -> list[dict[str, Any]]:
    """Parameter groups for an optimiser, in which orders and centres have their own rates.

    Orders at the weights' rate hardly move, and weight decay on ``rho`` pulls every order towards
    1 + log 2. So orders get ``order_scale`` times the rate, centres ``center_scale`` times, and
    neither is decayed; nor are biases and the gains of normalisation. Groups carry a ``"name"``:
    weights, orders, centers and, where there is a decay, biases.

    >>> from lpunits import LpLinear
    >>> layer = LpLinear(4, units=3, filters=2)
    >>> groups = param_groups(layer, lr=0.1, weight_decay=1e-4)
    >>> [(g["name"], g["lr"], g["weight_decay"]) for g in groups]
    [('weights', 0.1, 0.0001), ('orders', 0.5, 0.0), ('centers', 0.1, 0.0), ('biases', 0.1, 0.0)]
    >>> optimizer = torch.optim.SGD(groups, momentum=0.9)
    """
    for name, value in (
        ("lr", lr),
        ("order_scale", order_scale),
        ("center_scale", center_scale),
        ("weight_decay", weight_decay),
    ):
        if isinstance(value, bool) or not isinstance(value, Real) or not value >= 0:
            raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
    special = _special_parameters(model)
    taken = {id(parameter) for group in special.values() for parameter in group}
    rest = [(name, w) for name, w in model.named_parameters() if id(w) not in taken]
    plain = [w for name, w in rest if weight_decay and (w.ndim < 2 or name.endswith("bias"))]
    undecayed = {id(w) for w in plain}
    groups = (
        ("weights", [w for _, w in rest if id(w) not in undecayed], lr, weight_decay),
        ("orders", special["rho"], lr * order_scale, 0.0),
        ("centers", special["center"], lr * center_scale, 0.0),
        ("biases", plain, lr, 0.0),
    )
    return [
        {"name": name, "params": learned, "lr": rate, "weight_decay": decay}
        for name, parameters, rate, decay in groups
        if (learned := [p for p in dict.fromkeys(parameters) if p.requires_grad])
    ]


def _checked_orders(order: Any, count: int, allowed: _Range) -> tuple[float, ...]:
    """That many orders, each in its range."""
    given = order.tolist() if hasattr(order, "tolist") else order  # tensors and arrays
    values = list(given) if isinstance(given, Sequence) else [given] * count
    for p in values:
        if isinstance(p, bool) or not isinstance(p, Real):
            raise TypeError(f"order must be a number or one number per unit, got {order!r}")
        if not allowed.low <= float(p) <= allowed.high:
            raise ValueError(f"order must be from {allowed.low:g} to {allowed.high:g}, got {p}")
    if len(values) != count:
        raise ValueError(
            f"order must be a number or one number for each of {count} units, got {len(values)}"
        )
    return tuple(float(p) for p in values)
