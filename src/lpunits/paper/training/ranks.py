"""One model over several processes: all that knows of ranks.

``torchrun --nproc-per-node N -m lpunits run ...`` starts N processes, the ranks. Each takes its
share of every batch, the gradients are averaged, and so all ranks make the same step, which is that
of one process with the whole batch. Rank 0 alone writes. Without torchrun there is one rank, and
nothing here does anything.

A rank that fails ends, and torchrun ends the others: none of them waits for it.
"""

import os
import random
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
    """Meet the other ranks, if these trials can be trained by several."""
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
        dist.init_process_group("gloo")  # the training loop works on processors


def fail(sentence: str) -> None:
    """End this rank, and by that all: whoever waits for it is ended by torchrun."""
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
    """Each value summed over the ranks, by all of them in the same order: bit by bit the same."""
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
    """The model with rank 0's parameters, whose gradients will be the mean over the ranks."""
    return model if size() == 1 else DistributedDataParallel(model)


def seed_dropout(*names: object) -> None:
    """Let every rank drop other units: its generator starts anew from these names and its rank."""
    if size() > 1:
        torch.manual_seed(random.Random(f"{names} {rank()}").getrandbits(63))


def _launched() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ
