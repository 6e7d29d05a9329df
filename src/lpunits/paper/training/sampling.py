"""Music from a trained network: frames sampled one after another."""

import torch
from torch import Tensor, nn

from lpunits.paper.data.midi import MOST_STEPS
from lpunits.paper.training.likelihood import KEYS


def sample(
    net: nn.Module,
    steps: int,
    *,
    temperature: float = 1.0,
    seed: int = 0,
    start: Tensor | None = None,
) -> Tensor:
    """A piano roll, (steps, 88), sampled frame by frame from the predictions of a network.

    Args:
        net: A network with a ``step`` method, as :class:`lpunits.DOTRNN` has.
        steps: How many frames.
        temperature: The logits are divided by it: below 1, likely notes become likelier; at 0, a
            note sounds if its probability is above one half.
        seed: The same seed gives the same music.
        start: Frames, (steps, 88), to continue from; they are not part of the result.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"steps must be a number from 1 to {MOST_STEPS}, got {steps!r}")
    if not temperature >= 0:
        raise ValueError(f"temperature must be a number of at least 0, got {temperature!r}")
    generator = torch.Generator().manual_seed(seed)
    net.eval()
    frames = [torch.zeros(1, KEYS)]
    with torch.no_grad():
        state = None
        if start is not None:
            for frame in (*frames, *start[:-1].split(1)):
                _, state = net.step(frame, state)  # type: ignore[operator]
            frames = [start[-1:]]
        for _ in range(steps):
            logits, state = net.step(frames[-1], state)  # type: ignore[operator]
            # At temperature 0 the logits become -inf and inf: probabilities of 0 and 1.
            scale = max(temperature, 1e-30)
            probability = (logits.double() / scale).sigmoid().float()
            frames.append(torch.bernoulli(probability, generator=generator))
    return torch.cat(frames[1:])
