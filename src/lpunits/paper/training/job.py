"""What a running trial can use: checkpoints, progress, curves, and a file for its model.

state = job.load(parts)              # None: start; otherwise resume after state["epoch"]
...
job.epoch(epoch, epochs, {"loss": 0.1, "valid_error": 0.02}, {"layer1": layer.order})
job.save(parts, {"epoch": epoch})    # once an epoch
...
job.save_model(model, {"classes": 10})     # the trained weights and facts, with a checksum
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lpunits import sealed
from lpunits.files import remove_leftovers
from lpunits.paper.training import ranks
from lpunits.paper.training.checkpoint import Part, State, restore, save
from lpunits.sealed import DamagedError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def numbers(values: Mapping[str, float]) -> str:
    """Names and values in one line.

    >>> numbers({"test_error": 0.0121, "learned_order": 3.44321, "steps": 12345})
    'test error 1.21%, learned order 3.443, steps 12345'
    """

    def text(name: str, value: float) -> str:
        if isinstance(value, int):
            return str(value)
        return f"{value:.2%}" if name.endswith("error") else f"{value:.4g}"

    return ", ".join(f"{name.replace('_', ' ')} {text(name, v)}" for name, v in values.items())


@dataclass(frozen=True)
class Progress:
    """How far a trial is: for the progress bar, and for a search that may stop it."""

    done: int
    total: int
    text: str
    values: Mapping[str, float] = field(default_factory=dict)
    note: str = ""  # a sentence that should stay on the screen


@dataclass
class Job:
    """One run of a trial.

    Args:
        folder: The trial's own folder, for its checkpoint and its model.
        show: Is called with the progress; by default it is not shown.
        tensorboard: Where to write TensorBoard's event files, if at all.
        identity: Kind, config and seed of the trial. A checkpoint of another trial is not used.
        writes: Whether this process shows and writes anything; of several ranks, rank 0 does.
    """

    folder: Path
    show: Callable[[Progress], None] = lambda progress: None
    tensorboard: Path | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)
    writes: bool = field(default_factory=lambda: ranks.rank() == 0)
    seconds_before: float = 0.0  # in interrupted processes, up to their last checkpoint

    def __post_init__(self) -> None:
        self._start = time.perf_counter()
        self._writer: SummaryWriter | None = None

    @property
    def checkpoint(self) -> Path:
        """The file of the checkpoint."""
        return self.folder / "checkpoint.safetensors"

    @property
    def model(self) -> Path:
        """The file of the trained model."""
        return self.folder / "model.safetensors"

    @property
    def seconds(self) -> float:
        """How long the trial has been running, in all processes that worked on it."""
        return self.seconds_before + time.perf_counter() - self._start

    def load(
        self, parts: Mapping[str, Part], check: Callable[[State], None] = lambda state: None
    ) -> State | None:
        """Restore the parts from the last checkpoint and return its state; None: there is none.

        A checkpoint that is damaged, or whose state ``check`` refuses, is kept under another name.
        """

        def check_all(state: State) -> None:
            seconds = state.pop("seconds")
            if type(seconds) is not float or not 0 <= seconds < math.inf:
                raise ValueError(f"it has run for {seconds!r} seconds")
            check(state)
            self.seconds_before = seconds

        try:
            return restore(self.checkpoint, parts, dict(self.identity), check_all)
        except DamagedError as error:
            aside = self.checkpoint.with_suffix(".damaged")
            if self.writes:
                os.replace(self.checkpoint, aside)
            sentence = f"{error}; it is kept as {aside.name}, and the trial starts over"
            self.show(Progress(0, 1, "", note=sentence))
            return None

    def save(self, parts: Mapping[str, Part], state: Mapping[str, Any]) -> None:
        """Write a checkpoint, from which an interrupted run resumes bit by bit."""
        if self.writes:
            save(self.checkpoint, parts, {**state, "seconds": self.seconds}, dict(self.identity))

    def epoch(
        self,
        done: int,
        total: int,
        values: Mapping[str, float],
        orders: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Show the progress; write curves and histograms of orders if TensorBoard is used."""
        if not self.writes:
            return
        text = numbers(values)
        if orders:
            p = torch.cat([values.detach().flatten() for values in orders.values()])
            text += f", p {p.mean():.3g} ({p.min():.3g}..{p.max():.3g})"
        self.show(Progress(done, total, text, dict(values)))
        if self.tensorboard is None:
            return
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # Drops what an interrupted run wrote after its last checkpoint.
            self._writer = SummaryWriter(str(self.tensorboard), purge_step=done)
        for name, value in values.items():
            self._writer.add_scalar(name, value, done)
        for name, tensor in (orders or {}).items():
            self._writer.add_histogram(f"orders/{name}", tensor.detach(), done)
        self._writer.flush()

    def save_model(self, model: nn.Module, about: Mapping[str, Any]) -> None:
        """Write the trained weights, the trial's identity and facts; ``load_model`` reads them."""
        if self.writes:
            sealed.write(self.model, model.state_dict(), {**self.identity, **about})

    def close(self) -> None:
        """Remove the checkpoint: the trial has its record."""
        if not self.writes:
            return
        if self._writer is not None:
            self._writer.close()
        self.checkpoint.unlink(missing_ok=True)
        remove_leftovers(self.folder)
        with suppress(OSError):  # it is not there, or holds a model
            self.folder.rmdir()
