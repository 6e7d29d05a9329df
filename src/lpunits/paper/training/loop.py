"""The one training loop of every feed-forward run.

Minibatch descent, with momentum or by Adam, on tensors in memory. The first stage trains on the
training set and keeps the weights with the lowest validation error; it ends after ``epochs``, or
when the error has not improved for ``patience`` epochs. The last stage, if ``last_epochs`` asks for
it, goes on from those weights with training and validation set together, as maxout's recipe does:
until the loss on what were the validation examples is as low as the training loss was at the
choice, or ``last_epochs`` are over.

With ``average`` it is the running mean of the weights that is validated, chosen and tested.

Every epoch ends with a checkpoint of all that the run depends on, so a run that is killed goes on
and ends with the same bits.

Under torchrun the ranks share every batch and every evaluation
(:mod:`lpunits.paper.training.ranks`).
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from lpunits import param_groups
from lpunits.optim import SGD
from lpunits.orders import Ordered
from lpunits.paper import data
from lpunits.paper.data import Dataset, Split
from lpunits.paper.training import ranks
from lpunits.paper.training.checkpoint import Part
from lpunits.paper.training.job import Job

OPTIMIZERS: dict[str, Any] = {"sgd": SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
DECAYS = ("linear", "exponential", "cosine")
EVALUATED_AT_ONCE = 1000  # examples


@dataclass(frozen=True)
class Training(ABC):
    """Data and training: all that a run depends on but its network, which a subclass adds.

    Args:
        data: The dataset, and its options as pairs of name and value.
        center_inputs: Subtract the mean of the training examples.
        sparse_inputs: Multiply by those inputs only that are not 0: faster where few of them are.
        patience: Stop after as many epochs without a lower validation error.
        keep_best: Choose the weights with the lowest validation error; otherwise the last ones.
        optimizer: sgd (with momentum), adam or adamw (with torch's betas).
        lr: The rate at the start. It falls to the fraction ``final_lr`` over ``decay_epochs`` (all
            epochs by default), by ``decay``: linear, exponential or cosine; update by update.
        momentum: The momentum of sgd at the start; it rises linearly to ``final_momentum`` over
            ``momentum_epochs`` (all epochs by default).
        order_scale: The rate of the orders, as a multiple of the weights'.
        center_scale: The rate of the centres, as a multiple of the weights'.
        weight_decay: The factor of the L2 penalty on weights; for adamw of the decay itself.
        max_norm: The largest norm of a filter, for sgd.
        label_smoothing: How much of the target goes to all classes alike.
        adversarial: Above 0, half of the loss is that of inputs which were moved so far (Euclidean)
            along its gradient, to where it is higher.
        average: How much of the running mean of the weights an update keeps; 0: there is no mean.
        last_epochs: The most epochs of the last stage; 0: there is none.
        last_lr: The rate at the start of the last stage; it falls as in the first.
        test: Evaluate on the test set and keep the model; the trials of a search do neither.
    """

    data: str
    data_options: tuple[tuple[str, int | bool | None], ...] = ()
    center_inputs: bool = False
    sparse_inputs: bool = False
    batch: int = 100
    epochs: int = 60
    patience: int | None = None
    keep_best: bool = True
    optimizer: str = "sgd"
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
    label_smoothing: float = 0.0
    adversarial: float = 0.0
    average: float = 0.0
    last_epochs: int = 0
    last_lr: float = 0.05
    test: bool = True

    watched = "valid_error"  # what a search sees of a running trial, epoch by epoch

    def __post_init__(self) -> None:
        data.info(self.data)  # an unknown name is told at once
        for name, known in (("optimizer", OPTIMIZERS), ("decay", DECAYS)):
            if getattr(self, name) not in known:
                expected = ", ".join(known)
                raise ValueError(f"{name} must be one of {expected}, got {getattr(self, name)!r}")
        if self.decay == "exponential" and not self.final_lr > 0:
            raise ValueError(f"final_lr must be above 0 for exponential decay, got {self.final_lr}")
        if self.patience is not None and not self.keep_best:
            raise ValueError(f"patience must be None unless keep_best, got {self.patience}")
        if self.max_norm is not None and self.optimizer != "sgd":
            raise ValueError(f"max_norm must be None unless optimizer is sgd, got {self.max_norm}")
        for name in ("label_smoothing", "average"):
            if not 0 <= getattr(self, name) < 1:
                value = getattr(self, name)
                raise ValueError(f"{name} must be a number from 0 to below 1, got {value}")
        least: dict[str, float] = {"batch": 1, "epochs": 1, "last_epochs": 0}
        least |= {"patience": 1, "decay_epochs": 1, "momentum_epochs": 1}
        least |= {"lr": 0, "final_lr": 0, "last_lr": 0, "momentum": 0, "final_momentum": 0}
        least |= {"adversarial": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and not low <= value < math.inf:
                raise ValueError(f"{name} must be a finite number of at least {low}, got {value}")

    @property
    def source(self) -> str:
        """The dataset with its options, and what is not plain descent, for a label."""
        options = "".join(f" {name} {value}" for name, value in self.data_options)
        return f"{self.data}{options}" + f", {self.optimizer}" * (self.optimizer != "sgd")

    @property
    def datasets(self) -> tuple[str, ...]:
        """The one dataset."""
        return (self.data,)

    @abstractmethod
    def model(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The network at its start, for rows of features that were of this shape."""

    def run(self, seed: int, job: Job) -> dict[str, Any]:
        """Train, and evaluate the weights that validation chose."""
        return _Run(self, seed, job).outcome()

    def untested(self) -> Self:
        """The same up to the choice of the weights, without the test set: a trial of a search."""
        return replace(self, test=False, last_epochs=0)

    def score(self, outcome: Mapping[str, Any], split: str = "valid") -> float:
        """What a search compares: the error that is reported of a split."""
        last = outcome.get("last_stage", {})
        return float(last.get(split, outcome["metrics"][split])["error"])

    def build_optimizer(self, model: nn.Module) -> Optimizer:
        """Weights, biases, orders and centres: each with the rate and the limits of its own."""
        biases = {  # and the gains of a normalisation
            id(p) for name, p in model.named_parameters() if name.endswith("bias") or p.ndim < 2
        }
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
            limit = {} if self.max_norm is None else {"max_norm": self.max_norm}
            groups.append({**group, "params": matrices, **limit})
            if vectors := [p for p in group["params"] if id(p) in biases]:
                groups.append({**group, "name": "biases", "params": vectors, "weight_decay": 0.0})
        own = {"momentum": self.momentum} if self.optimizer == "sgd" else {"fused": True}
        made: Optimizer = OPTIMIZERS[self.optimizer](groups, self.lr, **own)
        return made

    def rate(self, start: float, epochs: float, over: float) -> float:
        """The learning rate after so many epochs of a decay over ``over`` epochs.

        >>> from lpunits.paper.training.networks import FeedForward
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

    def __init__(self, config: Training, seed: int, job: Job) -> None:
        self.config, self.seed, self.job = config, seed, job
        self.data: Dataset[Tensor] = data.load(config.data, **dict(config.data_options))
        self.shift = _mean(self.data.train.features) if config.center_inputs else None
        torch.manual_seed(seed)
        self.model = config.model(self.data.shape, len(self.data.classes))
        self.optimizer = config.build_optimizer(self.model)
        self.batches = torch.Generator().manual_seed(seed)
        self.best: dict[str, Tensor] = {}
        self.averaged: dict[str, Tensor] = {}
        self.initial = orders(self.model)
        self.parts: dict[str, Part] = {
            "model": self.model,
            "optimizer": self.optimizer,
            "batches": self.batches,
            "dropout": torch.default_generator,
            "best": self.best,
            "averaged": self.averaged,
        }
        start = {"stage": "first", "epoch": 0, "choice": None, "chosen": None, "curve": []}
        self.state: dict[str, Any] = job.load(self.parts) or start
        known = self.data.checksum, self.state
        if ranks.from_rank_0(known) != known:
            raise ValueError(
                f"{job.checkpoint} or the data is not what rank 0 has: all ranks need the same"
            )
        self.trained = ranks.data_parallel(self.model)

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
                self.job.save_model(self.model)
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
            weights = self.model.state_dict() | self.averaged
            self.best |= {name: t.clone() for name, t in weights.items()}
        self.finish_epoch("first", loss, valid, config.epochs)

    def choose(self) -> None:
        """Go back to the weights that validation chose, and evaluate them."""
        self.model.load_state_dict(self.best)
        self.averaged.clear()
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
            self.model.load_state_dict(self.averaged, strict=False)
            self.averaged.clear()
        self.finish_epoch("last", loss, seen, config.last_epochs)

    def epoch(self, splits: list[Split[Tensor]], lr: float, over: int) -> float:
        """One pass over the splits in random order; returns the mean loss."""
        config, state = self.config, self.state
        count = sum(len(split) for split in splits)
        order = torch.randperm(count, generator=self.batches)
        self.model.train()
        ranks.seed_dropout(self.seed, state["stage"], state["epoch"])
        total = 0.0
        for number, (x, y) in enumerate(self.examples(splits, order)):
            batch = min(config.batch, count - number * config.batch)  # of all ranks
            done = state["epoch"] + number * config.batch / count
            self.set_rates(config.rate(lr, done, over), done)
            self.optimizer.zero_grad()
            (value,) = ranks.summed(self.backward(x, y, batch))
            if not math.isfinite(value):
                raise NotFiniteError(
                    f"the loss was {value} in epoch {state['epoch'] + 1}, batch {number + 1} "
                    f"of the {state['stage']} stage"
                )
            self.optimizer.step()
            if config.average:
                follow(self.averaged, self.model, config.average)
            total += value * batch
        state["epoch"] += 1
        return total / count

    def backward(self, x: Tensor, y: Tensor, batch: int) -> float:
        """The gradients of the mean loss over a batch, for the rows of this rank; returns it."""
        config = self.config

        def of(x: Tensor, part: float) -> float:
            scores, smoothing = self.trained(x), config.label_smoothing
            loss = cross_entropy(scores, y, reduction="sum", label_smoothing=smoothing) / batch
            (part * loss * ranks.size()).backward()  # of which the ranks' mean is taken
            return part * loss.item()

        if not config.adversarial:
            return of(x, 1.0)
        plain = of(x.requires_grad_(), 0.5)
        assert x.grad is not None
        uphill = x.grad / x.grad.norm(dim=1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
        with statistics_kept(self.model):  # those of a normalisation: of plain inputs alone
            return plain + of(x.detach() + config.adversarial * uphill, 0.5)

    def examples(
        self, splits: list[Split[Tensor]], order: Tensor
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of features and targets, in this order of the examples of all splits.

        Of each batch there is what this rank takes.
        """
        first = len(splits[0])
        for batch in order.split(self.config.batch):
            rows = ranks.share(batch)
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
            group["lr"] = lr * group["scale"]
            if config.optimizer == "sgd":
                group["momentum"] = momentum

    def finish_epoch(self, stage: str, loss: float, valid: dict[str, float], total: int) -> None:
        """A row of the curve, a checkpoint, and the progress."""
        now = {name: p for name, p in orders(self.model).items() if p.isfinite().all()}
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
        wrong, nll = 0.0, 0.0
        step = EVALUATED_AT_ONCE
        for start in range(ranks.rank() * step, len(split), ranks.size() * step):
            rows = slice(start, start + step)
            x, y = self.prepared(split.features[rows]), split.targets[rows]
            scores = functional_call(self.model, self.averaged, x)  # an empty mean changes nothing
            wrong += (scores.argmax(1) != y).sum().item()
            nll += cross_entropy(scores.double(), y, reduction="sum").item()
        wrong, nll = ranks.summed(wrong, nll)
        mean = nll / len(split)
        if not math.isfinite(mean):
            raise NotFiniteError(
                f"the loss of evaluation was {mean} after epoch {self.state['epoch']} of training"
            )
        return {"error": wrong / len(split), "nll": mean}

    def prepared(self, features: Tensor) -> Tensor:
        """Features as the network takes them."""
        x = features.float()
        if self.config.sparse_inputs:
            return x.to_sparse()
        return x if self.shift is None else x - self.shift


@contextmanager
def statistics_kept(model: nn.Module) -> Iterator[None]:
    """Here batch normalisations use the statistics of a batch, but do not remember them."""
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum


@torch.no_grad()
def follow(averages: dict[str, Tensor], model: nn.Module, keep: float) -> None:
    """Let running means follow the weights, and the statistics of a batch normalisation.

    They start where the model is, and keep so much of themselves at every call.
    """
    now: dict[str, Tensor] = dict(model.named_parameters())
    now |= {name: t for name, t in model.named_buffers() if ".running_" in name}
    if not averages:
        averages |= {name: t.clone() for name, t in now.items()}
    torch._foreach_lerp_([averages[name] for name in now], list(now.values()), 1 - keep)


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
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
