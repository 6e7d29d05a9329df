"""A recurrent network with a deep transition."""

import math
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from lpunits.arguments import check_choice, check_floating, check_sizes
from lpunits.dropout import Dropout
from lpunits.layers import LpLinear, MaxoutLinear
from lpunits.orders import Orders
from lpunits.recurrence import Layer, brief, recur
from lpunits.start import STARTS, keep_changes_
from lpunits.units import check_layers, slopes, unit_layer

Input = TypeVar("Input", Tensor, PackedSequence)
Lengths = Tensor | Sequence[int]


class DTRNN(nn.Module):
    r"""A recurrent network with a deep transition: units of any kind between two tanh states.

    .. math:: h_t = \tanh\bigl( W f(U h_{t-1} + V x_t) \bigr)

    with biases, where f is a layer of ``"lp"`` units (:class:`LpLinear`), ``"l2"`` (the same with
    p fixed to 2), ``"maxout"``, ``"relu"``, ``"sigmoid"`` or ``"tanh"`` units, or several layers.
    The centres of Lp units are the biases of their projections. As tanh bounds the state, f need
    not be bounded. With ``shortcut=True`` the previous state also joins the next one by a product
    of its own, past f, so that gradients have a shorter way back in time:

    .. math:: h_t = \tanh\bigl( W f(U h_{t-1} + V x_t) + S h_{t-1} \bigr)

    The parameters hold U and W multiplied by a power of two near the square root of the number of
    their inputs (``scales``). A step of an optimiser like Adam moves every weight equally far. All
    units are positive, so that moves all sums of W together, and some steps would saturate the
    state. The larger a weight, the less such a step matters.

    It is called like :class:`torch.nn.RNN` with one layer, and returns the same: the states of all
    steps, and the last one, from which a later call can continue.

    >>> rnn = DTRNN(88, 200, units=100, filters=2)
    >>> output, state = rnn(torch.randn(30, 16, 88))
    >>> output.shape, state.shape
    (torch.Size([30, 16, 200]), torch.Size([1, 16, 200]))
    >>> output, state = rnn(torch.randn(50, 16, 88), state.detach())  # the next 50 steps

    Args:
        input_size: Size of the input's last dimension.
        hidden_size: Size of the state.
        units: Units of the intermediate layer, or of each of several.
        filters: Projections per unit, for all intermediate layers or for each; 2 by default. The
            elementwise units (relu, sigmoid, tanh) have one.
        activation: The kind of the intermediate units.
        order: The orders to start from, for ``"lp"``.
        learn_order: Whether the orders of ``"lp"`` are learned.
        bias: Whether there are biases and centres.
        shortcut: Whether there is S.
        batch_first: Whether the batch is the first dimension of input and output, and time the
            second, instead of the other way round. Does not affect ``hx``.
        dropout: Probability to drop an intermediate unit.
        dropout_per: Whether a new mask is drawn for every ``"step"``, or one per ``"sequence"``
            (and call).
        start: ``"spread"``: with scales, as described; ``"zero"``: they are 1, as in the paper.
        recompute: Whether to keep only the states for the backward pass, which then recomputes the
            projections, part by part: a quarter of the memory with two filters.
        device: Where the parameters live.
        dtype: The dtype of the parameters.

    Attributes:
        input: V, a :class:`torch.nn.Linear` without bias.
        layers: f, with U as the weight of the first layer, times its scale.
        hidden: W, times its scale: a :class:`torch.nn.Linear`.
        shortcut: S, a :class:`torch.nn.Linear` without bias, or None.
        scales: What the weights of each of the layers, and of ``hidden``, are divided by.
    """

    scales: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        units: int | Sequence[int],
        filters: int | Sequence[int] | None = None,
        *,
        activation: str = "lp",
        order: Orders = 3.0,
        learn_order: bool = True,
        bias: bool = True,
        shortcut: bool = False,
        batch_first: bool = False,
        dropout: float = 0.0,
        dropout_per: str = "step",
        start: str = "spread",
        recompute: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes(input_size=input_size, hidden_size=hidden_size)
        sizes = [units] if isinstance(units, int) else list(units)
        if not sizes:
            raise ValueError("units must be the size of at least one intermediate layer, got none")
        groups = check_layers("units", sizes, activation, filters)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be a probability from 0 to below 1, got {dropout}")
        if dropout_per not in ("step", "sequence"):
            raise ValueError(f"dropout_per must be 'step' or 'sequence', got {dropout_per!r}")
        check_choice("start", start, STARTS)
        self.input_size, self.hidden_size, self.activation = input_size, hidden_size, activation
        self.batch_first, self.recompute = batch_first, recompute
        self.dropout, self.dropout_per, self.start = dropout, dropout_per, start

        place: dict[str, Any] = {"device": device, "dtype": dtype}
        options: dict[str, Any] = {"order": order, "learn_order": learn_order, "center": bias}
        options |= {"bias": False, "start": "zero", **place}  # reset_parameters() draws the weights
        self.layers = nn.ModuleList()
        inputs = hidden_size
        for size, group in zip(sizes, groups, strict=True):
            self.layers.append(unit_layer(activation, inputs, size, group, **options))
            inputs = size
        self.input = nn.Linear(input_size, groups[0] * sizes[0], bias=False, **place)
        self.hidden = nn.Linear(inputs, hidden_size, bias=bias, **place)
        self.shortcut = (
            nn.Linear(hidden_size, hidden_size, bias=False, **place) if shortcut else None
        )
        self.register_buffer("scales", torch.empty(len(sizes) + 1, **place))
        self.register_load_state_dict_pre_hook(_without_scales)  # type: ignore[no-untyped-call]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, set biases and centres to 0 and the orders to where they started."""
        modules = (*self.layers, self.hidden)
        inputs = [module.get_parameter("weight").shape[-1] for module in modules]
        scales = [2 ** round(math.log2(n) / 2) if self.start == "spread" else 1 for n in inputs]
        for layer, scale in zip(self.layers, scales, strict=False):
            layer.reset_parameters()  # type: ignore[operator]
            keep_changes_(layer.get_parameter("weight"), slopes(layer, self.activation) / scale)
        keep_changes_(self.input.weight, slopes(self.layers[0], self.activation))
        # Two ways to the next state share the size of a change.
        share = torch.tensor(1.0 if self.shortcut is None else math.sqrt(2), device="cpu")
        keep_changes_(self.hidden.weight, share / scales[-1])
        if self.shortcut is not None:
            keep_changes_(self.shortcut.weight, share)
        for module in modules:
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        self.scales.copy_(torch.tensor(scales, device="cpu"))

    def forward(
        self,
        input: Input,
        hx: Tensor | None = None,
        lengths: Lengths | None = None,
    ) -> tuple[Input, Tensor]:
        """The states of all steps, and the last one of each sequence.

        Args:
            input: ``(steps, batch, input_size)``; ``(batch, steps, input_size)`` with
                ``batch_first``; ``(steps, input_size)`` without a batch; or a PackedSequence.
            hx: The states to start from, ``(1, batch, hidden_size)``, or ``(1, hidden_size)``
                without a batch; zeros by default.
            lengths: The steps of each sequence of a padded batch. Nothing is computed for the
                padding; the states there are 0.
        """
        if isinstance(input, PackedSequence):
            if lengths is not None:
                raise ValueError("lengths must be None for a PackedSequence, which has its own")
            return self._packed(input, hx)
        x = self._checked(input)
        if lengths is not None:
            return self._padded(x, hx, lengths)
        batched = x.ndim == 3
        x = x.unsqueeze(1) if not batched else x.transpose(0, 1) if self.batch_first else x
        steps, batch = x.shape[:2]
        if torch.onnx.is_in_onnx_export() and isinstance(steps, torch.SymInt):
            steps = int(steps)
            warnings.warn(f"ONNX gets the recurrence unrolled, for {steps} steps", stacklevel=2)
        h = self._state(hx, batch, batched)
        states, last = self._recur(x.flatten(0, 1), h)
        out = states.unflatten(0, (steps, batch))
        if not batched:
            return out.squeeze(1), last
        return out.transpose(0, 1) if self.batch_first else out, last.unsqueeze(0)

    def step(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step, ``(batch, input_size)`` or ``(input_size,)``: the output there, and the state.

        >>> rnn = DTRNN(4, 8, units=5).eval()
        >>> output, state = rnn.step(torch.randn(3, 4))
        >>> output, state = rnn.step(torch.randn(3, 4), state)
        >>> output.shape, state.shape
        (torch.Size([3, 8]), torch.Size([1, 3, 8]))
        """
        time = _time_of_a_step(input, self.batch_first)
        output, state = self(input.unsqueeze(time), hx)
        return output.squeeze(time), state

    def _packed(self, input: PackedSequence, hx: Tensor | None) -> tuple[PackedSequence, Tensor]:
        data, batch_sizes, order, back = input
        x = self._checked(data, packed=True)
        batch = int(batch_sizes[:1].sum()) if order is None else order.shape[0]
        h = self._state(hx, batch, batched=True)
        h = h if order is None else h[order]
        states, last = self._recur(x, h, batch_sizes)
        last = last if back is None else last[back]
        return PackedSequence(states, batch_sizes, order, back), last.unsqueeze(0)

    def _padded(self, x: Tensor, hx: Tensor | None, lengths: Lengths) -> tuple[Tensor, Tensor]:
        if x.ndim != 3:
            raise ValueError(f"lengths must be None for an input without a batch, got {lengths!r}")
        steps, batch = (x.shape[1], x.shape[0]) if self.batch_first else x.shape[:2]
        traced = torch.compiler.is_compiling() or torch._C._get_tracing_state()
        given = torch.as_tensor(lengths, device=x.device if traced else "cpu")
        if given.is_floating_point() or given.shape != (batch,):
            raise ValueError(
                f"lengths must be {batch} integers, one for each sequence, got {brief(given)}"
            )
        valid = ((given >= 1) & (given <= steps)).all()
        if traced:
            torch._assert_async(valid, "lengths must be from 1 to the steps of the batch")
            return self._masked(x, hx, given)
        if not valid:
            raise ValueError(
                f"lengths must be from 1 to the {steps} steps of the batch, got {brief(given)}"
            )
        packed = pack_padded_sequence(x, given, self.batch_first, enforce_sorted=False)
        out, last = self._packed(packed, hx)
        return pad_packed_sequence(out, self.batch_first, total_length=steps)[0], last

    def _masked(self, x: Tensor, hx: Tensor | None, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The same, with work on the padding, for graphs: no shape depends on the lengths."""
        batch, steps = x.shape[:2] if self.batch_first else x.shape[1::-1]
        inside = torch.arange(steps, device=x.device) < lengths.unsqueeze(1)
        inside = (inside if self.batch_first else inside.t()).unsqueeze(2)
        out, _ = self(x.where(inside, 0), hx)  # whatever the padding holds, its gradient is 0
        ends, rows = lengths - 1, torch.arange(batch, device=x.device)
        last = out[rows, ends] if self.batch_first else out[ends, rows]
        return out.where(inside, 0), last.unsqueeze(0)

    def _recur(
        self, x: Tensor, h: Tensor, batch_sizes: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        layers = [
            self._layer(layer, scale, h, x.shape[0])
            for layer, scale in zip(self.layers, self.scales[:-1].unbind(), strict=True)
        ]
        # A recurrence accumulates rounding errors: no lower precision than that of the parameters.
        # (Autocast does not know the meta device.)
        with torch.autocast("cpu" if x.is_meta else x.device.type, enabled=False):
            return recur(
                x,
                h,
                batch_sizes,
                self.input.weight,
                layers,
                self.hidden.weight / self.scales[-1],
                self.hidden.bias,
                None if self.shortcut is None else self.shortcut.weight,
                self.recompute,
            )

    def _layer(self, layer: nn.Module, scale: Tensor, h: Tensor, rows: int) -> Layer:
        """The layer's tensors, and a new mask for dropout."""
        assert isinstance(layer, LpLinear | MaxoutLinear | nn.Linear)
        weight = layer.weight.flatten(0, -2) / scale
        if isinstance(layer, nn.Linear):
            mask = self._mask(h, rows, layer.out_features)
            return Layer(self.activation, 1, weight, layer.bias, None, mask)
        mask = self._mask(h, rows, layer.units)
        if isinstance(layer, MaxoutLinear):
            bias = None if layer.bias is None else layer.bias.flatten()
            return Layer("maxout", layer.filters, weight, bias, None, mask)
        bias = None if layer.center is None else -layer.center.flatten()
        return Layer("lp", layer.filters, weight, bias, layer.order.to(weight.dtype), mask)

    def _mask(self, h: Tensor, rows: int, units: int) -> Tensor | None:
        if not (self.training and self.dropout):
            return None
        ones = h.new_ones(rows if self.dropout_per == "step" else h.shape[0], units)
        return Dropout(self.dropout)(ones)  # type: ignore[no-any-return]

    def _checked(self, x: Tensor, packed: bool = False) -> Tensor:
        check_floating("input", x)
        shape = f"(rows, {self.input_size}) in a PackedSequence"
        if not packed:
            dims = "batch, steps" if self.batch_first else "steps, batch"
            shape = f"({dims}, {self.input_size}), or (steps, {self.input_size}) without a batch"
        right = x.ndim == 2 or (x.ndim == 3 and not packed)
        if not right or x.shape[-1] != self.input_size or x.numel() == 0:
            raise ValueError(
                f"input must have the shape {shape}, with at least one step and one sequence, "
                f"got the shape {tuple(x.shape)}"
            )
        return self._same_dtype("input", x)

    def _state(self, hx: Tensor | None, batch: int, batched: bool) -> Tensor:
        """The initial states, ``(batch, hidden_size)``."""
        if hx is None:
            return self.hidden.weight.new_zeros(batch, self.hidden_size)
        check_floating("hx", hx)
        shape = (1, batch, self.hidden_size) if batched else (1, self.hidden_size)
        if hx.shape != shape:
            raise ValueError(f"hx must have the shape {shape}, got the shape {tuple(hx.shape)}")
        return self._same_dtype("hx", hx).reshape(batch, self.hidden_size)

    def _same_dtype(self, name: str, t: Tensor) -> Tensor:
        dtype = self.hidden.weight.dtype
        if t.dtype != dtype and torch.is_autocast_enabled(t.device.type):
            return t.to(dtype)
        if t.dtype != dtype:
            raise TypeError(f"{name} must have the parameters' dtype {dtype}, got {t.dtype}")
        return t

    def extra_repr(self) -> str:
        """Sizes and options."""
        options = f"{self.input_size}, {self.hidden_size}, activation={self.activation!r}"
        if self.dropout:
            options += f", dropout={self.dropout} per {self.dropout_per}"
        return options + ", batch_first=True" * self.batch_first


def _without_scales(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """A state dict without scales is that of a network whose scales are 1."""
    state.setdefault(f"{prefix}scales", torch.ones_like(module.scales))  # type: ignore[arg-type]


def _time_of_a_step(x: Tensor, batch_first: bool) -> int:
    if x.ndim not in (1, 2):
        raise ValueError(
            f"input must have 2 dimensions, or 1 without a batch, got the shape {tuple(x.shape)}"
        )
    return 1 if batch_first and x.ndim == 2 else 0
