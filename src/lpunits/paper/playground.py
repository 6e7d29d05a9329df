"""The playground (``playground/``, a page for the browser): where it is, a server, links to it."""

import base64
import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch
from torch import Tensor, nn

from lpunits import LpLinear, MaxoutLinear
from lpunits.files import write_atomically


def folder() -> Path:
    """Where the page is: in the installed package, or in the source tree."""
    package = Path(__file__).parents[1]
    for place in (package / "playground", package.parents[1] / "playground"):
        if (place / "index.html").exists():
            return place
    raise FileNotFoundError("the playground is not part of this installation of lpunits")


def copy_to(place: Path) -> None:
    """Copy the page into a folder, for pages that link it."""
    for file in folder().rglob("*.*"):
        write_atomically(place / file.relative_to(folder()), file.read_bytes())


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """No line for each file."""


@contextmanager
def server() -> Iterator[ThreadingHTTPServer]:
    """Serves the page to this computer alone, on a port that is free."""
    handler = functools.partial(_Quiet, directory=str(folder()))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        yield serving


def link(*models: nn.Module, data: str, points: int, draw: int = 0) -> str:
    """What to put behind ``index.html`` so that the page opens with these networks on their data.

    >>> from lpunits import MLP
    >>> link(MLP(2, [3], 1, activation="relu"), data="curve", points=5000)
    '#view=network&data=curve&points=5000&draw=0&net0=relu:3:1:&theta0=...'

    Args:
        models: One network, or two for a race. Two inputs, a layer of units, class scores: like an
            :class:`~lpunits.MLP` with one hidden layer.
        data: The set, by its name in ``lpunits data``.
        points: How many.
        draw: The seed of the points.
    """
    if not 1 <= len(models) <= 2:
        raise ValueError(f"models must be one or two networks, got {len(models)}")
    words = {"view": "network" if len(models) == 1 else "race"}
    words |= {"data": data, "points": str(points), "draw": str(draw)}
    for k, model in enumerate(models):
        words[f"net{k}"], words[f"theta{k}"] = _network(model)
    return "#" + "&".join(f"{name}={quote(word, safe=':,')}" for name, word in words.items())


def _network(model: nn.Module) -> tuple[str, str]:
    """The shape of a network and its parameters, as playground/js/state.js reads them."""
    layers = [layer for layer in model.modules() if not any(layer.children())]
    first: Any = layers[0]
    last: Any = layers[-1]
    kind = _kind(first, layers[1:-1])
    if kind is None or not isinstance(last, nn.Linear) or first.in_features != 2:
        raise ValueError(
            "model must have two inputs, one layer of Lp, maxout, ReLU or sigmoid units and a "
            f"linear output, got {model}"
        )
    if getattr(first, "center", first.bias) is None or last.bias is None:
        raise ValueError("model must have centres or biases, and biases of the output")
    units, filters = last.in_features, 1 if kind in ("relu", "sigmoid") else first.filters
    parts, orders = [], []
    if kind == "lp":
        p = first.order.detach().double().cpu()
        if not (p >= 1).all():
            raise ValueError(f"model must have orders of at least 1, got {p.min().item():g}")
        learned = any("rho" in name for name, _ in first.named_parameters())
        excess = (p - 1).clamp(min=2.0**-54)
        parts.append(excess.where(excess.isinf(), excess + (-(-excess).expm1()).log()))
        orders = [
            ("inf" if math.isinf(order) else repr(order))
            + ("" if learned and math.isfinite(order) else "!")
            for order in p.tolist()
        ]
    shift, bias = first.center if kind == "lp" else first.bias, last.bias
    if kind == "lp" and first.bias is not None:  # the page has none: the output takes it over
        bias = bias + last.weight @ first.bias
    parts += [first.weight, shift, last.weight, bias]
    return f"{kind}:{units}:{filters}:{','.join(orders)}", _base64(parts)


def _kind(first: nn.Module | None, between: list[nn.Module]) -> str | None:
    if isinstance(first, LpLinear | MaxoutLinear) and not between:
        return "lp" if isinstance(first, LpLinear) else "maxout"
    if isinstance(first, nn.Linear) and len(between) == 1:
        return {nn.ReLU: "relu", nn.Sigmoid: "sigmoid"}.get(type(between[0]))
    return None


def _base64(parts: list[Tensor]) -> str:
    values = torch.cat([part.detach().cpu().double().flatten() for part in parts]).numpy()
    return base64.urlsafe_b64encode(values.astype("<f8").tobytes()).decode().rstrip("=")
