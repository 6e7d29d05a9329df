r"""How weights and centres start, so that a network of norms learns by default.

The reasons, measured in ``docs/explanation/start.md``:

- **Centres are spread.** With all centres at 0 a layer is an even function of its input, and its
  units are nearly one and the same function. So centres are normal, with the standard deviation
  :func:`spread` in units of the projections.
- **The weights of a filter sum to zero.** The outputs of a norm are all positive. Their common mean
  would drown the differences between samples in the next layer, which then shrink by a factor N per
  layer. (Not below 16 inputs: there it would cost a noticeable part of the filters' freedom.)
- **Signals keep their variance**: weights and centres are divided by the standard deviation of what
  a unit makes of standard normal projections. Between dropouts it is the mean square instead,
  because the noise of dropout grows with the size of what it drops, and a bias takes the mean away.
- **In a recurrent network small changes keep their size** (:func:`keep_changes_`).
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

STARTS = ("spread", "zero")
FEW_INPUTS = 16


def check_start(start: str) -> None:
    """Raise ValueError unless there is such a start."""
    if start not in STARTS:
        raise ValueError(f"start must be one of {STARTS}, got {start!r}")


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


def deviation(outputs: Tensor) -> Tensor:
    """The standard deviation over samples of units with ``(centres, samples, units)`` outputs."""
    return outputs.var(1).mean(0).sqrt()


def draw_(weight: Tensor, scale: Tensor, zero_sum: bool = True) -> None:
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
    draw_(weight.view(-1, slopes.numel(), weight.shape[-1]), slopes.view(-1))
