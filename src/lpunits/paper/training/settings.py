"""``--set field=value``: the same trials with another value in a field of their configs."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, get_origin, get_type_hints

import cyclopts

from lpunits.paper.register import hint
from lpunits.paper.training.trial import Trial


def with_settings(trials: Sequence[Trial], settings: Sequence[str]) -> list[Trial]:
    """The trials with these settings. A trial whose config has no such field stays as it is.

    >>> from lpunits.paper.training.networks import FeedForward
    >>> (trial,) = with_settings([Trial(FeedForward("mnist"), 0)], ["hidden=64,64", "lr=1"])
    >>> trial.config.hidden, trial.config.lr
    ((64, 64), 1.0)
    """
    pairs = []
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set must be field=value, got {setting!r}")
        pairs.append((name.strip(), text.strip()))
    known = {f.name for trial in trials for f in dataclasses.fields(trial.config)}
    for name, _ in pairs:
        if trials and name not in known:
            raise ValueError(f"--set: no trial has a field {name!r}: {hint(name, sorted(known))}")
    return [_with_settings(trial, pairs) for trial in trials]


def _with_settings(trial: Trial, pairs: Sequence[tuple[str, str]]) -> Trial:
    types = get_type_hints(type(trial.config))
    values = {name: _parsed(name, text, types[name]) for name, text in pairs if name in types}
    return dataclasses.replace(trial, config=dataclasses.replace(trial.config, **values))


def _parsed(name: str, text: str, kind: Any) -> Any:
    """The value of a field. A tuple may be written as in Python: ``(64, 64)``, ``64,``."""
    tokens = re.findall(r"[^\s,()'\"]+", text) if get_origin(kind) is tuple else [text]
    try:
        return cyclopts.convert(kind, tokens, _convert)
    except (ValueError, cyclopts.CycloptsError) as error:
        expected = kind.__name__ if type(kind) is type else str(kind)
        raise ValueError(f"--set {name} must be {expected}, got {text!r}") from error


def _convert(kind: Any, token: str) -> Any:
    """As cyclopts does, but it would make 2 of 2.5."""
    return int(token) if kind is int else cyclopts.convert(kind, [token])
