"""Training on a table: batches, schedules of the learning rate, early stopping."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from lpunits import optim
from lpunits.orders import orders, param_groups

# Of a batch: inputs, targets, weights or None. It leaves gradients and returns the mean loss.
Step = Callable[[Tensor, Tensor, Tensor | None], Tensor]
SCHEDULES = ("cosine", "one-cycle", "constant")
WARM_UP = 0.2  # of a cycle


def row_losses(found: Tensor, target: Tensor) -> Tensor:
    """Cross entropy for targets of one dimension, else half of the mean squared error."""
    if target.ndim == 1:
        return cross_entropy(found, target, reduction="none")
    return (found - target).square().mean(1) / 2


def usable(device: str | torch.device) -> torch.device:
    """The device, or ValueError if this torch cannot use it."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device must be usable, got {str(device)!r} ({reason})") from error


@contextmanager
def forked_rng(device: torch.device, seed: int) -> Iterator[None]:
    """Seed torch's generators, and afterwards set them back to what they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


class Examples(NamedTuple):
    """Rows to train on or to judge by, on the device of the network."""

    take: Callable[[Tensor], Tensor]  # the scaled inputs of some rows
    target: Tensor
    weight: Tensor | None  # with the mean 1, or None if all are 1


@dataclass
class History:
    """What is known of every epoch so far."""

    loss: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    judged: list[int] = field(default_factory=list)  # the epochs, from 1, that have a score
    orders: list[list[float]] = field(default_factory=list)  # the mean of each layer

    def add(self, loss: float, net: nn.Module) -> None:
        """An epoch of training."""
        self.loss.append(loss)
        self.orders.append([float(p.mean()) for p in orders(net).values()])


class AdamW(torch.optim.AdamW):
    """torch's fused AdamW, for parameters that all have gradients.

    A step calls the kernel and nothing else: for small networks, what torch checks around it takes
    longer than the kernel.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float) -> None:
        super().__init__(groups, lr, fused=True)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step; ``closure`` is not used."""
        for group in self.param_groups:
            states = [self.state[p] for p in group["params"]]
            if not all(states):  # the first step of a group: torch makes the states
                super().step()
                return
            steps = [state["step"] for state in states]
            torch._foreach_add_(steps, 1)
            beta1, beta2 = group["betas"]
            torch._fused_adamw_(
                group["params"],
                [p.grad for p in group["params"]],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                steps,
                lr=group["lr"],
                beta1=beta1,
                beta2=beta2,
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )


def make_optimizer(
    solver: str, net: nn.Module, lr: float, order_scale: float, weight_decay: float
) -> Optimizer:
    """AdamW, or gradient descent with momentum 0.9; orders have their own rate."""
    groups = param_groups(net, lr, order_scale=order_scale, weight_decay=weight_decay)
    for group in groups:
        group["rate"] = group["lr"]
    if solver == "sgd":
        return optim.SGD(groups, lr, momentum=0.9)
    return AdamW(groups, lr)


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


def by_autograd(net: nn.Module) -> Step:
    """A step for every network and device."""
    parameters = list(net.parameters())

    def step(x: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        for parameter in parameters:
            parameter.grad = None
        losses = row_losses(net(x), target)
        mean = (losses if weight is None else losses * weight).mean()
        mean.backward()
        return mean.detach()

    return step


def epoch(
    net: nn.Module,
    examples: Examples,
    step: Step,
    optimizer: Optimizer,
    batch: int,
    rng: np.random.Generator,
    rates: Callable[[float], float] = lambda done: 1.0,
) -> float:
    """One pass over the rows in random order, in batches of equal size; the mean loss."""
    net.train()
    take, target, weight = examples
    steps = max(1, math.ceil(len(target) / batch))
    order = torch.from_numpy(rng.permutation(len(target))).to(target.device)
    total = torch.zeros((), device=order.device, dtype=torch.float64)
    for number, rows in enumerate(order.tensor_split(steps)):
        now = rates(number / steps)
        for group in optimizer.param_groups:
            group["lr"] = now * group["rate"]
        loss = step(take(rows), target[rows], None if weight is None else weight[rows])
        optimizer.step()
        total += loss * len(rows)
    net.zero_grad()  # a model in a file or a pickle should not carry them
    net.eval()
    return float(total) / len(target)


@torch.no_grad()
def outputs(net: nn.Module, examples: Examples, chunk: int = 2048) -> Tensor:
    """What the network, in evaluation mode, makes of every row."""
    rows = torch.arange(len(examples.target), device=examples.target.device)
    return torch.cat([net(examples.take(some)) for some in rows.split(chunk)])


class Best(NamedTuple):
    """The epoch with the smallest loss on the validation rows, and its weights."""

    loss: float = math.inf
    epoch: int = 0
    weights: dict[str, Tensor] | None = None


def train(
    net: nn.Module,
    training: Examples,
    validation: Examples | None,
    step: Step,
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
    best = Best()

    def rates(number: int, done: float) -> float:
        return rate(schedule, (number + done) / epochs)

    for number in range(epochs):
        loss = epoch(net, training, step, optimizer, batch, rng, partial(rates, number))
        history.add(loss, net)
        if not math.isfinite(loss):
            raise ValueError(
                f"learning_rate_init or weight_decay must be lower: the loss was {loss} "
                f"after epoch {number + 1}"
            )
        if validation is not None:
            found = outputs(net, validation)
            history.scores.append(score(found, validation))
            history.judged.append(len(history.loss))
            now = mean_loss(found, validation)
            if now < best.loss:
                best = Best(now, number, {k: v.clone() for k, v in net.state_dict().items()})
        yield number + 1
        if validation is not None and number - best.epoch >= patience:
            break
    if best.weights:
        net.load_state_dict(best.weights)


def mean_loss(found: Tensor, examples: Examples) -> float:
    """The loss by which the best epoch is chosen."""
    return float(_mean(row_losses(found, examples.target).double(), examples.weight))


def score(found: Tensor, examples: Examples) -> float:
    """The accuracy, or the coefficient of determination averaged over targets."""
    if examples.target.ndim == 1:
        right = (found.argmax(1) == examples.target).double()
        return float(_mean(right, examples.weight))
    target = examples.target.double()
    left = _mean((found.double() - target).square(), examples.weight)
    spread = _mean((target - _mean(target, examples.weight)).square(), examples.weight)
    known = spread > 0
    return float((1 - left[known] / spread[known]).mean()) if known.any() else 0.0


def _mean(values: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return values.mean(0)
    shares = (weight / weight.sum()).double()
    return shares @ values
