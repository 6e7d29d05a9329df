"""The one training loop: epochs, stages, early stopping, averaging, checkpoints, ranks.

What is trained is a :class:`Task`, which makes batches, computes the loss and evaluates: see
:mod:`~lpunits.paper.training.classification` and :mod:`~lpunits.paper.training.music`.

The first stage trains on the training set and keeps the weights with the best validation metrics.
After ``patience`` epochs without better ones it returns to them and halves the learning rate; when
all ``halvings`` are used, or after ``epochs``, it ends. The last stage, if ``last_epochs`` asks for
one, trains on from the chosen weights with training and validation set together, as maxout's recipe
does: until the loss on the former validation examples is as low as the training loss was at the
choice, or for ``last_epochs``.

With ``average`` it is the running mean of the weights that is validated, chosen and tested.

Every epoch ends with a checkpoint of all that the run depends on. Interrupted runs resume and end
with the same bits. Under torchrun the ranks share every batch and every evaluation
(:mod:`lpunits.paper.training.ranks`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from lpunits.orders import orders
from lpunits.paper.data import Dataset, Split
from lpunits.paper.training import ranks
from lpunits.paper.training.checkpoint import Part
from lpunits.paper.training.job import Job

Metrics = dict[str, float]

# How exact matrix products have to be in training, in torch's words; in evaluation they have the
# highest precision. With "medium" a library may round the factors to bfloat16. On an AMD EPYC with
# AVX-512 it does not, and updates are 1.4 to 1.8 times as fast: torch takes oneDNN, not MKL.
PRECISIONS = ("highest", "high", "medium")


class Batch(NamedTuple):
    """What the loop has to know of a batch whose gradients are ready."""

    loss: float  # the sum over the batch, of all ranks
    size: int
    done: float = 0.0  # the part of the epoch that came before


class Task(Protocol):
    """A config with its data: what to train, on what, and how to judge it."""

    config: Any  # has epochs, average, matmul, watched and test
    data: Dataset[Any]
    keep_best: bool  # choose the epoch with the best validation metrics, not the last one
    patience: int | None
    halvings: int
    last_epochs: int
    compared: tuple[str, ...]  # the metrics that decide which epoch is best, the first one first
    average_start: bool  # the mean begins with the initial weights, not with those after an update

    def model(self) -> nn.Module:
        """The untrained network."""

    def optimizer(self, model: nn.Module) -> Optimizer:
        """Every group has a ``scale``, by which the learning rate is multiplied."""

    def rates(self, stage: str, epochs: float, halved: int) -> dict[str, float]:
        """The learning rate, and other options of the optimiser, after so many epochs."""

    def gradients(
        self, model: nn.Module, splits: Sequence[Split[Any]], generator: torch.Generator
    ) -> Iterator[Batch]:
        """One epoch: for batch after batch, leave its gradients in the parameters and yield."""

    def evaluate(self, model: Callable[[Any], Any], split: Split[Any]) -> Metrics:
        """The metrics of a network on a split."""

    def row(self, values: dict[str, Any]) -> dict[str, Any]:
        """What the record keeps of an epoch."""

    def outcome(self, loop: "Loop") -> dict[str, Any]:
        """What the record keeps of a run that has ended, or diverged."""


class NotFiniteError(ArithmeticError):
    """The loss is not a finite number any more."""


class Loop:
    """One run: what a checkpoint holds, and what config and seed determine."""

    def __init__(self, task: Task, seed: int, job: Job) -> None:
        self.task, self.config, self.data = task, task.config, task.data
        self.seed, self.job = seed, job
        torch.manual_seed(seed)
        self.model = task.model()
        self.optimizer = task.optimizer(self.model)
        self.generator = torch.Generator().manual_seed(seed)
        self.initial_orders = orders(self.model)
        self.best: dict[str, Tensor] = {}
        self.averaged: dict[str, Tensor] = {}
        self.parts: dict[str, Part] = {
            "model": self.model,
            "optimizer": self.optimizer,
            "batches": self.generator,
            "dropout": torch.default_generator,
            "best": self.best,
            "averaged": self.averaged,
        }
        self._restart_average()
        self.state: dict[str, Any] = {
            "stage": "first",
            "epoch": 0,
            "waited": 0,  # epochs since the best one, or since the learning rate was halved
            "halved": 0,
            "choice": None,  # the best epoch, and its validation metrics
            "chosen": None,  # the metrics of all splits there
            "curve": [],
        }
        self.state |= job.load(self.parts, self._check) or {}
        ours = self.data.checksum, self.state
        if ranks.from_rank_0(ours) != ours:
            raise ValueError(
                f"{job.checkpoint} or the data differs from that of rank 0: "
                "all ranks need the same files"
            )
        self.trained = ranks.data_parallel(self.model)

    def run(self) -> dict[str, Any]:
        """Train to the end, and return the outcome."""
        diverged, state = {}, self.state
        try:
            while state["stage"] == "first":
                done = state["epoch"] >= self.config.epochs
                if done or state["halved"] > self.task.halvings:
                    self.choose()
                else:
                    self.first_stage_epoch()
            while state["stage"] == "last":
                self.last_stage_epoch()
        except NotFiniteError as error:
            diverged = {"diverged": str(error)}
        outcome = self.task.outcome(self)  # may be the last evaluation, so before the model is kept
        if self.config.test and not diverged:
            about = {"shape": self.data.shape, "classes": self.data.classes}
            self.job.save_model(self.model, about)
        return diverged | outcome

    def first_stage_epoch(self) -> None:
        """An epoch on the training set, then its validation."""
        task, state = self.task, self.state
        loss = self.epoch([self.data.train])
        valid = self.evaluate(self.data.valid)
        state["waited"] += 1
        if not task.keep_best or self._is_best(valid):
            state |= {"choice": {"epoch": state["epoch"], **valid}, "waited": 0}
            self.best.clear()
            weights = self.model.state_dict() | self.averaged
            self.best |= {name: t.clone() for name, t in weights.items()}
        self._add_row("first", loss, valid)
        if task.patience is not None and state["waited"] >= task.patience:
            state |= {"waited": 0, "halved": state["halved"] + 1}
            self._return_to_best()
            self._restart_average()
        self._report("first", loss, valid)

    def choose(self) -> None:
        """Return to the best weights, and evaluate them."""
        self._return_to_best()
        splits = {"train": self.data.train, "valid": self.data.valid}
        if self.config.test:
            splits["test"] = self.data.test
        self.state["chosen"] = {name: self.evaluate(split) for name, split in splits.items()}
        self.state["stage"] = "last" if self.task.last_epochs else "done"
        self.state["epoch"] = 0
        self.optimizer.state.clear()  # the momentum was that of other weights
        self.job.save(self.parts, self.state)

    def last_stage_epoch(self) -> None:
        """An epoch on training and validation set together."""
        loss = self.epoch([self.data.train, self.data.valid])
        seen = self.evaluate(self.data.valid)
        matched = seen["nll"] <= self.state["chosen"]["train"]["nll"]
        if matched or self.state["epoch"] >= self.task.last_epochs:
            self.state["stage"] = "done"
            self.model.load_state_dict(self.averaged, strict=False)
            self.averaged.clear()
        self._add_row("last", loss, seen)
        self._report("last", loss, seen)

    def epoch(self, splits: Sequence[Split[Any]]) -> float:
        """One pass over the splits in random order; returns the mean loss."""
        state = self.state
        self.model.train()
        ranks.seed_dropout(self.seed, state["stage"], state["epoch"])
        batches = self.task.gradients(self.trained, splits, self.generator)
        with matmul_precision(self.config.matmul):
            loss = self.updates(batches)
        state["epoch"] += 1
        return loss

    def updates(self, batches: Iterator[Batch]) -> float:
        """An update for each batch; returns the mean loss."""
        state, total, seen = self.state, 0.0, 0
        for number, (loss, size, done) in enumerate(batches, start=1):
            if not math.isfinite(loss):
                raise NotFiniteError(
                    f"the loss was {loss} in epoch {state['epoch'] + 1}, batch {number} "
                    f"of the {state['stage']} stage"
                )
            self.set_rates(state["epoch"] + done)
            self.optimizer.step()
            self.optimizer.zero_grad()
            if self.config.average:
                update_average(self.averaged, self.model, self.config.average)
            total += loss
            seen += size
        return total / seen

    def set_rates(self, epochs: float) -> None:
        """The learning rate, and whatever else changes with time, of the next update."""
        rates = self.task.rates(self.state["stage"], epochs, self.state["halved"])
        for group in self.optimizer.param_groups:
            group |= rates | {"lr": rates["lr"] * group["scale"]}

    @torch.no_grad()
    def evaluate(self, split: Split[Any]) -> Metrics:
        """The metrics of the averaged weights, or of the model's, on a split."""
        self.model.eval()
        # If there is no average, nothing is replaced.
        model = partial(functional_call, self.model, self.averaged)
        metrics = self.task.evaluate(model, split)
        if not math.isfinite(metrics["nll"]):
            raise NotFiniteError(
                f"the loss of evaluation was {metrics['nll']} "
                f"after epoch {self.state['epoch']} of training"
            )
        return metrics

    def order_changes(self) -> list[dict[str, Any]]:
        """The orders of every layer, at the start and now, as a record keeps them."""
        return [
            {"layer": name, "initial": rounded(self.initial_orders[name]), "final": rounded(p)}
            for name, p in orders(self.model).items()
        ]

    def _check(self, state: dict[str, Any]) -> None:
        """Raise an error unless this run can resume from a state, and from the parts restored."""
        last = self.task.last_epochs
        most = {"first": self.config.epochs, "last": last, "done": last}
        stage, epoch, choice = state["stage"], state["epoch"], state["choice"]
        counts = [epoch, state["waited"], state["halved"]]
        if (
            state.keys() != self.state.keys()
            or any(type(count) is not int or count < 0 for count in counts)
            or epoch > most.get(stage, -1)
            or (stage == "first" and [r["epoch"] for r in state["curve"]] != [*range(1, epoch + 1)])
            or isinstance(state["chosen"], dict) != (stage != "first")
            or not all(isinstance(choice[name], float) for name in self.task.compared)
        ):
            raise ValueError(f"no run can be at epoch {epoch!r} of stage {stage!r} in this way")
        shapes = {name: t.shape for name, t in self.model.state_dict().items()}
        for name, tensor in [*self.best.items(), *self.averaged.items()]:
            if tensor.shape != shapes[name]:
                raise ValueError(f"{name} has the shape {tuple(tensor.shape)}")
        if self.best.keys() != shapes.keys():
            raise ValueError("the best weights are not those of this network")

    def _is_best(self, metrics: Metrics) -> bool:
        best, names = self.state["choice"], self.task.compared
        return best is None or [metrics[n] for n in names] < [best[n] for n in names]

    def _return_to_best(self) -> None:
        self.model.load_state_dict(self.best)
        self.averaged.clear()

    def _restart_average(self) -> None:
        if self.config.average and self.task.average_start:
            update_average(self.averaged, self.model, self.config.average)

    def _add_row(self, stage: str, loss: float, valid: Metrics) -> None:
        """The epoch becomes a row of the curve."""
        metrics = {f"valid_{name}": value for name, value in valid.items()}
        row = {"stage": stage, "epoch": self.state["epoch"], "loss": loss, **metrics}
        if now := finite_orders(self.model):
            p = torch.cat(list(now.values())).double()
            row |= {"order_mean": p.mean().item(), "order_std": p.std(correction=0).item()}
        self.state["curve"].append(self.task.row(row))

    def _report(self, stage: str, loss: float, valid: Metrics) -> None:
        """Write a checkpoint and show the progress."""
        self.job.save(self.parts, self.state)
        name, watched = self.task.compared[0], self.config.watched
        values = {"loss": loss, watched: valid[name], "best": self.state["choice"][name]}
        epochs = self.config.epochs if stage == "first" else self.task.last_epochs
        self.job.epoch(self.state["epoch"], epochs, values, finite_orders(self.model))


@torch.no_grad()
def update_average(averages: dict[str, Tensor], model: nn.Module, keep: float) -> None:
    """Move running means of weights and of batch statistics towards a model; if empty, begin there.

    (``swa_utils.AveragedModel`` averages all buffers or none. An order that is fixed at infinity is
    a buffer, too, and would become NaN.)
    """
    now: dict[str, Tensor] = dict(model.named_parameters())
    now |= {name: t for name, t in model.named_buffers() if ".running_" in name}
    if not averages:
        averages |= {name: t.clone() for name, t in now.items()}
    get_ema_multi_avg_fn(keep)([averages[name] for name in now], list(now.values()), 0)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Matrix products of float32 tensors with one of :data:`PRECISIONS`."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def finite_orders(model: nn.Module) -> dict[str, Tensor]:
    """The orders of the layers in which all are finite: those that can be averaged and drawn."""
    return {name: p for name, p in orders(model).items() if p.isfinite().all()}


def rounded(values: Tensor) -> list[float | str]:
    """Six digits of each value; JSON has no infinity."""
    return [float(f"{v:.6g}") if math.isfinite(v) else str(v) for v in values.tolist()]
