"""Polyphonic music: predict every frame of a piano roll from those before it.

The first frame is predicted from a frame of silence and the zero state. Training is truncated
backpropagation through time: windows of a piece follow one another, and each starts from the state
in which the previous one ended.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.optim import Optimizer

from lpunits import DOTRNN, param_groups
from lpunits.paper.data import DataError, Dataset, Split, info, load
from lpunits.paper.training.gru import GRU
from lpunits.paper.training.job import Job
from lpunits.paper.training.likelihood import KEYS, delayed, music_nll
from lpunits.paper.training.loop import PRECISIONS, Batch, Loop, Metrics
from lpunits.paper.training.trial import check_at_least, check_below_one, check_choice
from lpunits.start import STARTS
from lpunits.units import ACTIVATIONS, ELEMENTWISE

EXCERPT = 64  # steps of a piece of the test set that a record keeps, for a picture


class LSTM(nn.LSTM):
    """A :class:`torch.nn.LSTM` whose state is one tensor, output and cell side by side."""

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:  # type: ignore[override]
        """The outputs of all steps, and the last state of each sequence."""
        before = None
        if hx is not None:
            h, c = hx.chunk(2, -1)
            before = h.contiguous(), c.contiguous()
        out, last = super().forward(input, before)
        return out, torch.cat(last, -1)


# torch's recurrent layers, and how many gates each has.
CELLS: dict[str, tuple[int, type[nn.RNN | GRU | LSTM]]] = {
    "rnn": (1, nn.RNN),
    "gru": (3, GRU),
    "lstm": (4, LSTM),
}


class Recurrent(nn.Module):
    """A shallow network for comparison: a layer of torch, dropout, logistic outputs."""

    def __init__(self, cell: type[nn.RNN | GRU | LSTM], hidden: int, dropout: float) -> None:
        super().__init__()
        self.rnn = cell(KEYS, hidden)
        self.output = nn.Sequential(nn.Dropout(dropout), nn.Linear(hidden, KEYS))

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """The logits of all steps, and the last state of each sequence."""
        states, last = self.rnn(input, hx)
        if isinstance(states, PackedSequence):
            return states._replace(data=self.output(states.data)), last
        return self.output(states), last

    def step(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step, (batch, 88) to logits."""
        logits, last = self(input.unsqueeze(0), hx)
        return logits[0], last


