"""The one training loop of every feed-forward run.

Minibatch descent with momentum, on tensors in memory. The first stage trains on the training set
and keeps the weights with the lowest validation error; it ends after ``epochs``, or when the error
has not improved for ``patience`` epochs. The last stage, if ``last_epochs`` asks for it, goes on
from those weights with training and validation set together, as maxout's recipe does: until the
loss on what were the validation examples is as low as the training loss was at the choice, or
``last_epochs`` are over.

Every epoch ends with a checkpoint of all that the run depends on, so a run that is killed goes on
and ends with the same bits.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lpunits import MLP, param_groups
from lpunits.mlp import ACTIVATIONS
from lpunits.optim import SGD
from lpunits.orders import Ordered
from lpunits.paper import datasets
from lpunits.paper.checkpoint import Part
from lpunits.paper.datasets import Dataset, Split
from lpunits.paper.job import Job

DECAYS = ("linear", "exponential", "cosine")
EVALUATED_AT_ONCE = 1000  # examples


@dataclass(frozen=True)
class FeedForward:
    """Data, network and training: all that a feed-forward run depends on, but the seed.

    Args:
        data: The dataset, and its options as pairs of name and value.
        hidden: Units of each hidden layer. Elementwise units (relu, sigmoid, tanh) have one filter
            each, so their layers are widened until the network has as many weights as one of units
            with ``filters`` filters would have.
        weight_range: Weights start uniform in plus and minus this; None: as the layers start them.
        lr: The rate at the start. It falls to the fraction ``final_lr`` over ``decay_epochs`` (all
            epochs by default), by ``decay``: linear, exponential or cosine; update by update.
        momentum: The momentum at the start; it rises linearly to ``final_momentum`` over
            ``momentum_epochs`` (all epochs by default).
        order_scale: The rate of the orders, as a multiple of the weights'.
        center_scale: The rate of the centres, as a multiple of the weights'.
        weight_decay: The factor of the L2 penalty on weights.
        max_norm: The largest norm of a filter.
        center_inputs: Subtract the mean of the training examples.
        patience: Stop after as many epochs without a lower validation error.
        keep_best: Choose the weights with the lowest validation error; otherwise the last ones.
        last_epochs: The most epochs of the last stage; 0: there is none.
        last_lr: The rate at the start of the last stage; it falls as in the first.
        test: Evaluate on the test set and keep the model; the trials of a search do neither.
    """

    data: str
    data_options: tuple[tuple[str, int | bool | None], ...] = ()
    hidden: tuple[int, ...] = (240, 240)
    activation: str = "lp"
    filters: int = 5
    order: float = 3.0
    learn_order: bool = True
    center: bool = True
    bias: bool = False
    input_dropout: float = 0.0
    dropout: float = 0.0
    weight_range: float | None = None
    center_inputs: bool = False
    batch: int = 100
    epochs: int = 60
    patience: int | None = None
    keep_best: bool = True
    lr: float = 0.1
    decay: str = "cosine"
    final_lr: float = 0.0
    decay_epochs: int | None = None
    momentum: float = 0.5
    final_momentum: float = 0.7
    momentum_epochs: int | None = None
    order_scale: float = 5.0
    center_scale: float = 1.0
    weight_decay: float = 0.0
    max_norm: float | None = None
    last_epochs: int = 0
    last_lr: float = 0.05
    test: bool = True

    watched = "valid_error"  # what a search sees of a running trial, epoch by epoch

    def __post_init__(self) -> None:
        datasets.info(self.data)  # an unknown name is told at once
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {ACTIVATIONS}, got {self.activation!r}")
        if self.decay not in DECAYS:
            raise ValueError(f"decay must be one of {DECAYS}, got {self.decay!r}")
        if self.decay == "exponential" and not self.final_lr > 0:
            raise ValueError(f"final_lr must be above 0 for exponential decay, got {self.final_lr}")
        if self.patience is not None and not self.keep_best:
            raise ValueError(f"patience must be None unless keep_best, got {self.patience}")
        least: dict[str, float] = {"batch": 1, "epochs": 1, "last_epochs": 0, "filters": 1}
        least |= {"patience": 1, "decay_epochs": 1, "momentum_epochs": 1}
        least |= {"lr": 0, "final_lr": 0, "last_lr": 0, "momentum": 0, "final_momentum": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and not low <= value < math.inf:
                raise ValueError(f"{name} must be a finite number of at least {low}, got {value}")

    @property
    def label(self) -> str:
        """The dataset with its options, the units and the sizes of the layers."""
        options = "".join(f" {name} {value}" for name, value in self.data_options)
        sizes = "-".join(map(str, self.hidden))
        return f"{self.data}{options}, {self.activation} {sizes} x {self.filters}"

    @property
    def datasets(self) -> tuple[str, ...]:
        """The one dataset."""
        return (self.data,)

    def run(self, seed: int, job: Job) -> dict[str, Any]:
        """Train, and evaluate the weights that validation chose."""
        return _Run(self, seed, job).outcome()

    def untested(self) -> "FeedForward":
        """The same up to the choice of the weights, without the test set: a trial of a search."""
        return replace(self, test=False, last_epochs=0)

    def score(self, outcome: Mapping[str, Any], split: str = "valid") -> float:
        """What a search compares: the error that is reported of a split."""
        last = outcome.get("last_stage", {})
        return float(last.get(split, outcome["metrics"][split])["error"])

    def model(self, inputs: int, classes: int) -> MLP:
        """The network at its start."""
        pooled = self.activation in ("lp", "l2", "maxout")
        model = MLP(
            inputs,
            self.hidden if pooled else self.widened(inputs, classes),
            classes,
            activation=self.activation,
            filters=self.filters if pooled else 1,
            order=self.order,
            learn_order=self.learn_order,
            center=self.center,
            bias=self.bias,
            dropout=self.dropout,
            input_dropout=self.input_dropout,
        )
        if self.weight_range is not None:
            for name, weight in model.named_parameters():
                if name.endswith("weight"):
                    nn.init.uniform_(weight, -self.weight_range, self.weight_range)
        return model

    def widened(self, inputs: int, classes: int) -> tuple[int, ...]:
        """Hidden layers of single-filter units with as many weights as the pooled ones have.

        >>> FeedForward("mnist", hidden=(240, 240), filters=5).widened(784, 10)
        (782, 782)
        """

        def weights(hidden: tuple[int, ...], filters: int) -> int:
            sizes = (inputs, *hidden)
            pairs = zip(sizes, hidden, strict=False)
            return sum(n * units * filters for n, units in pairs) + sizes[-1] * classes

        goal = weights(self.hidden, self.filters)
        low, high = 1.0, float(self.filters)
        for _ in range(40):
            middle = (low + high) / 2
            below = weights(tuple(round(middle * n) for n in self.hidden), 1) < goal
            low, high = (middle, high) if below else (low, middle)
        return tuple(round(high * n) for n in self.hidden)

    def optimizer(self, model: nn.Module) -> SGD:
        """Weights, biases, orders and centres: each with the rate and the limits of its own."""
        biases = {id(p) for name, p in model.named_parameters() if name.endswith("bias")}
        groups: list[dict[str, Any]] = []
        for group in param_groups(
            model,
            1.0,
            order_scale=self.order_scale,
            center_scale=self.center_scale,
            weight_decay=self.weight_decay,
        ):
            group["scale"] = group["lr"]
            if group["name"] != "weights":
                groups.append(group)
                continue
            matrices = [p for p in group["params"] if id(p) not in biases]
            groups.append({**group, "params": matrices, "max_norm": self.max_norm})
            if vectors := [p for p in group["params"] if id(p) in biases]:
                groups.append({**group, "name": "biases", "params": vectors, "weight_decay": 0.0})
        return SGD(groups, self.lr, momentum=self.momentum)

    def rate(self, start: float, epochs: float, over: float) -> float:
        """The learning rate after so many epochs of a decay over ``over`` epochs.

        >>> FeedForward("mnist", lr=0.4, decay="linear", final_lr=0.5).rate(0.4, 60, over=60)
        0.2
        """
        t = min(epochs / over, 1.0)
        if self.decay == "exponential":
            return start * math.pow(self.final_lr, t)
        left = 1 - t if self.decay == "linear" else (1 + math.cos(math.pi * t)) / 2
        return start * (self.final_lr + (1 - self.final_lr) * left)


class NotFiniteError(ArithmeticError):
    """The loss is not a finite number any more."""


class _Run:
    """One run: what a checkpoint holds, and what can be made again from config and seed."""

    def __init__(self, config: FeedForward, seed: int, job: Job) -> None:
        self.config, self.job = config, job
        self.data: Dataset[Tensor] = datasets.load(config.data, **dict(config.data_options))
        self.shift = _mean(self.data.train.features) if config.center_inputs else None
        torch.manual_seed(seed)
        self.model = config.model(self.data.train.features.shape[1], len(self.data.classes))
        self.optimizer = config.optimizer(self.model)
        self.batches = torch.Generator().manual_seed(seed)
        self.best: dict[str, Tensor] = {}
        self.initial = orders(self.model)
        self.parts: dict[str, Part] = {
            "model": self.model,
            "optimizer": self.optimizer,
            "batches": self.batches,
            "dropout": torch.default_generator,
            "best": self.best,
        }
        start = {"stage": "first", "epoch": 0, "choice": None, "chosen": None, "curve": []}
        self.state: dict[str, Any] = job.load(self.parts) or start

    def outcome(self) -> dict[str, Any]:
        """Train to the end, and evaluate."""
        data = {"train": self.data.train, "valid": self.data.valid, "test": self.data.test}
        found: dict[str, Any] = {
            "examples": {name: len(split) for name, split in data.items()},
            "data_sha256": self.data.checksum,
        }
        try:
            while self.state["stage"] == "first" and not self.first_stage_is_over():
                self.first_stage_epoch()
            if self.state["stage"] == "first":
                self.choose()
            while self.state["stage"] == "last":
                self.last_stage_epoch()
        except NotFiniteError as error:
            found["diverged"] = str(error)
        if self.state["chosen"] is not None:
            found |= {"chosen_epoch": self.state["choice"]["epoch"]}
            found |= {"metrics": self.state["chosen"]}
        if self.state["stage"] == "done" and self.config.last_epochs:
            splits = {"train": self.data.train, "test": self.data.test}
            found["last_stage"] = {name: self.evaluated(split) for name, split in splits.items()}
        final = orders(self.model)
        found["orders"] = [
            {"layer": name, "initial": rounded(self.initial[name]), "final": rounded(final[name])}
            for name in final
        ]
        if "diverged" not in found:
            found["parameters"] = sum(p.numel() for p in self.model.parameters())
            found["weights_sha256"] = _sha256(self.model.state_dict())
            if self.config.test:
                self.job.keep(self.model)
        return found | {"curve": self.state["curve"]}

    def first_stage_is_over(self) -> bool:
        """All epochs done, or no better validation error for too long."""
        epoch, patience = self.state["epoch"], self.config.patience
        waited = epoch - self.state["choice"]["epoch"] if self.state["choice"] else 0
        return epoch >= self.config.epochs or (patience is not None and waited >= patience)

    def first_stage_epoch(self) -> None:
        """An epoch on the training set, then a look at the validation set."""
        config = self.config
        over = config.decay_epochs or config.epochs
        loss = self.epoch([self.data.train], config.lr, over)
        valid = self.evaluated(self.data.valid)
        best = self.state["choice"]
        better = best is None or (valid["error"], valid["nll"]) < (best["error"], best["nll"])
        if better or not config.keep_best:
            self.state["choice"] = {"epoch": self.state["epoch"], **valid}
            self.best.clear()
            self.best |= {name: t.clone() for name, t in self.model.state_dict().items()}
        self.finish_epoch("first", loss, valid, config.epochs)

    def choose(self) -> None:
        """Go back to the weights that validation chose, and evaluate them."""
        self.model.load_state_dict(self.best)
        splits = {"train": self.data.train, "valid": self.data.valid}
        if self.config.test:
            splits["test"] = self.data.test
        self.state["chosen"] = {name: self.evaluated(split) for name, split in splits.items()}
        self.state["stage"] = "last" if self.config.last_epochs else "done"
        self.state["epoch"] = 0
        self.optimizer.state.clear()  # the momentum was that of other weights
        self.job.save(self.parts, self.state)

    def last_stage_epoch(self) -> None:
        """An epoch on training and validation set together."""
        config = self.config
        splits = [self.data.train, self.data.valid]
        loss = self.epoch(splits, config.last_lr, config.last_epochs)
        seen = self.evaluated(self.data.valid)
        matched = seen["nll"] <= self.state["chosen"]["train"]["nll"]
        if matched or self.state["epoch"] >= config.last_epochs:
            self.state["stage"] = "done"
        self.finish_epoch("last", loss, seen, config.last_epochs)

    def epoch(self, splits: list[Split[Tensor]], lr: float, over: int) -> float:
        """One pass over the splits in random order; returns the mean loss."""
        config, state = self.config, self.state
        count = sum(len(split) for split in splits)
        order = torch.randperm(count, generator=self.batches)
        self.model.train()
        total = 0.0
        for number, (x, y) in enumerate(self.examples(splits, order)):
            done = state["epoch"] + number * config.batch / count
            self.set_rates(config.rate(lr, done, over), done)
            loss = cross_entropy(self.model(x), y)
            value = loss.item()
            if not math.isfinite(value):
                raise NotFiniteError(
                    f"the loss was {value} in epoch {state['epoch'] + 1}, batch {number + 1} "
                    f"of the {state['stage']} stage"
                )
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += value * len(y)
        state["epoch"] += 1
        return total / count

    def examples(
        self, splits: list[Split[Tensor]], order: Tensor
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of features and targets, in this order of the examples of all splits."""
        first = len(splits[0])
        for rows in order.split(self.config.batch):
            if len(splits) == 1:
                x, y = splits[0].features[rows], splits[0].targets[rows]
            else:  # gathered from both, so that no copy of all the data is made
                inside = rows < first
                ours, theirs = rows[inside], rows[~inside] - first
                x = torch.cat([splits[0].features[ours], splits[1].features[theirs]])
                y = torch.cat([splits[0].targets[ours], splits[1].targets[theirs]])
            yield self.prepared(x), y

    def set_rates(self, lr: float, epochs: float) -> None:
        """The rate and the momentum of the next update."""
        config = self.config
        if self.state["stage"] == "last":
            momentum = config.final_momentum
        else:
            t = min(epochs / (config.momentum_epochs or config.epochs), 1.0)
            momentum = config.momentum + t * (config.final_momentum - config.momentum)
        for group in self.optimizer.param_groups:
            group["lr"], group["momentum"] = lr * group["scale"], momentum

    def finish_epoch(self, stage: str, loss: float, valid: dict[str, float], total: int) -> None:
        """A row of the curve, a checkpoint, and the progress."""
        now = orders(self.model)
        row = {
            "stage": stage,
            "epoch": self.state["epoch"],
            "loss": loss,
            "valid_error": valid["error"],
            "valid_nll": valid["nll"],
        }
        if now:
            p = torch.cat(list(now.values())).double()
            row |= {"order_mean": p.mean().item(), "order_std": p.std(correction=0).item()}
        self.state["curve"].append(row)
        self.job.save(self.parts, self.state)
        shown = {"loss": loss, "valid_error": valid["error"]}
        self.job.epoch(self.state["epoch"], total, shown, now)

    @torch.no_grad()
    def evaluated(self, split: Split[Tensor]) -> dict[str, float]:
        """The error rate and the mean negative log-likelihood of a split."""
        self.model.eval()
        wrong, nll = 0, 0.0
        for start in range(0, len(split), EVALUATED_AT_ONCE):
            rows = slice(start, start + EVALUATED_AT_ONCE)
            scores, y = self.model(self.prepared(split.features[rows])), split.targets[rows]
            wrong += int((scores.argmax(1) != y).sum())
            nll += cross_entropy(scores.double(), y, reduction="sum").item()
        mean = nll / len(split)
        if not math.isfinite(mean):
            raise NotFiniteError(
                f"the loss of evaluation was {mean} after epoch {self.state['epoch']} of training"
            )
        return {"error": wrong / len(split), "nll": mean}

    def prepared(self, features: Tensor) -> Tensor:
        """Features as the network takes them."""
        x = features.float()
        return x if self.shift is None else x - self.shift


def orders(model: nn.Module) -> dict[str, Tensor]:
    """The orders of every layer that has some, by the layer's name."""
    return {
        name: module.order.detach().clone()
        for name, module in model.named_modules()
        if isinstance(module, Ordered)
    }


def _mean(features: Tensor) -> Tensor:
    """The mean example; in parts, since floats may take four times the memory."""
    total = torch.zeros(features.shape[1], dtype=torch.float64)
    for part in features.split(4096):
        total += part.sum(0, dtype=torch.float64)
    return (total / len(features)).float()


def rounded(values: Tensor) -> list[float | str]:
    """Six digits of each value; JSON has no infinity."""
    return [float(f"{v:.6g}") if math.isfinite(v) else str(v) for v in values.tolist()]


def _sha256(tensors: Mapping[str, Tensor]) -> str:
    """A checksum of trained weights: two runs are the same if theirs is."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
