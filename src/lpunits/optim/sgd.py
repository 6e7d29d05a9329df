r"""Stochastic gradient descent with momentum, in which no filter outgrows a given norm.

.. math::

    v \leftarrow \mu v + g + \lambda w, \qquad w \leftarrow w - \eta v, \qquad
    w_f \leftarrow w_f \min(1, c / \lVert w_f \rVert) \text{ for every filter } w_f .
"""

import importlib
import math
from collections.abc import Callable, Iterable
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer


class SGD(Optimizer):
    """Momentum descent, then a projection: every filter keeps a norm of at most ``max_norm``.

    A filter is a vector along the last dimension of a parameter that has at least two. Without
    ``max_norm`` the steps are those of :class:`torch.optim.SGD`.

    >>> from lpunits import LpLinear
    >>> layer = LpLinear(8, units=3, filters=2)
    >>> optimizer = SGD(layer.parameters(), lr=0.1, momentum=0.5, max_norm=1.0)
    >>> layer(torch.randn(5, 8)).sum().backward()
    >>> optimizer.step()
    >>> bool((layer.weight.norm(dim=-1) <= 1 + 1e-6).all())
    True

    Args:
        params: Parameters, or groups of them with options of their own, as torch's optimisers take.
        lr: The learning rate.
        momentum: How much of the last step is kept.
        weight_decay: The factor of an L2 penalty.
        max_norm: The largest norm of a filter, or None.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        max_norm: float | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "max_norm": max_norm,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters; what the group leaves out it takes from the defaults."""
        for name in ("lr", "momentum", "weight_decay"):
            value = param_group.get(name, self.defaults[name])
            if isinstance(value, bool) or not isinstance(value, float | int) or not value >= 0:
                raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
        bound = param_group.get("max_norm", self.defaults["max_norm"])
        if bound is not None and (
            isinstance(bound, bool) or not isinstance(bound, float | int) or not bound > 0
        ):
            raise ValueError(f"max_norm must be a number above 0 or None, got {bound!r}")
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step for all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        updates = [update for group in self.param_groups for update in self._updates(group)]
        kernel = _fused()
        if kernel is None or not kernel.descend(updates):
            for update in updates:
                _descend(update)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or set them to 0; the first without torch's bookkeeping."""
        if not set_to_none:
            super().zero_grad(set_to_none=False)
            return
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def _updates(self, group: dict[str, Any]) -> "list[Update]":
        lr, momentum, decay = group["lr"], group["momentum"], group["weight_decay"]
        bound = math.inf if group["max_norm"] is None else group["max_norm"]
        updates = []
        for weight in group["params"]:
            if (grad := weight.grad) is None:
                continue
            state = self.state[weight]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(weight)
            velocity = state["momentum_buffer"]
            if weight.ndim > 1:
                size, limit = weight.shape[-1], bound
            else:
                size, limit = max(weight.numel(), 1), math.inf
            updates.append(Update(weight, velocity, grad, size, lr, momentum, decay, limit))
        return updates


class Update(NamedTuple):
    """What happens to a parameter; ``filter_size`` is the length of what ``max_norm`` bounds."""

    weight: Tensor
    velocity: Tensor
    grad: Tensor
    filter_size: int
    lr: float
    momentum: float
    weight_decay: float
    max_norm: float  # or inf


@cache
def _fused() -> ModuleType | None:
    """The compiled step, imported when it is first needed."""
    try:
        return importlib.import_module("lpunits.kernels.descent")
    except (ImportError, OSError):
        return None


def _descend(update: Update) -> None:
    """The same in plain torch, for every device and dtype."""
    w, v = update.weight, update.velocity
    v.mul_(update.momentum).add_(update.grad)
    if update.weight_decay:
        v.add_(w, alpha=update.weight_decay)
    w.sub_(v, alpha=update.lr)
    if update.max_norm < math.inf:
        norm = torch.linalg.vector_norm(w, dim=-1, keepdim=True)
        w.mul_(update.max_norm / norm.clamp(min=update.max_norm))
