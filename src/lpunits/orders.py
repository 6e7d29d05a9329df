"""One learned order per unit: how it is kept, where it starts, and the rate at which it learns.

An order p is learned through ``rho``, ``p = 1 + softplus(rho)``, which keeps it above 1.
"""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

Orders = float | Sequence[float]


class Ordered(nn.Module):
    """A module with one order per unit: ``rho``, a parameter if learned and a buffer if not."""

    rho: Tensor
    infinite: Tensor | None

    def __init__(
        self,
        units: int,
        order: Orders,
        learn_order: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.initial_order = _checked_orders(order, units)
        rho = torch.empty(units, device=device, dtype=dtype)
        if not rho.is_floating_point():
            raise TypeError(f"dtype must be a floating-point dtype, got {rho.dtype}")
        infinite = [math.isinf(p) for p in self.initial_order]
        learned = learn_order and not all(infinite)
        if learned:
            self.rho = nn.Parameter(rho)
        else:
            self.register_buffer("rho", rho)
        # Beside learned orders an infinite one is a mark, not a rho = inf: weight decay, averaging
        # and a norm of the parameters would turn that into NaN.
        mark = torch.tensor(infinite, device=device) if learned and any(infinite) else None
        self.register_buffer("infinite", mark)

    def reset_parameters(self) -> None:
        """Set every order back to where it started."""
        p = torch.tensor(self.initial_order, dtype=torch.float64, device="cpu")
        if self.infinite is not None:
            p = p.where(p.isfinite(), 2)
        with torch.no_grad():
            self.rho.copy_(_rho_of(p, self.rho.dtype))

    @property
    def order(self) -> Tensor:
        """The orders p, one per unit."""
        p = _order_of(self.rho)
        return p if self.infinite is None else p.masked_fill(self.infinite, math.inf)

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
        return f"order={low if low == high else f'{low}..{high}'}, learn_order={learned}"


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
    neither is decayed. Groups carry a ``"name"``: weights, orders, centers.

    >>> from lpunits import LpLinear
    >>> layer = LpLinear(4, units=3, filters=2)
    >>> groups = param_groups(layer, lr=0.1, weight_decay=1e-4)
    >>> [(g["name"], g["lr"], g["weight_decay"]) for g in groups]
    [('weights', 0.1, 0.0001), ('orders', 0.5, 0.0), ('centers', 0.1, 0.0)]
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
    special: dict[str, list[nn.Parameter]] = {"rho": [], "center": []}
    for module in model.modules():
        if isinstance(module, Ordered):
            for path, parameter in module.named_parameters():
                name = path.removeprefix("parametrizations.").split(".")[0]
                special.get(name, []).append(parameter)
    taken = {id(parameter) for group in special.values() for parameter in group}
    weights = [parameter for parameter in model.parameters() if id(parameter) not in taken]
    groups = (
        ("weights", weights, lr, weight_decay),
        ("orders", special["rho"], lr * order_scale, 0.0),
        ("centers", special["center"], lr * center_scale, 0.0),
    )
    return [
        {"name": name, "params": learned, "lr": rate, "weight_decay": decay}
        for name, parameters, rate, decay in groups
        if (learned := [p for p in dict.fromkeys(parameters) if p.requires_grad])
    ]


def _order_of(rho: Tensor) -> Tensor:
    """``1 + softplus(rho)``; torch's threshold of 20 would be a step of 2e-9 in float64."""
    return 1 + softplus(rho, threshold=40)


def _rho_of(p: Tensor, dtype: torch.dtype) -> Tensor:
    """The rho in ``dtype`` for which ``1 + softplus(rho)``, computed in ``dtype``, is p.

    The inverse, ``log(exp(p - 1) - 1)``, can miss p by the last digit after rounding, so its
    neighbours are tried too; for a few p in a thousand the softplus skips that very value, and the
    last digit stays. At p = 1, where rho is -inf, it is as far down as it matters.
    """
    excess = (p - 1).clamp(min=torch.finfo(dtype).eps / 4)
    rho = torch.where(excess.isinf(), excess, excess + torch.log(-torch.expm1(-excess))).to(dtype)
    steps = torch.arange(-16, 17, dtype=torch.float64, device=p.device) * torch.finfo(dtype).eps / 2
    candidates = (rho.double() * (1 + steps[:, None])).to(dtype)
    miss = (_order_of(candidates).double() - p).abs()
    best = candidates.gather(0, miss.nan_to_num(nan=math.inf).argmin(0, keepdim=True))[0]
    return torch.where(p.isinf(), rho, best)


def _checked_orders(order: Orders, units: int) -> tuple[float, ...]:
    """One order per unit."""
    given = order.tolist() if isinstance(order, Tensor) else order
    orders = list(given) if isinstance(given, Sequence) else [given] * units
    for p in orders:
        if isinstance(p, bool) or not isinstance(p, Real):
            raise TypeError(f"order must be a number or one number per unit, got {order!r}")
        if not p >= 1:
            raise ValueError(f"order must be from 1 to inf, got {p}")
    if len(orders) != units:
        raise ValueError(
            f"order must be a number or one number for each of {units} units, got {len(orders)}"
        )
    return tuple(float(p) for p in orders)
