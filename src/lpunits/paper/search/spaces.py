"""Search spaces: for each experiment, the range of each value that is searched.

A space is a frozen dataclass. Its fields have the names of the config's fields. A field holds a
range, or None: then the config keeps the value of ``base``. ``lr`` is the learning rate of the
weights; those of orders and centres are multiples of it.

>>> space = get("mnist", "paper", ["activation=maxout", "dropout=0.5"])
>>> space.base.activation, space.dropout, space.order
('maxout', None, None)
>>> space.filters
Choice(options=(2, 3, 4, 5, 6))
"""

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lpunits.paper.training.music import Music
from lpunits.paper.training.networks import FeedForward
from lpunits.paper.training.recipes import (
    MODERN_COVERTYPE,
    MUSIC_BRIEF,
    modern,
    music,
    table1,
    table2_mnist,
)
from lpunits.paper.training.settings import with_settings
from lpunits.paper.training.trial import Scale, Trial

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Real:
    """A number from ``low`` to ``high``, drawn uniformly or log-uniformly."""

    low: float
    high: float
    log: bool = False

    def suggest(self, trial: "optuna.Trial", name: str) -> float:
        """A value for a trial of a study."""
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    options: tuple[Any, ...]

    def suggest(self, trial: "optuna.Trial", name: str) -> Any:
        """A value for a trial of a study."""
        return trial.suggest_categorical(name, self.options)


Range = Real | Choice | None


@dataclass(frozen=True)
class FeedForwardSpace:
    """The ranges of the paper's authors for MNIST, as far as they are known.

    ``units`` is the size of every hidden layer.
    """

    base: FeedForward
    units: Range = Choice((200, 240, 320, 360, 420, 480))
    filters: Range = Choice((2, 3, 4, 5, 6))
    order: Range = Real(1.5, 4.0)
    lr: Range = Real(0.005, 1.2, log=True)
    decay: Range = Choice(("linear", "exponential", "cosine"))
    final_lr: Range = Real(1e-3, 0.1, log=True)
    momentum: Range = Real(0.3, 0.6)
    final_momentum: Range = Real(0.6, 0.9)
    order_scale: Range = Real(0.5, 50.0, log=True)
    center_scale: Range = Real(0.02, 1.0)
    max_norm: Range = Choice((1.84, 1.94, 2.14, 2.24, 2.35))
    input_dropout: Range = Choice((0.0, 0.1, 0.2))
    dropout: Range = Real(0.0, 0.5)
    weight_decay: Range = Real(1e-6, 8e-4, log=True)
    label_smoothing: Range = None

    def config(self, values: Mapping[str, Any]) -> FeedForward:
        """The config with these values, one for each range."""
        values = dict(values)
        if units := values.pop("units", None):
            values["hidden"] = (units,) * len(self.base.hidden)
        return replace(self.base, **values)

    def without(self, names: set[str]) -> "FeedForwardSpace":
        """The space without these fields, and without those that then have no effect."""
        unit = self.base.activation
        names = names | ({"units"} if "hidden" in names else set())
        if unit != "lp" or not self.base.learn_order:
            names |= {"order_scale"} | ({"order"} if unit != "lp" else set())
        if unit not in ("lp", "l2"):
            names |= {"center_scale"}
        return replace(self, **_no_ranges(names & set(_names(self))))


@dataclass(frozen=True)
class MusicSpace:
    """Ranges around the sizes of the companion paper on deep recurrent networks."""

    base: Music
    hidden: Range = Choice((100, 200, 300, 400))
    units: Range = Choice((100, 200, 300, 400))
    output_units: Range = Choice((100, 200, 300, 400))
    filters: Range = Choice((2, 3, 4))
    order: Range = Real(1.5, 4.0)
    lr: Range = Real(3e-4, 1e-2, log=True)
    order_scale: Range = Real(0.5, 50.0, log=True)
    dropout: Range = Real(0.0, 0.4)
    output_dropout: Range = Real(0.0, 0.6)
    weight_decay: Range = Real(1e-2, 1.0, log=True)  # AdamW's
    batch: Range = Choice((4, 8, 16))

    def config(self, values: Mapping[str, Any]) -> Music:
        """The config with these values, one for each range."""
        return replace(self.base, **values)

    def without(self, names: set[str]) -> "MusicSpace":
        """The space without these fields, and without those that then have no effect."""
        if self.base.model != "lp":
            names = names | {"order", "order_scale"}
        if self.base.model in ("rnn", "gru"):
            names = names | {"dropout"}  # of the transition; they have output_dropout alone
        return replace(self, **_no_ranges(names & set(_names(self))))


Space = FeedForwardSpace | MusicSpace


def ranges(space: Space) -> dict[str, Real | Choice]:
    """The ranges of a space by name."""
    values = ((name, getattr(space, name)) for name in _names(space))
    return {name: range for name, range in values if range is not None}


def fingerprint(space: Space) -> str:
    """Identifies base and ranges. A new field of the config with its default changes nothing."""
    return f"{Trial(space.base, 0).key}: {ranges(space)}"


