r"""Stochastic gradient descent with momentum and a maximum norm of the filters.

.. math::

    v \leftarrow \mu v + g + \lambda w, \qquad w \leftarrow w - \eta v, \qquad
    w_f \leftarrow w_f \min(1, c / \lVert w_f \rVert) \text{ for every filter } w_f .
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lpunits.ops import compiled, ops


class SGD(Optimizer):
    """Gradient descent with momentum, then a projection: no filter exceeds ``max_norm``.

    A filter is a vector along the last dimension of a parameter that has at least two, and all
    weights of an output channel for a convolution of images or volumes. Without ``max_norm`` the
    steps are those of :class:`torch.optim.SGD`.

    >>> from lpunits import LpLinear
    >>> layer = LpLinear(8, units=3, filters=2)
    >>> optimizer = SGD(layer.parameters(), lr=0.1, momentum=0.5, max_norm=1.0)
    >>> layer(torch.randn(5, 8)).sum().backward()
    >>> optimizer.step()
    >>> bool((layer.weight.norm(dim=-1) <= 1 + 1e-6).all())
    True

    Args:
        params: Parameters or parameter groups, as in torch's optimisers.
        lr: The learning rate.
        momentum: The factor of the last step.
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
        """Add a parameter group; missing options take the defaults."""
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
            self._step(group)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients to None, without torch's overhead, or to 0."""
        if not set_to_none:
            super().zero_grad(set_to_none=False)
            return
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def _step(self, group: dict[str, Any]) -> None:
        lr, momentum, decay = group["lr"], group["momentum"], group["weight_decay"]
        bound = math.inf if group["max_norm"] is None else group["max_norm"]
        fused: list[tuple[Tensor, Tensor, Tensor, int, float]] = []
        for weight in group["params"]:
            if (grad := weight.grad) is None:
                continue
            state = self.state[weight]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(weight)
            velocity = state["momentum_buffer"]
            if velocity.shape != weight.shape:
                raise ValueError(
                    f"momentum_buffer must have the shape {tuple(weight.shape)} of its parameter, "
                    f"got {tuple(velocity.shape)}"
                )
            limit = bound if weight.ndim > 1 else math.inf
            if (tensors := _for_operator(weight, velocity, grad, limit)) is not None:
                fused.append((*tensors, _filter_size(weight), limit))
            else:
                _descend(weight, velocity, grad, lr, momentum, decay, limit)
        if fused:
            weights, velocities, grads, sizes, limits = map(list, zip(*fused, strict=True))
            ops.descend_(weights, velocities, grads, sizes, lr, momentum, decay, limits)


def _filter_size(weight: Tensor) -> int:
    """The size of a filter: all but the first dimension of a convolution, else the last."""
    last = weight.shape[1:] if weight.ndim in (4, 5) else weight.shape[-1:]
    return max(math.prod(last), 1)


def _for_operator(
    weight: Tensor, velocity: Tensor, grad: Tensor, bound: float
) -> tuple[Tensor, Tensor, Tensor] | None:
    """The tensors, contiguous for the compiled operator; None if it cannot take them."""
    tensors = weight, velocity, grad
    for t in tensors:
        ordinary = type(t) in (Tensor, nn.Parameter) and t.layout is torch.strided
        if not (compiled and ordinary and t.is_cpu and t.dtype is torch.float32):
            return None
    if bound == math.inf:  # then the order of the dimensions does not matter
        order = sorted(range(weight.ndim), key=weight.stride, reverse=True)
        tensors = weight.permute(order), velocity.permute(order), grad.permute(order)
    return tensors if all(t.is_contiguous() for t in tensors) else None


def _descend(
    w: Tensor, v: Tensor, grad: Tensor, lr: float, momentum: float, decay: float, bound: float
) -> None:
    """The same in plain torch, for every device and dtype."""
    v.mul_(momentum).add_(grad)
    if decay:
        v.add_(w, alpha=decay)
    w.sub_(v, alpha=lr)
    if bound < math.inf:
        filters = w.reshape(-1, _filter_size(w))
        norm = torch.linalg.vector_norm(filters, dim=-1, keepdim=True)
        scale = bound / norm.clamp(min=bound)
        w.mul_(scale.expand_as(filters).reshape(w.shape))
