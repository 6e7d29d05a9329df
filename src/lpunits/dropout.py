"""What disturbs a net in training: noise, and dropout at a tenth of torch's cost on a CPU."""

import importlib
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from lpunits.functional import inside_a_transform


class Dropout(nn.Dropout):
    """:class:`torch.nn.Dropout`, drawn by a hash of the entry's position instead of one by one.

    The mask depends on torch's generator, through a seed, and on nothing else; it is not kept for
    the gradient but made again. Where there is no compiled code for a tensor, torch's own serves.

    >>> _ = torch.manual_seed(0)
    >>> x = Dropout(0.25)(torch.ones(10_000))
    >>> x.unique(), bool(abs(x.mean() - 1) < 0.03)
    (tensor([0.0000, 1.3333]), True)
    """

    def forward(self, input: Tensor) -> Tensor:
        """Entries are 0 with probability ``p`` while training; in evaluation nothing happens."""
        kernel = None
        if self.training and self.p and not inside_a_transform(input):
            kernel = _fused()
        if kernel is None or not kernel.supports(input):
            return super().forward(input)
        if self.p == 1:
            return input * 0
        seed = int(torch.randint(2**62, ()))
        if not input.requires_grad:
            return kernel.masked(input, self.p, seed)  # type: ignore[no-any-return]
        return _Masked.apply(input, self.p, seed, kernel)  # type: ignore[no-any-return, no-untyped-call]


class GaussianNoise(nn.Module):
    """Adds independent normal noise while training; in evaluation nothing happens.

    >>> noise = GaussianNoise(0.5)
    >>> bool((noise(torch.zeros(10_000)).std() - 0.5).abs() < 0.02)
    True
    >>> noise.eval()(torch.zeros(2))
    tensor([0., 0.])

    Args:
        std: Its standard deviation.
    """

    def __init__(self, std: float) -> None:
        super().__init__()
        self.std = std

    def forward(self, x: Tensor) -> Tensor:
        """As many values as there were, each disturbed."""
        return torch.add(x, torch.randn_like(x), alpha=self.std) if self.training else x

    def extra_repr(self) -> str:
        """The standard deviation."""
        return f"std={self.std}"


class _Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float, seed: int, kernel: ModuleType) -> Tensor:
        ctx.mask = rate, seed, kernel
        y: Tensor = kernel.masked(x, rate, seed)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rate, seed, kernel = ctx.mask
        if torch.is_grad_enabled():  # what is done to the gradient is to be differentiated again
            return _Masked.apply(grad, rate, seed, kernel), None, None, None  # type: ignore[no-untyped-call]
        return kernel.masked(grad, rate, seed), None, None, None


@cache
def _fused() -> ModuleType | None:
    """The compiled mask, imported when it is first needed."""
    try:
        return importlib.import_module("lpunits.kernels.masking")
    except (ImportError, OSError):
        return None
