"""A recurrent network with a deep transition and a deep output."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from lpunits.arguments import check_sizes
from lpunits.mlp import MLP
from lpunits.rnn import DTRNN, Input, Lengths


class DOTRNN(nn.Module):
    r"""A recurrent network with a deep transition and a deep output.

    .. math::

        h_t = \tanh\bigl( W f(U h_{t-1} + V x_t) \bigr), \qquad y_t = O \, \phi(h_t)

    The transition is a :class:`DTRNN`; :math:`\phi` is a layer of units too, maxout by default. The
    outputs are logits: ``torch.sigmoid(y)`` are probabilities.

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
        output_dropout: The same for the output, where it does not disturb the state; by default
            that of the transition.
        start: How transition and output start: ``"spread"``, or as in the paper at ``"zero"``.
        device: Where the parameters live.
        dtype: The dtype of the parameters.
        options: The other options of :class:`DTRNN`, such as ``shortcut``.
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
