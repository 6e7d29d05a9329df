"""What an experiment is made of: configs and trials.

* A **config** is a frozen dataclass with every number that an outcome depends on, except the
  seed. It has a ``label`` for people, the names of the ``datasets`` that it loads (a tuple), and
  ``run(seed, job)``, which returns the outcome: a dict of plain values (what JSON can hold; write
  infinity as ``"inf"``). If the loss stops being finite, ``run`` returns what it has with a
  sentence under ``"diverged"``; any exception becomes a record of a failed trial.
* A **trial** is a config and a seed. Its ``key`` is a hash of both: equal trials of different
  experiments share one record.
* An experiment (:mod:`lpunits.paper.report.section`) lists trials, and a **job**
  (:mod:`lpunits.paper.training.job`) is what a running one can use.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

from lpunits import arguments

Scale = Literal["smoke", "quick", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)


@dataclass(frozen=True)
class Trial:
    """A config and a seed, which determine the outcome."""

    config: Any  # each experiment has a kind of its own, and reads its fields
    seed: int

    @property
    def label(self) -> str:
        """What it is, in a few words."""
        return f"{self.config.label}, seed {self.seed}"

    @property
    def values(self) -> dict[str, Any]:
        """The config as strict JSON holds it, which has no infinity."""
        text = json.dumps(dataclasses.asdict(self.config), default=str)
        values: dict[str, Any] = json.loads(text, parse_constant=lambda name: str(float(name)))
        return values

    @cached_property
    def key(self) -> str:
        """The name of its record: the kind of trial, and a hash of config and seed.

        Fields with their default value are left out, so that a new field keeps old records valid.
        """
        default = {
            f.name: f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
            for f in dataclasses.fields(self.config)
        }
        chosen = {
            name: value
            for name, value in self.values.items()
            if getattr(self.config, name) != default[name]
        }
        kind = type(self.config).__name__
        text = json.dumps([kind, chosen, self.seed], sort_keys=True)
        return f"{kind.lower()}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class Result:
    """A trial and its record."""

    trial: Trial
    record: Mapping[str, Any] = field(repr=False)

    @property
    def config(self) -> Any:
        """The config of the trial."""
        return self.trial.config

    @property
    def outcome(self) -> dict[str, Any]:
        """What the trial's ``run`` returned."""
        outcome: dict[str, Any] = self.record["outcome"]
        return outcome


def check_choice(config: Any, **known: Collection[str]) -> None:
    """Raise ValueError if a field is none of its known values."""
    for name, choices in known.items():
        arguments.check_choice(name, getattr(config, name), choices)


def check_at_least(config: Any, low: int, *names: str) -> None:
    """Raise ValueError if a field is neither None nor a finite number from ``low`` on."""
    for name in names:
        if (value := getattr(config, name)) is not None and not low <= value < math.inf:
            raise ValueError(f"{name} must be a finite number of at least {low}, got {value}")


def check_below_one(config: Any, *names: str) -> None:
    """Raise ValueError if a field is not a number from 0 to below 1."""
    for name in names:
        if not 0 <= (value := getattr(config, name)) < 1:
            raise ValueError(f"{name} must be a number from 0 to below 1, got {value}")
