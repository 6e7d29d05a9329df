"""The metric of polyphonic music: how well each frame is predicted from those before it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.utils.rnn import pad_sequence

KEYS = 88


class NLL(NamedTuple):
    """Negative log-likelihoods per step, summed over the keys, in nats."""

    pooled: float  # the mean over all steps of all pieces: what is reported
    per_piece: float  # the mean over pieces of their means


def music_nll(
    model: Callable[[Tensor], Any], sequences: Sequence[Tensor], *, frames: int = 16_384
) -> NLL:
    """The negative log-likelihood of frames, each predicted from those before it.

    The first one is predicted from silence.

    >>> fair = music_nll(torch.zeros_like, [torch.zeros(5, 88), torch.zeros(2, 88)])
    >>> f"{fair.pooled:.3f}"  # a coin for every key: 88 log 2
    '60.997'

    Args:
        model: Gets the frames up to each step, (steps, pieces, 88), shorter pieces padded at the
            end, and gives the logits of the frames that follow, alone or first in a tuple. A
            module is put into evaluation mode, and back.
        sequences: Piano rolls, (steps, 88) each, of 0 and 1.
        frames: Pieces of similar length go together, up to so many frames.
    """
    check_rolls(sequences)
    training = isinstance(model, nn.Module) and model.training
    if isinstance(model, nn.Module):
        model.eval()
    by_length = sorted(sequences, key=len)
    sums: list[Tensor] = []
    with torch.no_grad():
        while len(sums) < len(by_length):
            rolls = by_length[len(sums) :]
            together = max(1, sum((i + 1) * len(roll) <= frames for i, roll in enumerate(rolls)))
            rolls = rolls[:together]
            truth = pad_sequence(rolls)
            found = model(delayed(truth))
            logits = found[0] if isinstance(found, tuple) else found
            losses = binary_cross_entropy_with_logits(logits, truth, reduction="none").sum(-1)
            sums += [losses[: len(roll), i].double().sum() for i, roll in enumerate(rolls)]
    if isinstance(model, nn.Module):
        model.train(training)
    totals, steps = torch.stack(sums), torch.tensor([len(roll) for roll in by_length])
    return NLL((totals.sum() / steps.sum()).item(), (totals / steps).mean().item())


def check_rolls(sequences: Sequence[Tensor]) -> None:
    """Raise ValueError for anything but a list of piano rolls."""
    if not len(sequences):
        raise ValueError("sequences must be at least one piano roll, got none")
    for index, roll in enumerate(sequences):
        if roll.ndim != 2 or roll.shape[1] != KEYS or not len(roll):
            raise ValueError(
                f"sequences must be piano rolls of the shape (steps, {KEYS}), "
                f"got {tuple(roll.shape)} for piece {index}"
            )
        if not ((roll == 0) | (roll == 1)).all():
            wrong = roll[(roll != 0) & (roll != 1)][0].item()
            raise ValueError(f"sequences must hold 0 and 1 only, got {wrong} in piece {index}")


def delayed(frames: Tensor) -> Tensor:
    """The input for each frame: silence, then the frames without the last."""
    return torch.cat([torch.zeros_like(frames[:1]), frames[:-1]])
