"""Deep recurrent networks: :class:`DTRNN`, with a deep transition, and :class:`DOTRNN`."""

import math
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from lpunits.arguments import check_floating, check_sizes
from lpunits.dropout import Dropout
from lpunits.functional import lp_pool, maxout
from lpunits.layers import LpLinear, MaxoutLinear
from lpunits.mlp import ACTIVATIONS, MLP
from lpunits.orders import Orders
from lpunits.recurrence import ELEMENTWISE, Layer, brief, recur
from lpunits.start import check_start, keep_changes_, projections

Input = TypeVar("Input", Tensor, PackedSequence)
Lengths = Tensor | Sequence[int]


class DTRNN(nn.Module):
    r"""A recurrent network with a deep transition: units of any kind between two tanh states.

    .. math:: h_t = \tanh\bigl( W f(U h_{t-1} + V x_t) \bigr)

    with biases, where f is a layer of ``"lp"`` units (:class:`LpLinear`), ``"l2"`` (the same with
    p fixed to 2), ``"maxout"``, ``"relu"``, ``"sigmoid"`` or ``"tanh"`` units, or several layers.
    The centres of Lp units are the biases of their projections. As tanh bounds the state, f need
    not be bounded.

    U and W are kept times a power of two near the root of their inputs (``scales``). A step of an
    optimiser like Adam moves every weight equally far; as units are all positive, that moves all
    sums of W together, and a few steps would saturate the state. The larger a weight, the less such
    a step matters.

    It is called like :class:`torch.nn.RNN` with one layer, and gives what that gives: the states of
    all steps, and the last one, which is how a later call goes on where this one ended.

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
        batch_first: Whether the batch is the first dimension of input and output, and time the
            second, instead of the other way round. The state is not concerned.
        dropout: Probability to drop an intermediate unit.
        dropout_per: Whether a new mask is drawn for every ``"step"``, or one per ``"sequence"``
            (and call).
        start: ``"spread"``, as described; ``"zero"``: the scales are 1, as in the paper.
        recompute: Whether to keep nothing but the states for the backward, which then makes the
            projections again, part by part: a quarter of the memory with two filters.
        device: Where the parameters live.
        dtype: The dtype of the parameters.

    Attributes:
        input: V, a :class:`torch.nn.Linear` without bias.
        layers: f, with U as the weight of the first layer, times its scale.
        hidden: W, times its scale: a :class:`torch.nn.Linear`.
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
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}"
            )
        if filters is None:
            filters = 1 if activation in ELEMENTWISE else 2
        groups = [filters] * len(sizes) if isinstance(filters, int) else list(filters)
        if len(groups) != len(sizes):
            raise ValueError(
                f"filters must be a number or one for each of {len(sizes)} intermediate layers, "
                f"got {filters!r}"
            )
        for size, group in zip(sizes, groups, strict=True):
            check_sizes(units=size, filters=group)
        if activation in ELEMENTWISE and set(groups) != {1}:
            raise ValueError(f"filters must be 1 for {activation} units, got {filters!r}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be a probability from 0 to below 1, got {dropout}")
        if dropout_per not in ("step", "sequence"):
            raise ValueError(f"dropout_per must be 'step' or 'sequence', got {dropout_per!r}")
        check_start(start)
        self.input_size, self.hidden_size, self.activation = input_size, hidden_size, activation
        self.batch_first, self.recompute = batch_first, recompute
        self.dropout, self.dropout_per, self.start = dropout, dropout_per, start

        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.layers = nn.ModuleList()
        inputs = hidden_size
        for size, group in zip(sizes, groups, strict=True):
            if activation in ELEMENTWISE:
                layer: nn.Module = nn.Linear(inputs, size, bias=bias, **place)
            elif activation == "maxout":
                layer = MaxoutLinear(inputs, size, group, bias=bias, start="zero", **place)
            else:
                orders = 2.0 if activation == "l2" else order
                learned = learn_order and activation == "lp"
                options: dict[str, Any] = {"order": orders, "learn_order": learned, "center": bias}
                layer = LpLinear(inputs, size, group, **options, start="zero", **place)
            self.layers.append(layer)
            inputs = size
        self.input = nn.Linear(input_size, groups[0] * sizes[0], bias=False, **place)
        self.hidden = nn.Linear(inputs, hidden_size, bias=bias, **place)
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
            keep_changes_(layer.get_parameter("weight"), self._slopes(layer) / scale)
        keep_changes_(self.input.weight, self._slopes(self.layers[0]))
        keep_changes_(self.hidden.weight, torch.ones((), device="cpu") / scales[-1])
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
        """The same with work on the padding, in a graph whose shapes the lengths do not change."""
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
        # A recurrence adds up its rounding errors: no lower precision than the parameters'.
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

    def _slopes(self, layer: nn.Module) -> Tensor:
        """How a unit answers to a small change of standard normal projections, per unit."""
        with torch.enable_grad():
            unit = torch.zeros(1, dtype=torch.long, device="cpu")
            if isinstance(layer, LpLinear):
                start = torch.tensor(layer.initial_order, device="cpu")
                orders, unit = start.unique(return_inverse=True)
                z = projections(layer.filters)[0].repeat(1, 1, len(orders)).requires_grad_()
                u = lp_pool(z, orders, dim=1)
            elif isinstance(layer, MaxoutLinear):
                z = projections(layer.filters)[0].requires_grad_()
                u = maxout(z, dim=1)
            else:
                z = projections(1)[0].requires_grad_()
                u = getattr(torch, self.activation)(z)
            (slopes,) = torch.autograd.grad(u.sum(), z)
        return slopes.square().sum(1).mean(0).sqrt()[unit]

    def _checked(self, x: Tensor, packed: bool = False) -> Tensor:
        check_floating("input", x)
        if packed and x.ndim != 2:
            raise ValueError(
                "input must be a PackedSequence of 2 dimensions, rows and their values, "
                f"got the shape {tuple(x.shape)}"
            )
        if x.ndim not in (2, 3):
            raise ValueError(
                "input must have 3 dimensions, or 2 without a batch, "
                f"got the shape {tuple(x.shape)}"
            )
        if x.shape[-1] != self.input_size:
            raise ValueError(
                f"input must have input_size={self.input_size} as its last dimension, "
                f"got the shape {tuple(x.shape)}"
            )
        if x.numel() == 0:
            raise ValueError(
                "input must have at least one step and one sequence, "
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


class DOTRNN(nn.Module):
    r"""A recurrent network with a deep transition and a deep output.

    .. math::

        h_t = \tanh\bigl( W f(U h_{t-1} + V x_t) \bigr), \qquad y_t = O \, \phi(h_t)

    The transition is a :class:`DTRNN`; :math:`\phi` is a layer of units too, maxout by default. It
    gives the logits of logistic outputs: ``torch.sigmoid(y)`` are the probabilities.

    >>> net = DOTRNN(88, 200, 88, units=100, filters=2, output_units=100, output_filters=2)
    >>> y, state = net(torch.randn(30, 16, 88))
    >>> y.shape, state.shape
    (torch.Size([30, 16, 88]), torch.Size([1, 16, 200]))

    Args:
        input_size: Size of the input's last dimension.
        hidden_size: Size of the state.
        output_size: Size of the output's last dimension.
        units: Units of the transition's intermediate layer, or of each of several.
        filters: Projections per unit of the transition.
        output_units: Units of the output's intermediate layer.
        output_filters: Projections per unit of the output.
        activation: The kind of the transition's units.
        output_activation: The kind of the output's units.
        dropout: Probability to drop an intermediate unit of the transition.
        output_dropout: The same for the output, where it does not disturb the memory; by default
            that of the transition.
        start: How transition and output start: ``"spread"``, or as in the paper at ``"zero"``.
        device: Where the parameters live.
        dtype: The dtype of the parameters.
        options: The other options of :class:`DTRNN`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        output_size: int,
        units: int | Sequence[int],
        filters: int | Sequence[int] | None = None,
        output_units: int = 400,
        output_filters: int | None = None,
        *,
        activation: str = "lp",
        output_activation: str = "maxout",
        dropout: float = 0.0,
        output_dropout: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        start: str = "spread",
        **options: Any,
    ) -> None:
        super().__init__()
        check_sizes(output_size=output_size, output_units=output_units)
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.rnn = DTRNN(
            input_size,
            hidden_size,
            units,
            filters,
            activation=activation,
            dropout=dropout,
            start=start,
            **options,
            **place,
        )
        output_dropout = dropout if output_dropout is None else output_dropout
        if not 0 <= output_dropout < 1:
            raise ValueError(
                f"output_dropout must be a probability from 0 to below 1, got {output_dropout}"
            )
        self.output = MLP(
            hidden_size,
            [output_units],
            output_size,
            activation=output_activation,
            filters=output_filters,
            dropout=output_dropout,
            start=start,
            **place,
        )

    def forward(
        self,
        input: Input,
        hx: Tensor | None = None,
        lengths: Lengths | None = None,
    ) -> tuple[Input, Tensor]:
        """The logits of all steps, and the last state of each sequence; see :class:`DTRNN`."""
        states, last = self.rnn(input, hx, lengths=lengths)
        if isinstance(states, PackedSequence):
            states = states._replace(data=self.output(states.data))
            return states, last  # type: ignore[return-value]
        return self.output(states), last

    def step(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step: the logits for what follows the input, and the state; see :class:`DTRNN`."""
        state, last = self.rnn.step(input, hx)
        return self.output(state), last


def _without_scales(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """A checkpoint without scales is of a network that had none."""
    state.setdefault(f"{prefix}scales", torch.ones_like(module.scales))  # type: ignore[arg-type]


def _time_of_a_step(x: Tensor, batch_first: bool) -> int:
    if x.ndim not in (1, 2):
        raise ValueError(
            f"input must have 2 dimensions, or 1 without a batch, got the shape {tuple(x.shape)}"
        )
    return 1 if batch_first and x.ndim == 2 else 0