@dataclass(frozen=True)
class Music:
    """A network, a collection of music, and the training.

    Args:
        data: The dataset, or the absolute path of piano rolls.
        checksum: The first digits of the music's checksum, for a path: other content is another
            trial.
        model: The units of the DOT-RNN's transition, or ``rnn``, ``gru`` or ``lstm``: torch's, with
            as many weights.
        hidden: Size of the state.
        units: Units of the transition; elementwise units get as many as make the same weights.
        filters: Projections per unit.
        output_units: Units of the deep output: maxout, or sigmoid for a sigmoid transition.
        output_filters: Projections per unit of the output.
        order: Where the orders start.
        shortcut: Whether the previous state also joins the next one past the transition's units, as
            in the DOT(S)-RNN.
        dropout: On the intermediate layers.
        output_dropout: On the intermediate layer of the output, if different.
        dropout_per: One mask per step or per sequence.
        batch: Pieces at a time.
        window: Steps of truncated backpropagation; 0: whole pieces.
        optimizer: ``adam``, or ``sgd`` with momentum.
        lr: The learning rate.
        order_scale: The factor of the orders' rate.
        momentum: Of ``sgd``.
        clip: The largest norm of the gradient; 0: no limit.
        weight_decay: Of the weights, not of orders and centres; with ``adam`` decoupled, as in
            AdamW.
        epochs: The most epochs.
        patience: Epochs without a better validation after which the learning rate is halved.
        halvings: Training ends when the rate would be halved once more.
        decay: ``halving``, as above, or ``cosine``: the rate falls to 0 over all epochs.
        average: How much of the running mean of the weights an update keeps, which is then what is
            validated, chosen and tested; 0: there is no mean.
        matmul: How exact matrix products have to be in training, highest, high or medium, as in
            :func:`torch.set_float32_matmul_precision`.
        transpose: Augmentation, not in the paper: in every epoch each piece is transposed by up to
            so many semitones, up or down.
        start: How the DOT-RNN starts: zero, as in the paper, or spread, the default of the layers.
        test: Evaluate on the test set and keep the model; the trials of a search do neither.
    """

    data: str
    checksum: str = ""
    model: str = "lp"
    hidden: int = 400
    units: int = 400
    filters: int = 2
    output_units: int = 400
    output_filters: int = 2
    order: float = 3.0
    shortcut: bool = False
    dropout: float = 0.5
    output_dropout: float | None = None
    dropout_per: str = "step"
    batch: int = 16
    window: int = 0
    optimizer: str = "adam"
    lr: float = 1e-3
    order_scale: float = 5.0
    momentum: float = 0.9
    clip: float = 1.0
    weight_decay: float = 0.0
    epochs: int = 200
    patience: int = 5
    halvings: int = 4
    decay: str = "halving"
    average: float = 0.0
    matmul: str = "highest"
    transpose: int = 0
    start: str = "zero"
    test: bool = True

    watched = "valid_nll"  # what a search compares after every epoch

    def __post_init__(self) -> None:
        info(self.data)  # raises for an unknown name
        check_choice(
            self,
            model=(*ACTIVATIONS, *CELLS),
            optimizer=("adam", "sgd"),
            dropout_per=("step", "sequence"),
            decay=("halving", "cosine"),
            start=STARTS,
            matmul=PRECISIONS,
        )
        check_at_least(self, 1, "batch", "epochs", "patience")
        check_at_least(self, 0, "window")
        check_below_one(self, "average")
        if not 0 <= self.transpose < KEYS:
            raise ValueError(f"transpose must be from 0 to {KEYS - 1}, got {self.transpose}")

    @property
    def label(self) -> str:
        """What it is, in a few words."""
        moved = f", transposed by up to {self.transpose}" if self.transpose else ""
        clipped = f", threshold {self.clip:g}" if self.clip != Music.clip else ""
        length = f", {self.epochs} epochs" if self.decay == "cosine" else ""
        shortcut = ", shortcut" * (self.shortcut and self.model not in CELLS)
        return f"{Path(self.data).name}, {self.model}{shortcut}{moved}{clipped}{length}"

    @property
    def datasets(self) -> tuple[str, ...]:
        """The one it loads."""
        return (self.data,)

    @property
    def multiplications(self) -> int:
        """About as many as the largest product of a step has, for the number of threads."""
        return self.batch * self.hidden * self.units * self.filters

    def untested(self) -> "Music":
        """The same without the test set: a trial of a search."""
        return replace(self, test=False)

    def score(self, outcome: Mapping[str, Any], split: str = "valid") -> float:
        """What a search compares: the negative log-likelihood of a split."""
        return float(outcome["nll"][split])

    def net(self) -> nn.Module:
        """The network, with new weights."""
        if self.model in CELLS:
            weights = sum(p.numel() for p in _dotrnn(self, "lp", "meta").parameters())
            gates, cell = CELLS[self.model]
            # gates (h^2 + 88 h + 2 h) + 88 h + 88 weights
            half = (gates * (KEYS + 2) + KEYS) / (2 * gates)
            hidden = round(math.sqrt(half**2 + (weights - KEYS) / gates) - half)
            dropout = self.dropout if self.output_dropout is None else self.output_dropout
            return Recurrent(cell, hidden, dropout)
        return _dotrnn(self, self.model)

    def run(self, seed: int, job: Job) -> dict[str, Any]:
        """Train, choose the epoch by validation, and evaluate there."""
        return Loop(Prediction(self), seed, job).run()

    def rate(self, epoch: int, halved: int) -> float:
        """The factor of the learning rate after so many epochs.

        >>> Music("jsb").rate(100, halved=2), Music("jsb", decay="cosine").rate(100, halved=0)
        (0.25, 0.5)
        """
        if self.decay == "halving":
            return 0.5**halved
        return (1 + math.cos(math.pi * epoch / self.epochs)) / 2


