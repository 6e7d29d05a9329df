"""Trained networks: those that ``lpunits run`` leaves, and those that come with the package."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lpunits import sealed
from lpunits.paper.training.music import Music
from lpunits.paper.training.networks import Convolutional, FeedForward

KINDS = {kind.__name__: kind for kind in (FeedForward, Convolutional, Music)}
SIZES = {"hidden", "units", "filters", "output_units", "output_filters", "channels"}
PRETRAINED = Path(__file__).parents[1] / "pretrained"


class Trained(NamedTuple):
    """A trained network, ready to evaluate, and the facts about its training."""

    net: nn.Module
    about: dict[str, Any]  #: kind, config and seed of the trial, and whatever else its file says


def pretrained(name: str) -> Trained:
    """A trained network that comes with the package, and its score.

    Its inputs are the features of :func:`lpunits.paper.data.load`, with the options under
    ``about["config"]["data_options"]``, as floats. A network of music is called like
    ``nn.RNN``: piano rolls ``(time, batch, 88)`` to the scores of the next keys, and its state.

    >>> net, about = pretrained("fer2013")
    >>> net(torch.zeros(1, 48 * 48)).shape  # the scores of seven expressions
    torch.Size([1, 7])
    >>> about["score"]
    {'test error': 0.457...}

    Args:
        name: The dataset: of mnist, pentomino, covertype, jsb, nottingham and fer2013 those whose
            files lie in ``lpunits/paper/pretrained``.
    """
    path = PRETRAINED / f"{name}.safetensors"
    known = sorted(p.stem for p in PRETRAINED.glob("*.safetensors"))
    if name not in known:
        raise ValueError(f"name must be one of {', '.join(known)}, got {name!r}")
    return load_model(path)


def load_model(path: str | Path) -> Trained:
    """The network of a ``model.safetensors``, as ``lpunits run`` leaves one for each trial.

    Nothing is unpickled, and a file in which a bit has changed is refused.
    """
    tensors, about = sealed.read(Path(path))
    try:
        net = _network(about, tensors)
        weights = {name: t.float() if t.is_floating_point() else t for name, t in tensors.items()}
        net.load_state_dict(weights, assign=True)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not a model of this version of lpunits ({reason})") from error
    return Trained(net.eval(), about)


def _network(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> nn.Module:
    """The network that a file of these tensors describes, without memory for its weights."""
    config = config_of(about)
    values = sum(t.numel() for t in tensors.values())
    for name in SIZES & set(about["config"]):
        sizes = torch.tensor(about["config"][name])
        if sizes.max() > values or sizes.numel() > len(tensors):
            given = f"{name} of {about['config'][name]!s:.100}"
            raise ValueError(f"{given} with {values} values in {len(tensors)} tensors")
    with torch.device("meta"):
        if isinstance(config, Music):
            return config.net()
        net: nn.Module = config.model(tuple(about["shape"]), len(about["classes"]))
        return net


def config_of(about: Mapping[str, Any]) -> Any:
    """The config in the facts, from JSON, which has lists for tuples and text for infinity."""
    kind, values = KINDS[about["kind"]], about["config"]
    defaults = {f.name: f.default for f in dataclasses.fields(kind)}

    def restored(value: Any, default: Any = None) -> Any:
        if isinstance(value, list):
            return tuple(map(restored, value))
        return float(value) if isinstance(default, float) and value is not None else value

    return kind(**{name: restored(value, defaults.get(name)) for name, value in values.items()})
