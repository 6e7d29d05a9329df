"""Classification: the configs' common fields, and the task for the training loop.

Minibatch descent, with momentum or by Adam, on tensors in memory.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from lpunits import param_groups
from lpunits.optim import SGD
from lpunits.paper.data import Dataset, Split, info, load
from lpunits.paper.training import ranks
from lpunits.paper.training.job import Job
from lpunits.paper.training.loop import PRECISIONS, Batch, Loop, Metrics
from lpunits.paper.training.trial import check_at_least, check_below_one, check_choice

OPTIMIZERS: dict[str, Any] = {"sgd": SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
DECAYS = ("linear", "exponential", "cosine")
EVALUATED_AT_ONCE = 1000  # examples


@dataclass(frozen=True)
class Training(ABC):
    """Data and training: all that a run depends on but its network, which a subclass adds.

    Args:
        data: The dataset, and its options as pairs of name and value.
        center_inputs: Subtract the mean of the training examples.
        sparse_inputs: Multiply by the inputs that are not 0 only: faster where most of them are 0.
        patience: Stop after so many epochs without a lower validation error.
        keep_best: Choose the weights with the lowest validation error; otherwise the last ones.
        optimizer: sgd (with momentum), adam or adamw (with torch's betas).
        lr: The learning rate at the start. It falls to the fraction ``final_lr`` over
            ``decay_epochs`` (all epochs by default), by ``decay``: linear, exponential or cosine;
            update by update.
        momentum: The momentum of sgd at the start; it rises linearly to ``final_momentum`` over
            ``momentum_epochs`` (all epochs by default).
        order_scale: The learning rate of the orders, as a multiple of the weights'.
        center_scale: The learning rate of the centres, as a multiple of the weights'.
        weight_decay: The factor of the L2 penalty on weights; for adamw of the decay itself.
        decayed: The weights that decay: of ``all`` layers, or of the ``output`` alone.
        max_norm: The largest norm of a filter, for sgd.
        label_smoothing: How much of the target is shared by all classes.
        adversarial: Above 0, half of the loss is that of adversarial examples: inputs moved by this
            Euclidean distance along the gradient, in the direction that increases the loss.
        virtual: Above 0, training is virtual adversarial (Miyato et al., 2016): the loss also has
            the divergence between the prediction for an input and that at this Euclidean distance
            from it, in the direction in which the prediction changes most. It needs no target.
        average: How much of the running mean of the weights an update keeps; 0: there is no mean.
        matmul: How exact matrix products have to be in training, highest, high or medium, as in
            :func:`torch.set_float32_matmul_precision`; medium may be faster.
        last_epochs: The most epochs of the last stage; 0: there is none.
        last_lr: The learning rate at the start of the last stage; it falls as in the first.
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
    decayed: str = "all"
    max_norm: float | None = None
    label_smoothing: float = 0.0
    adversarial: float = 0.0
    virtual: float = 0.0
    average: float = 0.0
    matmul: str = "highest"
    last_epochs: int = 0
    last_lr: float = 0.05
    test: bool = True

    watched = "valid_error"  # what a search compares after every epoch

    def __post_init__(self) -> None:
        info(self.data)  # raises for an unknown name
        check_choice(
            self,
            optimizer=OPTIMIZERS,
            decay=DECAYS,
            decayed=("all", "output"),
            matmul=PRECISIONS,
        )
        check_below_one(self, "label_smoothing", "average")
        check_at_least(self, 1, "batch", "epochs", "patience", "decay_epochs", "momentum_epochs")
        check_at_least(
            self, 0, "lr", "final_lr", "last_lr", "last_epochs", "adversarial", "virtual"
        )
        check_at_least(self, 0, "momentum", "final_momentum")
        if self.decay == "exponential" and not self.final_lr > 0:
            raise ValueError(f"final_lr must be above 0 for exponential decay, got {self.final_lr}")
        if self.patience is not None and not self.keep_best:
            raise ValueError(f"patience must be None unless keep_best, got {self.patience}")
        if self.adversarial and self.virtual:
            raise ValueError(f"virtual must be 0 with adversarial examples, got {self.virtual}")
        if self.max_norm is not None and self.optimizer != "sgd":
            raise ValueError(f"max_norm must be None unless optimizer is sgd, got {self.max_norm}")

    @property
    def source(self) -> str:
        """The dataset with its options, and the optimiser if it is not sgd, for a label."""
        options = "".join(f" {name} {value}" for name, value in self.data_options)
        return f"{self.data}{options}" + f", {self.optimizer}" * (self.optimizer != "sgd")

    @property
    def datasets(self) -> tuple[str, ...]:
        """The one dataset."""
        return (self.data,)

    @abstractmethod
    def model(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The untrained network, for rows of features that were of this shape."""

    def run(self, seed: int, job: Job) -> dict[str, Any]:
        """Train, and evaluate the weights that validation chose."""
        return Loop(Classification(self), seed, job).run()

    def untested(self) -> Self:
        """The same up to the choice of the weights, without the test set: a trial of a search."""
        return replace(self, test=False, last_epochs=0)

    def score(self, outcome: Mapping[str, Any], split: str = "valid") -> float:
        """What a search compares: the error rate on a split at the end of training."""
        last = outcome.get("last_stage", {})
        return float(last.get(split, outcome["metrics"][split])["error"])

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


class Classification:
    """A config with its data, for the training loop."""

    halvings = 0
    compared: tuple[str, ...] = ("error", "nll")
    average_start = False

    def __init__(self, config: Training) -> None:
        self.config = config
        self.keep_best, self.patience = config.keep_best, config.patience
        self.last_epochs = config.last_epochs
        self.data: Dataset[Tensor] = load(config.data, **dict(config.data_options))
        self.shift = _mean(self.data.train.features) if config.center_inputs else None

    def model(self) -> nn.Module:
        """The untrained network."""
        return self.config.model(self.data.shape, len(self.data.classes))

    def optimizer(self, model: nn.Module) -> Optimizer:
        """Weights, biases, orders and centres: each with its own learning rate and limits."""
        config = self.config
        biases = {  # and the gains of a normalisation
            id(p) for name, p in model.named_parameters() if name.endswith("bias") or p.ndim < 2
        }
        scales = {"order_scale": config.order_scale, "center_scale": config.center_scale}
        groups: list[dict[str, Any]] = []
        for group in param_groups(model, 1.0, **scales, weight_decay=config.weight_decay):
            group["scale"] = group["lr"]
            if group["name"] != "weights":
                groups.append(group)
                continue
            matrices = [p for p in group["params"] if id(p) not in biases]
            limit = {} if config.max_norm is None else {"max_norm": config.max_norm}
            if config.decayed == "output":
                *hidden, output = matrices
                groups.append({**group, "params": hidden, "weight_decay": 0.0, **limit})
                matrices = [output]
            groups.append({**group, "params": matrices, **limit})
            if vectors := [p for p in group["params"] if id(p) in biases]:
                groups.append({**group, "name": "biases", "params": vectors, "weight_decay": 0.0})
        own = {"momentum": config.momentum} if config.optimizer == "sgd" else {"fused": True}
        made: Optimizer = OPTIMIZERS[config.optimizer](groups, config.lr, **own)
        return made

    def rates(self, stage: str, epochs: float, halved: int) -> dict[str, float]:
        """The learning rate and the momentum after so many epochs of a stage."""
        config = self.config
        if stage == "first":
            lr = config.rate(config.lr, epochs, config.decay_epochs or config.epochs)
            t = min(epochs / (config.momentum_epochs or config.epochs), 1.0)
            momentum = config.momentum + t * (config.final_momentum - config.momentum)
        else:
            lr = config.rate(config.last_lr, epochs, config.last_epochs)
            momentum = config.final_momentum
        return {"lr": lr, "momentum": momentum} if config.optimizer == "sgd" else {"lr": lr}

    def gradients(
        self, model: nn.Module, splits: Sequence[Split[Tensor]], generator: torch.Generator
    ) -> Iterator[Batch]:
        """Batches in random order, each with its gradients in the parameters."""
        count = sum(map(len, splits))
        order = torch.randperm(count, generator=generator)
        before = 0
        for x, y, size in self.batches(splits, order):
            (mean,) = ranks.summed(self.backward(model, x, y, size))
            yield Batch(mean * size, size, before / count)
            before += size

    def batches(
        self, splits: Sequence[Split[Tensor]], order: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, int]]:
        """This rank's share of the features and targets of each batch, and the whole batch's size.

        ``order`` numbers the examples of all splits.
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
            yield self.prepared(x), y, len(batch)

    def backward(self, model: nn.Module, x: Tensor, y: Tensor, batch: int) -> float:
        """The gradients of the mean loss over a batch, for the rows of this rank; returns it."""
        config = self.config

        def ended(loss: Tensor) -> float:
            (loss * ranks.size() / batch).backward()  # the mean over the ranks is taken
            return loss.item() / batch

        def of(scores: Tensor) -> Tensor:
            smoothing = config.label_smoothing
            return cross_entropy(scores, y, reduction="sum", label_smoothing=smoothing)

        scores = model(x.requires_grad_(config.adversarial > 0))
        if config.adversarial:
            plain = ended(0.5 * of(scores))
            assert x.grad is not None
            with frozen_statistics(model):  # batch statistics are those of plain inputs alone
                return plain + ended(
                    0.5 * of(model(x.detach() + config.adversarial * unit(x.grad)))
                )
        if config.virtual:
            with frozen_statistics(model):
                return ended(of(scores) + divergence(model, x, scores.detach(), config.virtual))
        return ended(of(scores))

    def evaluate(self, model: Callable[[Tensor], Tensor], split: Split[Tensor]) -> Metrics:
        """The error rate and the mean negative log-likelihood of a split."""
        wrong, nll = 0.0, 0.0
        step = EVALUATED_AT_ONCE
        for start in range(ranks.rank() * step, len(split), ranks.size() * step):
            rows = slice(start, start + step)
            scores, y = model(self.prepared(split.features[rows])), split.targets[rows]
            wrong += (scores.argmax(1) != y).sum().item()
            nll += cross_entropy(scores.double(), y, reduction="sum").item()
        wrong, nll = ranks.summed(wrong, nll)
        return {"error": wrong / len(split), "nll": nll / len(split)}

    def prepared(self, features: Tensor) -> Tensor:
        """Features as the network takes them."""
        x = features.float()
        if self.config.sparse_inputs:
            return x.to_sparse()
        return x if self.shift is None else x - self.shift

    def row(self, values: dict[str, Any]) -> dict[str, Any]:
        """All values of an epoch."""
        return values

    def outcome(self, loop: Loop) -> dict[str, Any]:
        """The metrics of the chosen weights, the orders and the curve."""
        state, data = loop.state, self.data
        splits = {"train": data.train, "valid": data.valid, "test": data.test}
        found: dict[str, Any] = {
            "examples": {name: len(split) for name, split in splits.items()},
            "data_sha256": data.checksum,
        }
        if state["chosen"] is not None:
            found |= {"chosen_epoch": state["choice"]["epoch"], "metrics": state["chosen"]}
        if state["stage"] == "done":
            if self.last_epochs:
                found["last_stage"] = {n: loop.evaluate(splits[n]) for n in ("train", "test")}
            found["parameters"] = sum(p.numel() for p in loop.model.parameters())
            found["weights_sha256"] = _sha256(loop.model.state_dict())
        return found | {"orders": loop.order_changes(), "curve": state["curve"]}


def divergence(
    model: Callable[[Tensor], Tensor], x: Tensor, scores: Tensor, distance: float
) -> Tensor:
    """The Kullback-Leibler divergences of the predictions at virtual adversarial inputs, summed.

    The direction is that of one step of the power method from a random one.
    """

    def at(step: Tensor) -> Tensor:
        return kl_div(model(x + step).log_softmax(1), scores.softmax(1), reduction="sum")

    # A step so long that products with factors in bfloat16 would see it.
    step = (distance / 4 * unit(torch.randn_like(x))).requires_grad_()
    (uphill,) = torch.autograd.grad(at(step), step)
    return at(distance * unit(uphill))


def unit(rows: Tensor) -> Tensor:
    """Rows divided by their Euclidean norms."""
    norms: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / norms.clamp_min(torch.finfo(rows.dtype).tiny)


@contextmanager
def frozen_statistics(model: nn.Module) -> Iterator[None]:
    """Batch normalisations use the statistics of a batch, but do not remember them."""
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum


def _mean(features: Tensor) -> Tensor:
    """The mean example; in parts, since floats may take four times the memory."""
    total = torch.zeros(features.shape[1], dtype=torch.float64)
    for part in features.split(4096):
        total += part.sum(0, dtype=torch.float64)
    return (total / len(features)).float()


def _sha256(tensors: Mapping[str, Tensor]) -> str:
    """A checksum of trained weights: two runs are the same if theirs is."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
