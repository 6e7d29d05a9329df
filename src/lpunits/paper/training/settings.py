"""``--set field=value``: the same trials with another value in a field of their configs."""

import ast
import dataclasses
import difflib
import types
from collections.abc import Sequence
from typing import Any, Union, get_args, get_origin, get_type_hints

from lpunits.paper.training.trial import Trial


def changed(trials: Sequence[Trial], settings: Sequence[str]) -> list[Trial]:
    """The trials with the fields changed; a trial whose config has no such field stays as it is.

    >>> from lpunits.paper.experiments.toy import Toy
    >>> changed([Trial(Toy(4.0), 0)], ["starts=2"])[0].config.starts
    2
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
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = (
                f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(known))}"
            )
            raise ValueError(f"--set: no trial has a field {name!r}: {hint}")
    return [_changed(trial, pairs) for trial in trials]


def _changed(trial: Trial, pairs: Sequence[tuple[str, str]]) -> Trial:
    hints = get_type_hints(type(trial.config))
    values = {name: _parsed(name, text, hints[name]) for name, text in pairs if name in hints}
    return dataclasses.replace(trial, config=dataclasses.replace(trial.config, **values))


def _parsed(name: str, text: str, hint: Any) -> Any:
    """The value of a text, if it is one of the field's type."""
    value: Any
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = {"inf": float("inf"), "true": True, "false": False}.get(text, text)
    if _fits(text, hint) and not _fits(value, hint):
        value = text  # a word, or a number that is meant as one
    if not _fits(value, hint):
        expected = hint.__name__ if isinstance(hint, type) else str(hint)
        raise ValueError(f"--set {name} must be {expected}, got {text!r}")
    return float(value) if hint is float else value


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the type of a field."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if arguments[-1] is Ellipsis:
            return all(_fits(one, arguments[0]) for one in value)
        return len(value) == len(arguments) and all(map(_fits, value, arguments))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)
