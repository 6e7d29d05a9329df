"""Search spaces: for each experiment, the range of each value that is searched.

The names of the ranges are those of the config's fields; any other field keeps the value of
``base``. ``lr`` is the learning rate of the weights; those of orders and centres are multiples of
it. ``units`` is the size of every hidden layer.

>>> space = get("mnist", "paper", ["activation=maxout", "dropout=0.5"])
>>> space.base.activation, space.base.dropout, "dropout" in space.ranges
('maxout', 0.5, False)
>>> space.ranges["filters"]
Choice(options=(2, 3, 4, 5, 6))
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from lpunits.paper.register import hint
from lpunits.paper.training.music import CELLS, Music
from lpunits.paper.training.networks import FeedForward
from lpunits.paper.training.recipes import (
    COVERTYPE_START,
    MUSIC_BRIEF,
    MUSIC_PLAIN,
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


Ranges = Mapping[str, Real | Choice]


@dataclass(frozen=True)
class Space:
    """A config, and the range of each of its values that is searched."""

    base: Any
    ranges: Ranges

    def config(self, values: Mapping[str, Any]) -> Any:
        """The config with these values, one for each range."""
        values = dict(values)
        if isinstance(self.base, FeedForward) and (units := values.pop("units", None)):
            values["hidden"] = (units,) * len(self.base.hidden)
        return replace(self.base, **values)

    def having(self, **ranges: Real | Choice) -> Self:
        """The space with these ranges, in place of those that it has."""
        return replace(self, ranges={**self.ranges, **ranges})

    def without(self, *names: str) -> Self:
        """The space without these ranges, and without those that then have no effect."""
        base, gone = self.base, set(names)
        units = base.model if isinstance(base, Music) else base.activation
        if units != "lp":
            gone |= {"order", "order_scale"}
        if isinstance(base, Music):
            if units in CELLS:
                gone |= {"dropout"}  # of the transition; they have output_dropout alone
        else:
            if not base.learn_order:
                gone |= {"order_scale"}
            if units not in ("lp", "l2"):
                gone |= {"center_scale"}
            if "hidden" in gone:
                gone |= {"units"}
        return replace(self, ranges={n: r for n, r in self.ranges.items() if n not in gone})


def fingerprint(space: Space) -> str:
    """Identifies base and ranges. A new field of the config with its default changes nothing."""
    return f"{Trial(space.base, 0).key}: {space.ranges}"


def get(name: str, scale: Scale = "quick", settings: Sequence[str] = ()) -> Space:
    """The space of an experiment at a scale, with a fixed value for each ``field=value``."""
    if name not in SPACES:
        raise ValueError(f"there is no search for {name!r}: {hint(name, SPACES)}")
    space = SPACES[name](scale)
    (trial,) = with_settings([Trial(space.base, 0)], settings)
    fixed = (setting.partition("=")[0].strip() for setting in settings)
    return replace(space, base=trial.config).without(*fixed)


# The ranges of the paper's authors for MNIST, as far as they are known.
FEED_FORWARD: Ranges = {
    "units": Choice((200, 240, 320, 360, 420, 480)),
    "filters": Choice((2, 3, 4, 5, 6)),
    "order": Real(1.5, 4.0),
    "lr": Real(0.005, 1.2, log=True),
    "decay": Choice(("linear", "exponential", "cosine")),
    "final_lr": Real(1e-3, 0.1, log=True),
    "momentum": Real(0.3, 0.6),
    "final_momentum": Real(0.6, 0.9),
    "order_scale": Real(0.5, 50.0, log=True),
    "center_scale": Real(0.02, 1.0),
    "max_norm": Choice((1.84, 1.94, 2.14, 2.24, 2.35)),
    "input_dropout": Choice((0.0, 0.1, 0.2)),
    "dropout": Real(0.0, 0.5),
    "weight_decay": Real(1e-6, 8e-4, log=True),
}
SCHEDULE = ("decay", "final_lr", "momentum", "final_momentum", "max_norm")
# Around the sizes of the companion paper on deep recurrent networks.
MUSIC: Ranges = {
    "hidden": Choice((100, 200, 300, 400)),
    "units": Choice((100, 200, 300, 400)),
    "output_units": Choice((100, 200, 300, 400)),
    "filters": Choice((2, 3, 4)),
    "order": Real(1.5, 4.0),
    "lr": Real(3e-4, 1e-2, log=True),
    "order_scale": Real(0.5, 50.0, log=True),
    "dropout": Real(0.0, 0.4),
    "output_dropout": Real(0.0, 0.6),
    "weight_decay": Real(1e-2, 1.0, log=True),  # AdamW's
    "batch": Choice((4, 8, 16)),
}


def _mnist(scale: Scale) -> Space:
    return _sized(Space(table2_mnist(scale), FEED_FORWARD), scale)


def _modern(scale: Scale) -> Space:
    space = Space(modern(scale), FEED_FORWARD).without(*SCHEDULE)
    space = space.having(
        units=Choice((240, 320, 400, 480)),
        filters=Choice((2, 3, 4, 5)),
        lr=Real(1e-3, 1e-2, log=True),
        input_dropout=Choice((0.1, 0.2, 0.3, 0.4)),
        dropout=Real(0.3, 0.6),
        weight_decay=Real(1e-3, 0.5, log=True),
        label_smoothing=Choice((0.0, 0.1, 0.2)),
    )
    return _sized(space, scale)


def _pentomino(scale: Scale) -> Space:
    space = _wide(table1(scale)[-1]).without("input_dropout")
    # 4096 mostly empty pixels need small initial weights and lower learning rates. Weight decay
    # keeps the network from memorising its images.
    if scale == "paper":
        space = _brief(space).without("dropout")
        return space.having(lr=Real(0.02, 1.0, log=True), weight_decay=Real(3e-4, 1e-2, log=True))
    space = space.having(lr=Real(0.005, 1.0, log=True), momentum=Real(0.3, 0.9))
    return _sized(space.having(weight_decay=Real(1e-5, 1e-2, log=True)), scale)


def _fer2013(scale: Scale) -> Space:
    if scale == "paper":
        space = _brief(_wide(table1(scale)[1]))
        return space.having(lr=Real(0.01, 0.3, log=True), weight_decay=Real(1e-4, 5e-3, log=True))
    return _sized(_wide(table1(scale)[0]), scale)


def _covertype(scale: Scale) -> Space:
    if scale == "paper":
        # 16 inputs are too few for input dropout. Half a million rows need no regularisation by
        # dropout or label smoothing.
        space = replace(_brief(_modern(scale)), base=COVERTYPE_START)
        space = space.without("input_dropout", "dropout", "label_smoothing")
        return space.having(units=Choice((150, 200, 250, 300, 350)))
    return _sized(Space(replace(table2_mnist(scale), hidden=(16, 16, 16)), FEED_FORWARD), scale)


def _brief(space: Space) -> Space:
    """For a dozen trials: learning rate, regularisation and orders; the recipe's schedule."""
    return space.without(*SCHEDULE, "center_scale")