def get(name: str, scale: Scale = "quick", settings: Sequence[str] = ()) -> Space:
    """The space of an experiment at a scale, with a fixed value for each ``field=value``."""
    if name not in SPACES:
        close = difflib.get_close_matches(name.lower(), SPACES, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(SPACES)}"
        raise ValueError(f"there is no search for {name!r}: {hint}")
    space = SPACES[name](scale)
    (trial,) = with_settings([Trial(space.base, 0)], settings)
    fixed = {setting.partition("=")[0].strip() for setting in settings}
    return replace(space, base=trial.config).without(fixed)


def _no_ranges(names: set[str]) -> dict[str, Any]:
    return dict.fromkeys(names)


def _names(space: Space) -> list[str]:
    return [f.name for f in dataclasses.fields(space) if f.name != "base"]


def _mnist(scale: Scale) -> Space:
    base = table2_mnist(scale)
    if scale == "paper":
        return FeedForwardSpace(base)
    return _small(FeedForwardSpace(base), scale)


def _modern(scale: Scale) -> FeedForwardSpace:
    space = FeedForwardSpace(
        modern(scale),
        units=Choice((240, 320, 400, 480)),
        filters=Choice((2, 3, 4, 5)),
        lr=Real(1e-3, 1e-2, log=True),
        decay=None,
        final_lr=None,
        momentum=None,
        final_momentum=None,
        max_norm=None,
        input_dropout=Choice((0.1, 0.2, 0.3, 0.4)),
        dropout=Real(0.3, 0.6),
        weight_decay=Real(1e-3, 0.5, log=True),
        label_smoothing=Choice((0.0, 0.1, 0.2)),
    )
    return space if scale == "paper" else _small(space, scale)


def _pentomino(scale: Scale) -> Space:
    space = replace(_wide(table1(scale)[-1]), input_dropout=None)
    # 4096 mostly empty pixels need small initial weights and lower learning rates. Weight decay
    # keeps the network from memorising its images.
    if scale == "paper":
        space = replace(_brief(space), dropout=None)
        return replace(space, lr=Real(0.02, 1.0, log=True), weight_decay=Real(3e-4, 1e-2, log=True))
    space = replace(space, lr=Real(0.005, 1.0, log=True), momentum=Real(0.3, 0.9))
    return _small(replace(space, weight_decay=Real(1e-5, 1e-2, log=True)), scale)


def _fer2013(scale: Scale) -> Space:
    if scale == "paper":
        space = _brief(_wide(table1(scale)[1]))
        return replace(space, lr=Real(0.01, 0.3, log=True), weight_decay=Real(1e-4, 5e-3, log=True))
    return _small(_wide(table1(scale)[0]), scale)


def _covertype(scale: Scale) -> Space:
    if scale == "paper":
        # 16 inputs are too few for input dropout. Half a million rows need no regularisation by
        # dropout or label smoothing.
        space = replace(_brief(_modern(scale)), base=MODERN_COVERTYPE)
        space = replace(space, input_dropout=None, dropout=None, label_smoothing=None)
        return replace(space, units=Choice((150, 200, 250, 300, 350)))
    return _small(FeedForwardSpace(replace(table2_mnist(scale), hidden=(16, 16, 16))), scale)


def _brief(space: FeedForwardSpace) -> FeedForwardSpace:
    """For a dozen trials: learning rate, regularisation and orders; the recipe's schedule."""
    kept = ("decay", "final_lr", "momentum", "final_momentum", "center_scale", "max_norm")
    return replace(space, **_no_ranges(set(kept)))


def _music(name: str, scale: Scale) -> Space:
    if scale == "paper":
        # JSB keeps the base with which its search was started, so that its results stay valid.
        return MusicSpace(MUSIC_BRIEF[name] if name == "jsb" else music(scale, name))
    base = music(scale)
    sizes = Choice((8, 12, 16) if scale == "smoke" else (32, 48, 64))
    batch = Choice((20, 40) if scale == "smoke" else (4, 8, 16))
    return MusicSpace(base, hidden=sizes, units=sizes, output_units=sizes, batch=batch)


def _wide(base: FeedForward) -> FeedForwardSpace:
    """One layer: the authors searched more filters and more units here."""
    return FeedForwardSpace(
        base,
        units=Choice((160, 240, 320, 400, 480, 560, 640)),
        filters=Choice((2, 3, 4, 5, 6, 8, 10, 12, 14)),
        input_dropout=Choice((0.0, 0.2)),
    )


def _small(space: FeedForwardSpace, scale: Scale) -> FeedForwardSpace:
    """For embedded or generated data: networks that train in seconds."""
    if scale == "smoke":
        return replace(space, units=Choice((8, 12, 16)), filters=Choice((2, 3)))
    return replace(space, units=Choice((32, 48, 64, 96)), filters=Choice((2, 3, 4, 5, 6)))


SPACES: dict[str, Callable[[Scale], Space]] = {
    "mnist": _mnist,
    "modern": _modern,
    "pentomino": _pentomino,
    "fer2013": _fer2013,
    "covertype": _covertype,
    "nottingham": lambda scale: _music("nottingham", scale),
    "jsb": lambda scale: _music("jsb", scale),
    "musedata": lambda scale: _music("musedata", scale),
}