class Prediction:
    """A config with its data, for the training loop."""

    keep_best = True
    last_epochs = 0
    compared: tuple[str, ...] = ("nll",)
    average_start = True

    def __init__(self, config: Music) -> None:
        self.config, self.halvings = config, config.halvings
        self.patience = config.patience if config.decay == "halving" else None
        self.data: Dataset[list[Tensor]] = load(config.data)
        if not self.data.checksum.startswith(config.checksum):
            raise DataError(f"{config.data}: other music than when the trial was planned")

    def model(self) -> nn.Module:
        """The network, whose outputs start with how often each key sounds."""
        net = self.config.net()
        frames = torch.cat(self.data.train.features)
        often = (frames.sum(0) + 1) / (len(frames) + 2)  # no key counts as impossible
        with torch.no_grad():
            net.output[-1].bias.copy_(often.logit())  # type: ignore[index, union-attr]
        return net

    def optimizer(self, model: nn.Module) -> Optimizer:
        """AdamW, which without weight decay is Adam; or torch's SGD."""
        config = self.config
        scales = {"order_scale": config.order_scale, "weight_decay": config.weight_decay}
        groups = param_groups(model, config.lr, **scales)
        for group in groups:
            group["scale"] = group["lr"]
            if group["name"] == "biases":  # which the recorded trials decayed, like the weights
                group["weight_decay"] = config.weight_decay
        if config.optimizer == "adam":
            return torch.optim.AdamW(groups, fused=True)
        return torch.optim.SGD(groups, momentum=config.momentum)

    def rates(self, stage: str, epochs: float, halved: int) -> dict[str, float]:
        """The factor of the learning rate."""
        return {"lr": self.config.rate(int(epochs), halved)}

    def gradients(
        self, model: nn.Module, splits: Sequence[Split[list[Tensor]]], generator: torch.Generator
    ) -> Iterator[Batch]:
        """Window after window of batch after batch, with the gradients in the parameters."""
        parameters = [p for p in model.parameters() if p.requires_grad]
        for pieces in self.batches(
            [roll for split in splits for roll in split.features], generator
        ):
            state = None
            for inputs, targets in windows(pieces, self.config.window):
                if state is not None:  # without the pieces that have ended
                    state = state[:, : len(inputs)].detach().contiguous()
                logits, state = model(pack_sequence(inputs), state)
                frames = pack_sequence(targets).data
                loss = binary_cross_entropy_with_logits(logits.data, frames, reduction="sum")
                (loss / len(frames)).backward()
                if self.config.clip:
                    clip_grad_norm_(parameters, self.config.clip)
                yield Batch(loss.item(), len(frames))

    def batches(
        self, rolls: Sequence[Tensor], generator: torch.Generator
    ) -> Iterator[list[Tensor]]:
        """All pieces in batches of about equal length, the longest of each first."""
        if self.config.transpose:
            rolls = [transposed(roll, self.config.transpose, generator) for roll in rolls]
        lengths = torch.tensor([len(roll) for roll in rolls])
        noise = 1 + 0.5 * torch.rand(len(rolls), generator=generator)
        batches = (lengths * noise).argsort().split(self.config.batch)
        for index in torch.randperm(len(batches), generator=generator).tolist():
            pieces = [rolls[i] for i in batches[index].tolist()]
            yield sorted(pieces, key=len, reverse=True)

    def evaluate(self, model: Callable[[Tensor], Any], split: Split[list[Tensor]]) -> Metrics:
        """The negative log-likelihoods of a split."""
        pooled, per_piece = music_nll(model, split.features)
        return {"nll": pooled, "nll_per_piece": per_piece}

    def row(self, values: dict[str, Any]) -> dict[str, Any]:
        """Loss and validation of an epoch, to four digits."""
        losses = {name: round(values[name], 4) for name in ("loss", "valid_nll")}
        return {"epoch": values["epoch"], **losses}

    def outcome(self, loop: Loop) -> dict[str, Any]:
        """The negative log-likelihoods of the chosen weights, the orders and the curve."""
        state = loop.state
        outcome: dict[str, Any] = {"curve": state["curve"]}
        if state["chosen"] is None:  # the loss was not finite
            return outcome
        for name in ("nll", "nll_per_piece"):
            outcome[name] = {split: metrics[name] for split, metrics in state["chosen"].items()}
        outcome["epoch"] = state["choice"]["epoch"]
        outcome["weights"] = sum(p.numel() for p in loop.model.parameters())
        if found := loop.order_changes():
            outcome["orders"] = found
            if self.config.test:
                outcome["excerpt"] = excerpt(loop.model, self.data.test.features[0][:EXCERPT])
        return outcome