def _music(name: str, scale: Scale) -> Space:
    if scale == "paper":
        # JSB keeps the base with which its search was started, so that its results stay valid.
        return Space((MUSIC_BRIEF if name == "jsb" else MUSIC_PLAIN)[name], MUSIC)
    sizes = Choice((8, 12, 16) if scale == "smoke" else (32, 48, 64))
    batch = Choice((20, 40) if scale == "smoke" else (4, 8, 16))
    space = Space(music(scale), MUSIC)
    return space.having(hidden=sizes, units=sizes, output_units=sizes, batch=batch)


def _wide(base: FeedForward) -> Space:
    """One layer: the authors searched more filters and more units here."""
    return Space(base, FEED_FORWARD).having(
        units=Choice((160, 240, 320, 400, 480, 560, 640)),
        filters=Choice((2, 3, 4, 5, 6, 8, 10, 12, 14)),
        input_dropout=Choice((0.0, 0.2)),
    )


def _sized(space: Space, scale: Scale) -> Space:
    """Embedded or generated data need networks that train in seconds."""
    if scale == "smoke":
        return space.having(units=Choice((8, 12, 16)), filters=Choice((2, 3)))
    if scale == "quick":
        return space.having(units=Choice((32, 48, 64, 96)), filters=Choice((2, 3, 4, 5, 6)))
    return space


SPACES: dict[str, Callable[[Scale], Space]] = {
    "mnist": _mnist,
    "modern": _modern,
    "pentomino": _pentomino,
    "fer2013": _fer2013,
    "covertype": _covertype,
    **{name: partial(_music, name) for name in ("nottingham", "jsb", "musedata")},
}
