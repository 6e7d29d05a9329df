r"""How weights and centres start, so that a network of norms learns by default.

The reasons, measured in ``docs/explanation/start.md``:

- **Centres are spread.** With all centres at 0 a layer is an even function of its input, and its
  units are nearly one and the same function. So centres are normal, with the standard deviation
  :func:`spread` in units of the projections.
- **The mean is taken away.** The outputs of a norm are all positive. Their common mean would make
  the loss steep in one direction and drown the differences between samples. So a bias after the
  root starts at minus the mean, and the weights of a filter sum to zero, which leaves nothing of
  the mean when it changes. (Not below 16 inputs, and not where the inputs are data: there it would
  cost a part of the filters' freedom.)
- **Signals keep their size** through any number of layers, forward and backward: the scale is
  between the one that keeps the variance and the one that keeps small changes.
- **The first layer is small**: its norms have the mean square of the inputs, so that differences
  come out as a third to a half of what they were. A network that starts small learns features;
  one that starts large only weighs those that it began with. In front of dropout all layers start
  so, because the noise of dropout grows with what it drops.

``start="zero"`` is the start of the paper: centres and biases at 0, and a scale that keeps the
variance.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

STARTS = ("spread", "zero")
FEW_INPUTS = 16


def spread(in_features: int) -> float:
    """The standard deviation of centres, in units of that of the projections.

    Far from its centre a unit is nearly linear: 2 lets a signal pass ten layers. One layer over few
    inputs learns faster from units that bend where the data are.
    """
    return 1.0 if in_features < FEW_INPUTS else 2.0


def projections(filters: int, spread: float = 0.0) -> Tensor:
    """Standard normal values minus normal centres, ``(centres, samples, filters, 1)``.

    They are the same every time. Without a spread the only centre is 0.
    """
    samples = max(256, min(4096, 2**22 // filters))
    generator = torch.Generator("cpu").manual_seed(0)
    options: dict[str, Any] = {"generator": generator, "dtype": torch.float64, "device": "cpu"}
    z = torch.randn(samples, filters, 1, **options)
    if not spread:
        return z.unsqueeze(0)
    centers = torch.randn(samples // 4, 1, filters, 1, **options)
    return z[: 4 * len(centers)].view(-1, 4, filters, 1) - spread * centers


def spread_(centers: Tensor, spread: float) -> Tensor:
    """Draw centres with this standard deviation."""
    return nn.init.normal_(centers, std=spread) if spread else nn.init.zeros_(centers)


class Statistics(NamedTuple):
    """What units make of standard normal projections: a value for each unit, or one for all."""

    mean: Tensor
    root_mean_square: Tensor
    deviation: Tensor  # over samples
    slope: Tensor  # root mean square, of a change of all projections


def statistics(pool: Callable[[Tensor], Tensor], filters: int, spread: float) -> Statistics:
    """Of units that pool ``(..., filters, 1)`` to ``(..., units)``, with centres of this spread."""
    with torch.inference_mode(False), torch.enable_grad():
        z = projections(filters, spread).requires_grad_()
        u = pool(z)
        slopes = [torch.autograd.grad(v.sum(), z, retain_graph=True)[0] for v in u.unbind(-1)]
        u = u.detach()
        return Statistics(
            u.mean((0, 1)),
            u.square().mean((0, 1)).sqrt(),
            u.var(1).mean(0).sqrt(),
            torch.stack([slope.square().sum((-2, -1)).mean().sqrt() for slope in slopes]),
        )


def draw_(weight: Tensor, scale: Tensor, zero_sum: bool = False) -> None:
    """Draw weights ``(..., units, in_features)`` and divide them by the scale of each unit.

    Before the division projections have the mean square of the input.
    """
    bound = math.sqrt(3 / weight.shape[-1])
    with torch.no_grad():
        nn.init.uniform_(weight, -bound, bound)
        if zero_sum and weight.shape[-1] >= FEW_INPUTS:
            weight -= weight.mean(-1, keepdim=True)
        weight /= scale.to(weight).unsqueeze(-1)


def keep_changes_(weight: Tensor, slopes: Tensor) -> None:
    r"""Draw weights such that a small change of the input comes out of the units with its size.

    In a recurrent network this decides whether gradients last: what a step does to them is
    repeated at every step. (The scale that keeps the variance of the units' outputs lets them grow
    by half at every step, if centres are at 0.)

    Args:
        weight: ``(filters, units, in_features)`` or ``(filters * units, in_features)``,
            overwritten.
        slopes: The root mean square of the units' slopes, one for each unit or one for all.
    """
    draw_(weight.view(-1, slopes.numel(), weight.shape[-1]), slopes.view(-1), zero_sum=True)