def _dotrnn(config: Music, kind: str, device: str | None = None) -> DOTRNN:
    """The DOT-RNN. Elementwise units have one filter, and as many units as make equal weights."""
    width, units, filters = config.hidden, config.units, config.filters
    output, output_filters = config.output_units, config.output_filters
    if kind in ELEMENTWISE:
        units, filters = round(units * (filters * (width + KEYS) + width) / (2 * width + KEYS)), 1
    if kind == "sigmoid":
        output = round(output * (output_filters * width + KEYS) / (width + KEYS))
        output_filters = 1
    return DOTRNN(
        KEYS,
        config.hidden,
        KEYS,
        units,
        filters,
        output,
        output_filters,
        activation=kind,
        output_activation="sigmoid" if kind == "sigmoid" else "maxout",
        order=config.order,
        shortcut=config.shortcut,
        dropout=config.dropout,
        output_dropout=config.output_dropout,
        dropout_per=config.dropout_per,
        start=config.start,
        device=device,
    )


def windows(pieces: Sequence[Tensor], steps: int) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """Inputs and targets of one window after another, of the pieces that are long enough.

    The pieces are sorted by length, the longest first: those that continue are the first ones.

    >>> pieces = [torch.zeros(5, 88), torch.zeros(3, 88)]
    >>> [[len(x) for x in inputs] for inputs, _ in windows(pieces, 2)]
    [[2, 2], [2, 1], [1]]
    """
    steps = steps or len(pieces[0])
    inputs = [delayed(roll) for roll in pieces]
    for start in range(0, len(pieces[0]), steps):
        running = [i for i, roll in enumerate(pieces) if len(roll) > start]
        part = slice(start, start + steps)
        yield [inputs[i][part] for i in running], [pieces[i][part] for i in running]


def transposed(roll: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """The piece transposed by up to ``most`` semitones up or down, within the keyboard.

    >>> low = torch.eye(88)[[0, 2]]
    >>> moved = transposed(low, 6, torch.Generator().manual_seed(1))
    >>> moved.sum(), moved.argmax(1).diff()
    (tensor(2.), tensor([2]))
    """
    keys = roll.any(0).nonzero()
    if not len(keys):
        return roll
    low, high = int(keys[0]), int(keys[-1])
    down, up = min(most, low), min(most, KEYS - 1 - high)
    shift = int(torch.randint(-down, up + 1, (), generator=generator))
    return roll.roll(shift, 1)


def excerpt(net: nn.Module, roll: Tensor) -> dict[str, list[str]]:
    """Truth and predicted probability of a piece, two hexadecimal digits for each key."""
    net.eval()
    with torch.no_grad():
        probability = net(delayed(roll))[0].sigmoid()
    return {
        name: [bytes(row).hex() for row in (255 * t).round().to(torch.uint8).tolist()]
        for name, t in (("truth", roll), ("probability", probability))
    }
