"""Find out why a network does not learn: :func:`diagnose`."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from lpunits.layers import MaxoutLinear
from lpunits.orders import Ordered
from lpunits.rnn import DTRNN

WATCHED = (Ordered, MaxoutLinear, DTRNN, nn.ReLU, nn.Sigmoid, nn.Tanh)
BOUNDED = {DTRNN: (-1.0, 1.0), nn.Tanh: (-1.0, 1.0), nn.Sigmoid: (0.0, 1.0)}


@dataclass
class LayerReport:
    """The statistics of one layer on one batch.

    Attributes:
        name: The path of the layer in the model.
        kind: The name of its class.
        mean: The mean of all outputs.
        spread: The standard deviation over samples, as a root mean square over units.
        dead: The fraction of units with the same output for every sample.
        saturated: The fraction of outputs within 2.5 % of a bound, where the slope is below a
            tenth; None for units without bounds.
        orders: The smallest and the largest order.
        flat: The fraction of learned orders at an end of their range: below 1.05, where the
            softplus is flat, or above 100, where the norm is nearly the maximum.
        update: The change of the layer's parameters in one optimiser step, relative to their norm.
        order_update: The mean absolute change of its orders in that step.
    """

    name: str
    kind: str
    mean: float
    spread: float
    dead: float
    saturated: float | None = None
    orders: tuple[float, float] | None = None
    flat: float | None = None
    update: float | None = None
    order_update: float | None = None

    def warnings(self) -> Iterator[str]:
        """One sentence for each problem, with its remedy."""
        of = f"{self.name or 'the model'} ({self.kind})"
        if not abs(self.mean) + self.spread < float("inf"):
            yield f"The outputs of {of} are not finite: lower the learning rate or clip gradients."
            return
        if self.saturated is not None and self.saturated > 0.5:
            what = "the state" if self.kind == "DTRNN" else "the outputs"
            yield (
                f"{self.saturated:.0%} of {what} of {of} is saturated: lower the learning rate, "
                "clip the gradient's norm, and train again with start='spread'."
            )
        if self.dead > 0.1:
            yield (
                f"{self.dead:.0%} of the units of {of} give every sample the same: standardise the "
                "inputs, lower the learning rate, or train again from the start."
            )
        elif self.saturated is None and abs(self.mean) > 20 * self.spread:
            yield (
                f"The outputs of {of} have a mean of {self.mean:.3g} and a spread of "
                f"{self.spread:.2g} only: give the units a bias (bias=True, start='spread'), or "
                "normalise them."
            )
        if self.flat:
            yield (
                f"{self.flat:.0%} of the orders of {of} are at an end of their range: lower "
                "order_scale in param_groups, or start orders between 1.1 and 20."
            )
        if self.update is not None and self.update > 0.1:
            yield f"A step changes {of} by {self.update:.0%}: lower the learning rate."
        if self.update is not None and self.update < 1e-6:
            yield f"A step changes {of} by {self.update:.1g} of its size: it does not learn."
        if self.order_update == 0:
            yield f"A step does not change the orders of {of}: use param_groups for the optimiser."


@dataclass
class Diagnosis:
    """A report per layer and the warnings. It prints as a table."""

    layers: list[LayerReport]
    warnings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """A table and the warnings."""
        header = ["layer", "kind", "mean", "spread", "dead", "saturated", "orders", "flat"]
        header += ["update", "order update"]
        rows = [_cells(layer) for layer in self.layers]
        columns = [c for c in zip(header, *rows, strict=True) if any(c[1:])]
        widths = [max(map(len, column)) for column in columns]
        lines = [map(str.ljust, row, widths) for row in zip(*columns, strict=True)]
        return "\n".join([*("  ".join(line).rstrip() for line in lines), *self.warnings])


def diagnose(
    model: nn.Module,
    *inputs: Any,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> Diagnosis:
    """Statistics of every layer on one batch, the effect of one training step, and warnings.

    The model, the optimiser and the state of the random generators stay unchanged. The model runs
    in its current mode: call ``model.eval()`` first to switch dropout off.

    >>> from lpunits import MLP, param_groups
    >>> net, x, y = MLP(4, [8], 3), torch.randn(32, 4), torch.randint(3, (32,))
    >>> adam = torch.optim.Adam(param_groups(net, lr=1e-3))
    >>> found = diagnose(net, x, loss=lambda z: nn.functional.cross_entropy(z, y), optimizer=adam)
    >>> [layer.kind for layer in found.layers], found.warnings
    (['LpLinear'], [])

    Args:
        model: Any module.
        inputs: The arguments of the model: one batch.
        loss: A scalar function of the model's output. With ``optimizer``, the report includes
            the effect of one step.
        optimizer: The optimiser that trains the model.
    """
    if not inputs:
        raise TypeError("inputs must be at least one batch to call the model with, got none")
    if (loss is None) != (optimizer is None):
        given, missing = ("loss", "optimizer") if optimizer is None else ("optimizer", "loss")
        raise TypeError(f"{missing} must be given together with {given}, got None")
    with torch.random.fork_rng():
        model, optimizer = copy.deepcopy((model, optimizer))
        with torch.set_grad_enabled(loss is not None):
            with _watching(model) as outputs:
                output = model(*inputs)
            if loss is not None and optimizer is not None:
                optimizer.zero_grad()
                loss(output).backward()
        reports = {name: _report(name, module, u) for name, (module, u) in outputs.items()}
        if optimizer is not None:
            _measure_step(model, optimizer, reports)
    layers = list(reports.values())
    if not layers:
        raise ValueError("model must have a layer of units that it calls, got none")
    return Diagnosis(layers, [text for layer in layers for text in layer.warnings()])


@contextmanager
def _watching(model: nn.Module) -> Iterator[dict[str, tuple[nn.Module, Tensor]]]:
    """Collect the outputs of all watched modules that are called in the context."""
    outputs: dict[str, tuple[nn.Module, Tensor]] = {}

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def keep(module: nn.Module, _: Any, output: Any) -> None:
            u = output[0] if isinstance(output, tuple) else output
            outputs[name] = module, (u.data if isinstance(u, PackedSequence) else u).detach()

        return keep

    handles = [
        module.register_forward_hook(hook(name))
        for name, module in model.named_modules()
        if isinstance(module, WATCHED)
    ]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def _report(name: str, module: nn.Module, output: Tensor) -> LayerReport:
    # Spatial pooling has its channels second, everything else its units last.
    channels_second = isinstance(module, Ordered) and hasattr(module, "channels")
    u = (output.movedim(1, -1) if channels_second and output.ndim > 2 else output).flatten(0, -2)
    u = u.double()
    deviation, size = u.std(0, correction=0), u.abs().amax(0)
    report = LayerReport(
        name,
        type(module).__name__,
        mean=u.mean().item(),
        spread=deviation.square().mean().sqrt().item(),
        dead=(deviation <= 1e-6 * size).double().mean().item(),
    )
    if bounds := BOUNDED.get(type(module)):
        low, high = bounds
        near = 0.025 * (high - low)
        report.saturated = ((u < low + near) | (u > high - near)).double().mean().item()
    # A DTRNN does not call its layers one by one, so the hooks do not see them.
    ordered = [m for m in module.modules() if isinstance(m, Ordered)]
    if ordered:
        orders = torch.cat([m.order.detach().double().cpu() for m in ordered])
        report.orders = orders.min().item(), orders.max().item()
        learned = torch.cat(
            [torch.full(m.order.shape, isinstance(m.rho, nn.Parameter)) for m in ordered]
        )
        learned &= orders.isfinite()
        if learned.any():
            ends = (orders < 1.05) | (orders > 100)
            report.flat = (ends & learned).double().sum().item() / learned.sum().item()
    return report


def _measure_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, reports: dict[str, LayerReport]
) -> None:
    """Make one optimiser step and add its effect to the reports."""
    modules = dict(model.named_modules())
    before = {p: p.detach().clone() for p in model.parameters()}
    orders = {m: m.order.detach() for m in modules.values() if isinstance(m, Ordered)}
    optimizer.step()
    for name, report in reports.items():
        own = [p for p in modules[name].parameters() if p.requires_grad]
        if own:
            moved = sum((p.detach() - before[p]).square().sum().item() for p in own)
            size = sum(before[p].square().sum().item() for p in own)
            report.update = (moved / size) ** 0.5 if size else 0.0
        learned = [
            (m.order.detach() - orders[m])[m.order.isfinite()]
            for m in modules[name].modules()
            if isinstance(m, Ordered) and isinstance(m.rho, nn.Parameter)
        ]
        if learned:
            report.order_update = torch.cat(learned).abs().mean().item()


def _cells(layer: LayerReport) -> list[str]:
    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.0%}"

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.2g}"

    orders = "" if layer.orders is None else " to ".join(f"{p:.3g}" for p in layer.orders)
    return [
        *(layer.name or "(all)", layer.kind, f"{layer.mean:.3g}", f"{layer.spread:.3g}"),
        *(share(layer.dead), share(layer.saturated), orders, share(layer.flat)),
        *(number(layer.update), number(layer.order_update)),
    ]
