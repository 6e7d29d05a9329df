"""Noise in training: Gaussian noise, and dropout at a tenth of torch's cost on a CPU."""

from typing import Any

import torch
from torch import Tensor, nn

from lpunits.arguments import inside_a_transform, recorded
from lpunits.ops import compiled, ops


class Dropout(nn.Dropout):
    """:class:`torch.nn.Dropout` with a mask that is a hash of each entry's position.

    The mask depends only on a seed from torch's generator. It is not stored for the gradient but
    computed again. Tensors that the compiled operator cannot take use torch's own dropout.

    >>> _ = torch.manual_seed(0)
    >>> x = Dropout(0.25)(torch.ones(10_000))
    >>> x.unique(), bool(abs(x.mean() - 1) < 0.03)
    (tensor([0.0000, 1.3333]), True)
    """

    def forward(self, input: Tensor) -> Tensor:
        """In training, set entries to 0 with probability ``p``; in evaluation, the identity."""
        if not (
            compiled
            and self.training
            and 0 < self.p < 1
            and not self.inplace
            and type(input) in (Tensor, nn.Parameter)
            and input.device.type == "cpu"
            and input.dtype is torch.float32
            and input.layout is torch.strided
            and not input.is_nested
            and not recorded()
            and not torch._C._len_torch_dispatch_stack()  # fake tensors, or a graph being made
            and not torch._C._are_functorch_transforms_active()
            and not inside_a_transform(input)
        ):
            return super().forward(input)
        seed = int(torch.randint(2**62, (), device="cpu"))  # whatever the default device
        return _Masked.apply(input, self.p, seed)  # type: ignore[no-any-return, no-untyped-call]


class GaussianNoise(nn.Module):
    """Add independent normal noise in training; in evaluation, the identity.

    >>> noise = GaussianNoise(0.5)
    >>> bool((noise(torch.zeros(10_000)).std() - 0.5).abs() < 0.02)
    True
    >>> noise.eval()(torch.zeros(2))
    tensor([0., 0.])

    Args:
        std: The standard deviation of the noise.
    """

    def __init__(self, std: float) -> None:
        super().__init__()
        self.std = std

    def forward(self, x: Tensor) -> Tensor:
        """The input plus noise, of the same shape."""
        return torch.add(x, torch.randn_like(x), alpha=self.std) if self.training else x

    def extra_repr(self) -> str:
        """The standard deviation."""
        return f"std={self.std}"


class _Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float, seed: int) -> Tensor:
        ctx.mask = rate, seed
        return ops.dropout.default(x, rate, seed)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # The same mask on the gradient, and again for second derivatives.
        grad = grad if grad.layout is torch.strided else grad.to_dense()
        return _Masked.apply(grad, *ctx.mask), None, None  # type: ignore[no-untyped-call]
