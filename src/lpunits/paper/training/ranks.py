"""One model trained by several processes, the ranks.

``torchrun --nproc-per-node N -m lpunits run ...`` starts N processes. Each takes its
share of every batch, and the gradients are averaged. So all ranks make the same step: that of one
process with the whole batch. Only rank 0 writes. Without torchrun there is one rank, and the
functions here do nothing.

A rank that fails exits, and torchrun ends the others, so that none waits for it.
"""

import os
import random
import signal
import sys
from collections.abc import Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lpunits.paper.training.trial import Trial

Value = TypeVar("Value")


def rank() -> int:
    """The number of this process among the ranks, from 0."""
    return int(os.environ["RANK"]) if _launched() else 0


def size() -> int:
    """How many ranks there are."""
    return int(os.environ["WORLD_SIZE"]) if _launched() else 1


def join(trials: Sequence[Trial], jobs: int) -> None:
    """Connect to the other ranks; ValueError if they cannot train these trials together."""
    if size() == 1:
        return
    if jobs > 1:
        raise ValueError(f"jobs must be 1 under torchrun, got {jobs}")
    for trial in trials:
        if not getattr(trial.config, "shares_batches", False):
            raise ValueError(
                "torchrun: only feed-forward trials without batch normalisation are trained by "
                f"several processes, not {trial.label!r}: run it without torchrun"
            )
    if not dist.is_initialized():
        dist.init_process_group("gloo")  # the training loop runs on CPUs
        # torchrun ends a rank by this signal: with an exception it leaves no half-written file.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("lpunits: ended by torchrun"))


def fail(sentence: str) -> None:
    """Exit with an error; torchrun then ends the other ranks."""
    if size() > 1:
        raise SystemExit(f"lpunits: rank {rank()} of {size()}: {sentence}")


def from_rank_0(value: Value) -> Value:
    """The value that rank 0 has."""
    if size() == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values)
    return values[0]


def summed(*values: float) -> list[float]:
    """Each value summed over the ranks, in the same order on all of them, for the same bits."""
    if size() == 1:
        return list(values)
    ours = torch.tensor(values, dtype=torch.float64)
    every = [torch.empty_like(ours) for _ in range(size())]
    dist.all_gather(every, ours)
    return [sum(column) for column in zip(*(t.tolist() for t in every), strict=True)]


def share(rows: Tensor) -> Tensor:
    """This rank's part of a batch; it is empty if there are more ranks than examples."""
    return rows.tensor_split(size())[rank()]


def data_parallel(model: nn.Module) -> nn.Module:
    """The model with the parameters of rank 0, whose gradients are averaged over the ranks."""
    return model if size() == 1 else DistributedDataParallel(model)


def seed_dropout(*names: object) -> None:
    """Reseed dropout by these names and the rank, so that every rank drops other units."""
    if size() > 1:
        torch.manual_seed(random.Random(f"{names} {rank()}").getrandbits(63))


def _launched() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ
