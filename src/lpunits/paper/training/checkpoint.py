"""Checkpoints: everything that an interrupted run needs to resume, in one file.

It is a safetensors file whose header holds the rest as JSON; nothing is ever unpickled. It is
written under another name, synced and renamed: it is complete or does not exist.

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

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.optim import Optimizer

from lpunits.paper.files import write_atomically

__all__ = ["Part", "restore", "save"]

Part = nn.Module | Optimizer | torch.Generator | dict[str, Tensor]


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
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {}
    for name, part in parts.items():
        if isinstance(part, nn.Module):
            found = part.state_dict()
        elif isinstance(part, torch.Generator):
            found = {"state": part.get_state()}
        elif isinstance(part, Optimizer):
            found, plain[name] = _of_optimizer(part)
        else:
            found = part
        # safetensors refuses tensors that share memory, as tied weights do.
        tensors |= {f"{name}/{key}": t.detach().clone().contiguous() for key, t in found.items()}
    header = {
        "json": json.dumps({"plain": plain, "facts": state, "parts": sorted(parts), "of": identity})
    }
    write_atomically(path, to_bytes(tensors, header))


def restore(path: Path, parts: Mapping[str, Part], identity: Any = None) -> dict[str, Any] | None:
    """Restore the parts as they were saved, and return the state.

    Returns None, and changes nothing, if there is no checkpoint or it belongs to something else.
    """
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            header = json.loads((file.metadata() or {})["json"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(
            f"{path}: a damaged checkpoint ({error}); remove it to start from the beginning"
        ) from error
    if header["of"] != identity:
        return None
    if header["parts"] != sorted(parts):
        raise ValueError(
            f"{path}: a checkpoint of {', '.join(sorted(parts))} is expected, "
            f"got one of {', '.join(header['parts'])}; remove it to start from the beginning"
        )
    for name, part in parts.items():
        prefix = f"{name}/"
        found = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
        try:
            if isinstance(part, nn.Module):
                part.load_state_dict(found)
            elif isinstance(part, torch.Generator):
                part.set_state(found["state"])
            elif isinstance(part, Optimizer):
                _to_optimizer(part, found, header["plain"][name])
            else:
                part.clear()
                part.update(found)
        except (RuntimeError, KeyError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{path}: a checkpoint of another {name} ({reason})") from error
    state: dict[str, Any] = header["facts"]
    return state


def _of_optimizer(optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors in the state of an optimiser, named parameter/entry, and the rest."""
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    for index, entries in state["state"].items():
        for entry, value in entries.items():
            name = f"{index}/{entry}"
            if isinstance(value, Tensor):
                tensors[name] = value
            else:
                values[name] = value
    return tensors, {"values": values, "groups": state["param_groups"]}


def _to_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
    state: dict[int, dict[str, Any]] = {}
    for name, value in (tensors | plain["values"]).items():
        index, entry = name.split("/", 1)
        state.setdefault(int(index), {})[entry] = value
    optimizer.load_state_dict({"state": state, "param_groups": plain["groups"]})
    for parameter, entries in optimizer.state.items():
        for entry, value in entries.items():  # with the strides of the parameter, for the same bits
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                entries[entry] = torch.empty_like(parameter).copy_(value)
