r"""The Fisher matrix of a model's output distribution, for three distributions.

With outputs y(x) of parameters θ, J = dy/dθ and H the Hessian of the loss in y, the matrix is

.. math:: F = \frac{1}{n} \sum_x J^\top H J .

It is the Gauss-Newton matrix of the loss, and never negative. H does not depend on the targets, so
F needs inputs only. n counts the targets: samples for the softmax, outputs for the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

# Entries of the Jacobian in memory at a time: 64 MB in double precision.
HELD = 2**23


@dataclass(frozen=True)
class Loss:
    """A mean loss over targets, with its Hessian H in the outputs of one sample.

    ``curvature(y, v)`` is H v, and ``root(y, v)`` is R v for an R with H = R' R.
    """

    value: Callable[[Tensor, Tensor], Tensor]
    curvature: Callable[[Tensor, Tensor], Tensor]
    root: Callable[[Tensor, Tensor], Tensor]
    per_output: bool  # whether each output has a target, or each sample


def _softmax_curvature(y: Tensor, v: Tensor) -> Tensor:
    p = y.softmax(-1)
    return p * (v - (p * v).sum(-1, keepdim=True))


def _softmax_root(y: Tensor, v: Tensor) -> Tensor:
    p = y.softmax(-1)
    return p.sqrt() * (v - (p * v).sum(-1, keepdim=True))


def _logistic_slope(y: Tensor) -> Tensor:
    return y.sigmoid() * (-y).sigmoid()  # p (1 - p), exact even if p rounds to 1


LOSSES = {
    "softmax": Loss(cross_entropy, _softmax_curvature, _softmax_root, False),
    "logistic": Loss(
        binary_cross_entropy_with_logits,
        lambda y, v: _logistic_slope(y) * v,
        lambda y, v: _logistic_slope(y).sqrt() * v,
        True,
    ),
    "squared": Loss(lambda y, t: (y - t).square().mean() / 2, lambda y, v: v, lambda y, v: v, True),
}


class Fisher:
    """F at the current parameters of a model on a batch of inputs; vectors are flat."""

    def __init__(self, model: nn.Module, loss: Loss, inputs: Tensor) -> None:
        self.model, self.loss, self.inputs = model, loss, inputs
        named = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
        self._theta = named
        self._sizes = [p.numel() for p in named.values()]
        with torch.no_grad():
            self._outputs: Tensor = model(inputs)
        self._count = self._outputs.numel() if loss.per_output else len(self._outputs)

    @cached_property
    def _pullback(self) -> Callable[[Tensor], tuple[dict[str, Tensor]]]:
        """Maps v to J' v; one forward pass serves all products."""
        return torch.func.vjp(self._call, self._theta)[1]

    def _call(self, theta: dict[str, Tensor]) -> Tensor:
        y: Tensor = torch.func.functional_call(self.model, theta, (self.inputs,))
        return y

    def product(self, v: Tensor) -> Tensor:
        """F v, by one forward-mode and one reverse-mode pass."""
        parts = zip(self._theta.items(), v.split(self._sizes), strict=True)
        tangents = {name: part.reshape(p.shape).to(p) for (name, p), part in parts}
        jv = torch.func.jvp(self._call, (self._theta,), (tangents,))[1]
        (pulled,) = self._pullback(self.loss.curvature(self._outputs, jv))
        return torch.cat([g.flatten() for g in pulled.values()]).to(v.dtype) / self._count

    def dense(self) -> Tensor:
        """F as a matrix in double precision.

        Computed from the Jacobian of each sample, in chunks of samples. So the output of a sample
        must not depend on other samples, as it does in batch normalisation in training mode.
        """

        def outputs(theta: dict[str, Tensor], x: Tensor) -> Tensor:
            y: Tensor = torch.func.functional_call(self.model, theta, (x.unsqueeze(0),))
            return y.flatten()

        jacobian: Callable[..., dict[str, Tensor]] = torch.func.vmap(
            torch.func.jacrev(outputs), in_dims=(None, 0)
        )
        size = sum(self._sizes)
        y = self._outputs.flatten(1) if self._outputs.ndim > 1 else self._outputs.unsqueeze(1)
        matrix = torch.zeros(size, size, dtype=torch.float64, device=y.device)
        chunk = max(1, HELD // (size * y.shape[1]))
        for x, y_ in zip(self.inputs.split(chunk), y.split(chunk), strict=True):
            parts: Any = jacobian(self._theta, x).values()
            j = torch.cat([part.flatten(2) for part in parts], -1)  # (samples, outputs, size)
            rooted = self.loss.root(y_.unsqueeze(1), j.transpose(1, 2)).double().transpose(1, 2)
            rooted = rooted.reshape(-1, size)
            matrix.addmm_(rooted.T, rooted)
        return matrix / self._count
