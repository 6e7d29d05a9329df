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
from torch.optim.sgd import sgd

from lpunits.ops import compiled, ops


class SGD(Optimizer):
    """Gradient descent with momentum, then a projection: no filter exceeds ``max_norm``.

    A filter is a vector along the last dimension of a parameter that has at least two, and all
    weights of an output channel for a convolution of images or volumes. Without ``max_norm`` the
    steps are those of :class:`torch.optim.SGD`, whose states can be loaded. What the compiled step
    cannot take, sparse gradients or the sharded parameters of FSDP2 for example, gets torch's own.

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
            **_ONLY_TORCHS,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a state, which may come from :class:`torch.optim.SGD`."""
        super().__setstate__(state)
        for group in self.param_groups:
            for name in ("max_norm", *_ONLY_TORCHS):
                group.setdefault(name, self.defaults.get(name))

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
        options = {name: group[name] for name in _ONLY_TORCHS}
        fused: list[tuple[Tensor, Tensor, Tensor, int, float]] = []
        others: list[tuple[Tensor, Tensor, Tensor | None]] = []
        for weight in group["params"]:
            if (grad := weight.grad) is None:
                continue
            velocity = self.state[weight].get("momentum_buffer") if momentum else None
            if velocity is not None and velocity.shape != weight.shape:
                raise RuntimeError(
                    f"momentum_buffer must have the shape {tuple(weight.shape)} of its parameter, "
                    f"got {tuple(velocity.shape)}"
                )
            limit = bound if weight.ndim > 1 else math.inf
            tensors = None
            if options == _ONLY_TORCHS and _ordinary(weight, grad, velocity):
                start = torch.zeros_like(weight) if velocity is None else velocity
                tensors = _in_memory_order(weight, start, grad, limit)
                if tensors is not None and velocity is None and momentum:
                    self.state[weight]["momentum_buffer"] = start
            if tensors is None:
                others.append((weight, grad, velocity))
            else:
                fused.append((*tensors, _filter_size(weight), limit))
        if fused:
            weights, velocities, grads, sizes, limits = map(list, zip(*fused, strict=True))
            ops.descend_(weights, velocities, grads, sizes, lr, momentum, decay, limits)
            torch.autograd.graph.increment_version(weights)
        if others:
            changed, gradients, buffers = map(list, zip(*others, strict=True))
            sgd(
                changed,
                gradients,
                buffers,
                has_sparse_grad=any(grad.is_sparse for grad in gradients),
                lr=lr,
                momentum=momentum,
                weight_decay=decay,
                **options,
            )
            for weight, buffer in zip(changed, buffers, strict=True):
                if momentum:
                    self.state[weight]["momentum_buffer"] = buffer
                if bound < math.inf and weight.ndim > 1:
                    _project(weight, bound)


# Options of torch's that a loaded state may have, and the values that the compiled step stands for.
_ONLY_TORCHS = {"dampening": 0, "nesterov": False, "maximize": False}


def _filter_dims(weight: Tensor) -> tuple[int, ...]:
    """The dimensions of a filter: all but the first of a convolution, else the last."""
    return tuple(range(1, weight.ndim)) if weight.ndim in (4, 5) else (-1,)


def _filter_size(weight: Tensor) -> int:
    return max(math.prod(weight.shape[d] for d in _filter_dims(weight)), 1) if weight.ndim else 1


def _ordinary(*tensors: Tensor | None) -> bool:
    """Whether the compiled operator can take all of them, but for the order of their dimensions."""
    return (
        compiled
        and not torch._C._len_torch_dispatch_stack()  # as under a FakeTensorMode
        and len({t.shape for t in tensors if t is not None}) == 1
        and all(
            type(t) in (Tensor, nn.Parameter)
            and t.layout is torch.strided
            and t.is_cpu
            and t.dtype is torch.float32
            and not t._is_zerotensor()
            for t in tensors
            if t is not None
        )
    )


def _in_memory_order(
    weight: Tensor, velocity: Tensor, grad: Tensor, bound: float
) -> tuple[Tensor, Tensor, Tensor] | None:
    """The tensors, contiguous for the compiled operator; None if they cannot be."""
    tensors = weight, velocity, grad
    if bound == math.inf:  # then the order of the dimensions does not matter
        order = sorted(range(weight.ndim), key=weight.stride, reverse=True)
        tensors = weight.permute(order), velocity.permute(order), grad.permute(order)
    return tensors if all(t.is_contiguous() for t in tensors) else None


def _project(weight: Tensor, bound: float) -> None:
    norm = torch.linalg.vector_norm(weight, dim=_filter_dims(weight), keepdim=True)
    weight.mul_(bound / norm.clamp(min=bound))
