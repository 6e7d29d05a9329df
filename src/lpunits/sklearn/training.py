"""Training on a table: batches, schedules of the learning rate, early stopping."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from lpunits import optim
from lpunits.orders import orders, param_groups

Loss = Callable[[Tensor, Tensor], Tensor]
SCHEDULES = ("cosine", "one-cycle", "constant")
WARM_UP = 0.2  # of a cycle


def cross_entropies(scores: Tensor, labels: Tensor) -> Tensor:
    """The loss of each row of a classification."""
    return cross_entropy(scores, labels, reduction="none")


def squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of each row of a regression: half of the mean over its targets."""
    return (outputs - targets).square().mean(1) / 2


class Examples(NamedTuple):
    """Rows to train on or to judge by, on the device of the network."""

    take: Callable[[Tensor], Tensor]  # the scaled inputs of some rows
    target: Tensor
    weight: Tensor | None  # with the mean 1, or None if all are 1

    def __len__(self) -> int:
        return len(self.target)


@dataclass
class History:
    """What is known of every epoch so far."""

    loss: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    orders: list[list[float]] = field(default_factory=list)  # the mean of each layer

    def add(self, loss: float, net: nn.Module) -> None:
        """An epoch of training."""
        self.loss.append(loss)
        self.orders.append([float(p.mean()) for p in orders(net).values()])


def make_optimizer(
    solver: str, net: nn.Module, lr: float, order_scale: float, weight_decay: float
) -> Optimizer:
    """AdamW, or gradient descent with momentum 0.9; orders have their own rate."""
    groups = param_groups(net, lr, order_scale=order_scale, weight_decay=weight_decay)
    for group in groups:
        group["rate"] = group["lr"]
    if solver == "sgd":
        return optim.SGD(groups, lr, momentum=0.9)
    return torch.optim.AdamW(groups, lr, fused=True)


def rate(schedule: str, time: float) -> float:
    """The part of the learning rate at a time from 0 to 1.

    >>> [round(rate("cosine", t), 3) for t in (0, 0.5, 1)]
    [1.0, 0.5, 0.0]
    >>> [round(rate("one-cycle", t), 3) for t in (0, 0.1, 0.2, 0.6, 1)]
    [0.04, 0.52, 1.0, 0.5, 0.0]
    """
    if schedule == "constant":
        return 1.0
    if schedule == "one-cycle":
        if time < WARM_UP:
            return 0.04 + 0.96 * time / WARM_UP
        time = (time - WARM_UP) / (1 - WARM_UP)
    return 0.5 + 0.5 * math.cos(math.pi * time)


def epoch(
    net: nn.Module,
    examples: Examples,
    loss: Loss,
    optimizer: Optimizer,
    batch: int,
    rng: np.random.Generator,
    rates: Callable[[float], float] = lambda done: 1.0,
) -> float:
    """One pass over the rows in random order, in batches of equal size; the mean loss."""
    net.train()
    steps = max(1, math.ceil(len(examples) / batch))
    order = torch.from_numpy(rng.permutation(len(examples))).to(examples.target.device)
    total = torch.zeros((), device=order.device, dtype=torch.float64)
    for step, rows in enumerate(order.tensor_split(steps)):
        now = rates(step / steps)
        for group in optimizer.param_groups:
            group["lr"] = now * group["rate"]
        losses = loss(net(examples.take(rows)), examples.target[rows])
        if examples.weight is not None:
            losses = losses * examples.weight[rows]
        mean = losses.mean()
        mean.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += mean.detach() * len(rows)
    return float(total) / len(examples)


@torch.no_grad()
def outputs(net: nn.Module, examples: Examples, chunk: int = 8192) -> Tensor:
    """What the network makes of every row."""
    net.eval()
    rows = torch.arange(len(examples), device=examples.target.device)
    return torch.cat([net(examples.take(some)) for some in rows.split(chunk)])


@dataclass
class Best:
    """The weights of the epoch with the best score on the validation rows."""

    score: float = -math.inf
    epoch: int = 0
    weights: dict[str, Tensor] = field(default_factory=dict)


def train(
    net: nn.Module,
    training: Examples,
    validation: Examples | None,
    loss: Loss,
    score: Callable[[Tensor, Examples], float],
    optimizer: Optimizer,
    history: History,
    rng: np.random.Generator,
    *,
    batch: int,
    epochs: int,
    schedule: str,
    patience: float,
) -> Iterator[int]:
    """Train epoch by epoch, yielding the number of epochs done; at the end, the best weights."""
    best, best_loss = Best(), math.inf
    for number in range(epochs):
        history.add(
            epoch(
                net,
                training,
                loss,
                optimizer,
                batch,
                rng,
                lambda done, start=number: rate(schedule, (start + done) / epochs),  # type: ignore[misc]
            ),
            net,
        )
        if not math.isfinite(history.loss[-1]):
            raise ValueError(
                f"learning_rate_init must be lower for these data: the loss was "
                f"{history.loss[-1]} after epoch {number + 1}"
            )
        if validation is not None:
            found = outputs(net, validation)
            history.scores.append(score(found, validation))
            judged = loss(found, validation.target)
            if validation.weight is not None:
                judged = judged * validation.weight
            now = float(judged.mean())
            if now < best_loss:
                best_loss = now
                best.score, best.epoch = history.scores[-1], number
                best.weights = {k: v.clone() for k, v in net.state_dict().items()}
        yield number + 1
        if validation is not None and number - best.epoch >= patience:
            break
    if best.weights:
        net.load_state_dict(best.weights)
    net.eval()


def accuracy(found: Tensor, examples: Examples) -> float:
    """The (weighted) share of rows whose class is right."""
    right = (found.argmax(1) == examples.target).double()
    return float(_mean(right, examples.weight))


def r2(found: Tensor, examples: Examples) -> float:
    """The (weighted) coefficient of determination, averaged over targets."""
    target = examples.target.double()
    left = _mean((found.double() - target).square(), examples.weight)
    spread = _mean((target - _mean(target, examples.weight)).square(), examples.weight)
    known = spread > 0
    return (
        float((1 - left[known] / spread[known]).mean()) if known.any() else float(left.max() == 0)
    )


def _mean(values: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return values.mean(0)
    shares = (weight / weight.sum()).double()
    return shares @ values
