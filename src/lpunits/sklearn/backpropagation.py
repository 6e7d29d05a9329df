"""Gradients of a perceptron without autograd, whose bookkeeping is a part of every small step.

A hidden layer, its z as ``(rows, filters, units)``, and the way back::

    z = W x - c        dW = dz^T x,  dc = -sum dz,  dx = dz W
    u = pool(z) + b    dz = pool'(z) du,  db = sum du
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from lpunits.layers import LpLinear, MaxoutLinear
from lpunits.mlp import MLP
from lpunits.units import pool, pool_backward


class Backpropagation:
    """Computes the mean loss of a batch, and leaves its gradients in the parameters.

    Args:
        net: A network without dropout, noise or normalisation, whose orders are at least 1.
        activation: The kind of its hidden units.
    """

    def __init__(self, net: MLP, activation: str) -> None:
        kinds = nn.Linear | LpLinear | MaxoutLinear
        self.hidden: list[Any]
        self.last: Any
        *self.hidden, self.last = (layer for layer in net if isinstance(layer, kinds))
        self.kind = "lp" if activation == "l2" else activation
        self.parameters = list(net.parameters())

    @torch.no_grad()
    def __call__(self, x: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        """The loss is cross entropy for targets of one dimension, else half the squared error."""
        if self.parameters[0].grad is None:
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
        inputs, sums, orders = [], [], []
        for layer in self.hidden:
            inputs.append(x)
            z, p = _project(layer, x), None
            if isinstance(layer, LpLinear):
                p = layer.order
            x = pool(self.kind, z, p, out=z.new_empty(z.shape[0], z.shape[-1]))
            if isinstance(layer, LpLinear) and layer.bias is not None:
                x += layer.bias
            sums.append(z)
            orders.append(p)
        last = self.last
        loss, grad = _loss(linear(x, last.weight, last.bias), target, weight)
        torch.mm(grad.t(), x, out=last.weight.grad)
        torch.sum(grad, 0, out=last.bias.grad)
        for layer in reversed(self.hidden):
            grad = grad @ (last.weight if last.weight.ndim == 2 else last.weight.flatten(0, 1))
            z, p = sums.pop(), orders.pop()
            grad = self._back(layer, grad, z, p, inputs.pop())
            last = layer
        return loss

    def _back(self, layer: Any, grad: Tensor, z: Tensor, p: Tensor | None, x: Tensor) -> Tensor:
        """The gradients of a layer; returns that of its projections, ``(rows, all of them)``."""
        dz, dp = torch.empty_like(z), None
        if isinstance(layer, LpLinear):
            if isinstance(layer.rho, nn.Parameter):
                dp = torch.zeros_like(layer.rho)
            if layer.bias is not None:
                torch.sum(grad, 0, out=layer.bias.grad)
        pool_backward(self.kind, grad, z, p, dz, dp)
        if dp is not None:
            if layer.infinite is not None:
                dp.masked_fill_(layer.infinite, 0)
            torch.mul(dp, layer.rho.sigmoid(), out=layer.rho.grad)
        dz = dz.flatten(1)
        torch.mm(dz.t(), x, out=layer.weight.grad.view(dz.shape[1], -1))
        offset: Any = layer.center if isinstance(layer, LpLinear) else layer.bias
        if offset is not None:
            torch.sum(dz, 0, out=offset.grad.view(-1))
            if isinstance(layer, LpLinear):
                offset.grad.neg_()
        return dz


def _project(layer: Any, x: Tensor) -> Tensor:
    """``(rows, filters, units)``, or ``(rows, units)`` of elementwise units."""
    if isinstance(layer, nn.Linear):
        return linear(x, layer.weight, layer.bias)
    offset: Any = layer.center if isinstance(layer, LpLinear) else layer.bias
    if offset is not None:
        offset = offset.flatten().neg() if isinstance(layer, LpLinear) else offset.flatten()
    z = linear(x, layer.weight.flatten(0, 1), offset)
    return z.view(-1, layer.filters, layer.units)


def _loss(found: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean loss of a batch, and its gradient in what the network gave."""
    if target.ndim == 1:
        logs = found.t().contiguous().log_softmax(0)  # faster than along rows of a few classes
        at = target.unsqueeze(0)
        losses = logs.gather(0, at).neg_().squeeze(0)
        grad = logs.exp_().scatter_add_(0, at, logs.new_full((), -1.0).expand(at.shape)).t()
    else:
        grad = (found - target).div_(target.shape[1])
        losses = (grad * (found - target)).sum(1).div_(2)
    if weight is not None:
        losses *= weight
        grad *= weight.unsqueeze(1)
    return losses.mean(), grad.div_(len(losses))
