"""Checkpoints: everything that an interrupted run needs to resume, in one sealed file.

``parts`` are saved, and restored in place: modules, optimisers (state and parameter groups),
generators (dropout draws from ``torch.default_generator``) and dicts of tensors.

>>> net, state = torch.nn.Linear(2, 2), {"epoch": 3}
>>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
>>> parts = {"net": net, "optimizer": optimizer, "random": torch.Generator()}
>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "a.safetensors"
>>> save(path, parts, state); restore(path, parts)
{'epoch': 3}
>>> restore(path.with_name("b.safetensors"), parts) is None
True
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lpunits import sealed
from lpunits.sealed import DamagedError

Part = nn.Module | Optimizer | torch.Generator | dict[str, Tensor]
State = dict[str, Any]
Content = tuple[dict[str, Tensor], State]  # of a part: its tensors, and what JSON can hold


def save(
    path: Path, parts: Mapping[str, Part], state: Mapping[str, Any], identity: Any = None
) -> None:
    """Write a checkpoint of the parts, and of a state that JSON can hold.

    Args:
        path: The file.
        parts: What to save, by name.
        state: What :func:`restore` returns.
        identity: What the checkpoint belongs to, as JSON holds it.
    """
    contents = {name: _content(part) for name, part in parts.items()}
    tensors = {
        f"{name}/{key}": t for name, (found, _) in contents.items() for key, t in found.items()
    }
    plain = {name: rest for name, (_, rest) in contents.items()}
    sealed.write(path, tensors, {"parts": plain, "state": state, "of": identity})


def restore(
    path: Path,
    parts: Mapping[str, Part],
    identity: Any = None,
    check: Callable[[State], None] = lambda state: None,
) -> State | None:
    """Restore the parts as they were saved, and return the state.

    Returns None, and changes nothing, if there is no checkpoint or it belongs to something else.
    Raises DamagedError, and changes nothing, if the file is damaged, does not fit the parts, or if
    ``check``, called with the state when the parts are in place, raises an error.
    """
    if not path.exists():
        return None
    tensors, facts = sealed.read(path)
    if facts.get("of") != identity:
        return None
    before = {
        name: ({key: t.clone() for key, t in found.items()}, rest)
        for name, (found, rest) in ((name, _content(part)) for name, part in parts.items())
    }
    try:
        plain, state = facts["parts"], dict(facts["state"])
        if plain.keys() != parts.keys():
            expected, found = ", ".join(sorted(parts)), ", ".join(sorted(plain))
            raise ValueError(f"it is one of {found}, expected is one of {expected}")
        for name, part in parts.items():
            prefix = f"{name}/"
            own = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
            _place(part, own, plain[name])
        check(state)
    except Exception as error:  # a file made by hand may hold anything
        for name, part in parts.items():
            _place(part, *before[name])
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DamagedError(f"{path}: a checkpoint of another run: {reason}") from error
    return state


def _content(part: Part) -> Content:
    if isinstance(part, nn.Module):
        return part.state_dict(), {}
    if isinstance(part, torch.Generator):
        return {"state": part.get_state()}, {}
    if isinstance(part, Optimizer):
        return _of_optimizer(part)
    return dict(part), {}


def _place(part: Part, tensors: dict[str, Tensor], plain: State) -> None:
    if isinstance(part, nn.Module):
        part.load_state_dict(tensors)
    elif isinstance(part, torch.Generator):
        part.set_state(tensors["state"])
    elif isinstance(part, Optimizer):
        _to_optimizer(part, tensors, plain)
    else:
        part.clear()
        part.update(tensors)


def _of_optimizer(optimizer: Optimizer) -> Content:
    """The tensors in the state of an optimiser, named parameter/entry, and the rest."""
    state = optimizer.state_dict()
    entries = {f"{i}/{name}": v for i, of in state["state"].items() for name, v in of.items()}
    tensors = {name: value for name, value in entries.items() if isinstance(value, Tensor)}
    values = {name: value for name, value in entries.items() if name not in tensors}
    return tensors, {"values": values, "groups": state["param_groups"]}


def _to_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor], plain: State) -> None:
    options = [group.keys() for group in plain["groups"]]
    if options != [group.keys() for group in optimizer.param_groups]:
        raise ValueError("its optimizer has other options")
    state: dict[int, dict[str, Any]] = {}
    for name, value in (tensors | plain["values"]).items():
        index, entry = name.split("/", 1)
        state.setdefault(int(index), {})[entry] = value
    optimizer.load_state_dict({"state": state, "param_groups": plain["groups"]})
    for parameter, entries in optimizer.state.items():
        for entry, value in entries.items():  # with the strides of the parameter, for the same bits
            if isinstance(value, Tensor) and value.ndim:
                if value.shape != parameter.shape:
                    raise ValueError(
                        f"the {entry} of the optimizer has the shape {tuple(value.shape)}, "
                        f"expected is {tuple(parameter.shape)}"
                    )
                entries[entry] = torch.empty_like(parameter).copy_(value)
