r"""Stochastic gradient descent with momentum, in which no filter outgrows a given norm.

.. math::

    v \leftarrow \mu v + g + \lambda w, \qquad w \leftarrow w - \eta v, \qquad
    w_f \leftarrow w_f \min(1, c / \lVert w_f \rVert) \text{ for every filter } w_f .
"""

from collections.abc import Callable, Iterable
from typing import Any

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
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, w: Tensor, group: dict[str, Any]) -> None:
        velocity = w.grad
        assert velocity is not None
        if group["weight_decay"]:
            velocity = velocity.add(w, alpha=group["weight_decay"])
        if group["momentum"]:
            state = self.state[w]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = velocity.clone()
            else:
                state["momentum_buffer"].mul_(group["momentum"]).add_(velocity)
            velocity = state["momentum_buffer"]
        w.add_(velocity, alpha=-group["lr"])
        if group["max_norm"] is not None and w.ndim > 1:
            norm = torch.linalg.vector_norm(w, dim=-1, keepdim=True)
            w.mul_(group["max_norm"] / norm.clamp(min=group["max_norm"]))
