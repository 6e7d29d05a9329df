"""Networks for classification: a config for each, with the fields of its own."""

import math
from dataclasses import dataclass

from torch import nn

from lpunits import MLP, GlobalLpPool
from lpunits.mlp import NORMALIZATIONS
from lpunits.paper.training.classification import Training
from lpunits.paper.training.trial import check_at_least, check_choice
from lpunits.start import STARTS
from lpunits.units import ACTIVATIONS


@dataclass(frozen=True)
class FeedForward(Training):
    """A multilayer perceptron: data, network and training, all except the seed.

    Args:
        hidden: Units of each hidden layer. Elementwise units (relu, sigmoid, tanh) have one filter
            each; their layers are made wider, so that the network has as many weights as one of
            units with ``filters`` filters.
        order_spread: Orders start uniformly within plus and minus this of ``order``, as in the
            paper's Fig. 5; 0: all at ``order``.
        normalization: What follows each hidden layer: none, batch or layer.
        input_noise: The standard deviation of Gaussian noise on the inputs, in training.
        noise: The same on the outputs of each hidden layer, after its normalisation.
        weight_range: Weights start uniformly between minus and plus this; None: the layers' start.
        start: Where centres and biases start: zero, as in the paper, or spread, the default of the
            layers.
    """

    hidden: tuple[int, ...] = (240, 240)
    activation: str = "lp"
    filters: int = 5
    order: float = 3.0
    order_spread: float = 0.0
    learn_order: bool = True
    center: bool = True
    bias: bool = False
    normalization: str = "none"
    input_dropout: float = 0.0
    dropout: float = 0.0
    input_noise: float = 0.0
    noise: float = 0.0
    weight_range: float | None = None
    start: str = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("center_inputs", "input_dropout", "input_noise", "adversarial", "virtual"):
            if self.sparse_inputs and (value := getattr(self, name)):
                raise ValueError(f"{name} must be {type(value)()} with sparse_inputs, got {value}")
        check_choice(self, activation=ACTIVATIONS, normalization=NORMALIZATIONS, start=STARTS)
        check_at_least(self, 1, "filters")
        if not 0 <= self.order_spread < max(self.order - 1, 1e-9):
            least = f"from 0 to below order - 1 = {self.order - 1:g}"
            raise ValueError(f"order_spread must be {least}, got {self.order_spread:g}")

    @property
    def label(self) -> str:
        """The dataset with its options, units, layers, noise, initial order and weight decay."""
        sizes = "-".join(map(str, self.hidden))
        noise = f", noise {self.noise:g}" if self.noise else ""
        noise += f", adversarial {self.adversarial:g}" if self.adversarial else ""
        noise += f", virtual {self.virtual:g}" if self.virtual else ""
        around = f" ± {self.order_spread:g}" if self.order_spread else ""
        other_start = self.activation == "lp" and (self.order != FeedForward.order or around)
        start = f", p from {self.order:g}{around}" if other_start else ""
        if self.activation == "lp" and self.order_scale >= 30:  # more than the recipes have
            start += f", orders x {self.order_scale:g}"
        decay = f", weight decay {self.weight_decay:.2g}" if self.weight_decay else ""
        decay += " of the output" * (self.decayed == "output")
        return f"{self.source}, {self.activation} {sizes} x {self.filters}{noise}{start}{decay}"

    @property
    def shares_batches(self) -> bool:
        """Whether several ranks can train it: not if each would have its own batch statistics."""
        return self.normalization != "batch"

    @property
    def multiplications(self) -> int:
        """About as many as the largest product of a step has, for the number of threads."""
        return self.batch * max(self.hidden, default=0) ** 2 * self.filters

    def model(self, shape: tuple[int, ...], classes: int) -> MLP:
        """The network at its start, for rows of features that were of this shape."""
        inputs = math.prod(shape)
        pooled = self.activation in ("lp", "l2", "maxout")
        spread = (self.order - self.order_spread, self.order + self.order_spread)
        model = MLP(
            inputs,
            self.hidden if pooled else self.widened(inputs, classes),
            classes,
            activation=self.activation,
            filters=self.filters if pooled else 1,
            order=spread if self.order_spread else self.order,
            learn_order=self.learn_order,
            center=self.center,
            bias=self.bias,
            normalization=self.normalization,
            dropout=self.dropout,
            input_dropout=self.input_dropout,
            noise=self.noise,
            input_noise=self.input_noise,
            start=self.start,
        )
        if self.weight_range is not None:
            for name, weight in model.named_parameters():
                if name.endswith("weight") and weight.ndim > 1:
                    nn.init.uniform_(weight, -self.weight_range, self.weight_range)
        if self.sparse_inputs:
            # The weights of one input are adjacent in memory: inputs are added one by one.
            weight = next(p for p in model.parameters() if p.ndim > 1)
            by_input = weight.data.flatten(0, -2).t().contiguous()
            weight.data = by_input.t().unflatten(0, weight.shape[:-1])
        return model

    def widened(self, inputs: int, classes: int) -> tuple[int, ...]:
        """Hidden layers of single-filter units with as many weights as the pooled ones have.

        >>> FeedForward("mnist", hidden=(240, 240), filters=5).widened(784, 10)
        (782, 782)
        """

        def weights(hidden: tuple[int, ...], filters: int) -> int:
            sizes = (inputs, *hidden)
            pairs = zip(sizes, hidden, strict=False)
            return sum(n * units * filters for n, units in pairs) + sizes[-1] * classes

        goal = weights(self.hidden, self.filters)
        low, high = 1.0, float(self.filters)
        for _ in range(40):
            middle = (low + high) / 2
            below = weights(tuple(round(middle * n) for n in self.hidden), 1) < goal
            low, high = (middle, high) if below else (low, middle)
        return tuple(round(high * n) for n in self.hidden)


@dataclass(frozen=True)
class Convolutional(Training):
    """A small convolutional network that ends with global pooling by a norm.

    Convolutions of 3 x 3 with batch normalisation and ReLU, all but the last with stride 2; then
    :class:`~lpunits.GlobalLpPool` and a linear output. After a ReLU, order 1 is average pooling and
    order inf is max pooling, so they are the same network with another order.

    Args:
        channels: The channels of each convolution.
        order: The order of every channel's norm, or where it starts.
        learn_order: Whether it is learned, one for each channel.
        shared: Whether one order serves all channels.
    """

    channels: tuple[int, ...] = (16, 32, 64)
    order: float = 3.0
    learn_order: bool = True
    shared: bool = False

    @property
    def label(self) -> str:
        """The dataset, the channels and the pooling."""
        how = "learned from" if self.learn_order else "fixed at"
        one = "one " * self.shared
        sizes = "-".join(map(str, self.channels))
        return f"{self.source}, convolutions {sizes}, {one}p {how} {self.order:g}"

    def model(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """The network at its start, for rows of features that were images of this shape."""
        if len(shape) != 2:
            raise ValueError(f"data must be of images, got {self.data!r} with the shape {shape}")
        if self.sparse_inputs:
            raise ValueError("sparse_inputs must be False for convolutions, got True")
        layers: list[nn.Module] = [nn.Unflatten(1, (1, *shape))]
        *steps, last = self.channels
        sizes = zip((1, *steps), self.channels, [2] * len(steps) + [1], strict=True)
        for before, after, step in sizes:
            convolution = nn.Conv2d(before, after, 3, step, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(after), nn.ReLU()]
        learned, shared = self.learn_order, self.shared
        pool = GlobalLpPool(last, order=self.order, learn_order=learned, shared=shared)
        return nn.Sequential(*layers, pool, nn.Linear(last, classes))
