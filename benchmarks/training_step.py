"""A training step of the paper's network, and the part of it that is not matrix products.

784 inputs, two layers of 240 units with 5 filters each, 10 classes, a batch of 100; dropout of 0.2
on the inputs and 0.5 on the units, SGD with momentum and a maximum norm of the filters. All
contestants use our dropout and our optimiser, so only the unit differs. One uses torch's instead,
like a program that depends on torch alone.
"""

import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lpunits import MLP, Dropout, LpLinear, MaxoutLinear, reference
from lpunits.optim import SGD
from report import print_table
from timing import (
    BOTH,
    OURS,
    Case,
    Contestant,
    Result,
    Settings,
    checked,
    compare,
    compile_whole,
    compiled,
    measure,
)

QUESTION = "training step"
STEP = "step of MLP(784, [240, 240], 10, filters=5)"
LAYER = "LpLinear(784, 240, 5)"
PRODUCTS = "matrix products"
BATCH, INPUTS, UNITS, FILTERS, CLASSES = 100, 784, 240, 5, 10
INPUT_DROPOUT, DROPOUT = 0.2, 0.5
RATE, MOMENTUM, MAX_NORM = 0.01, 0.5, 1.9365


class TorchMaxout(nn.Linear):
    """Maxout as one would write it with torch alone."""

    def __init__(self, in_features: int, units: int, filters: int, *, amax: bool) -> None:
        super().__init__(in_features, filters * units)
        self.groups, self.amax = (filters, units), amax

    def forward(self, x: Tensor) -> Tensor:
        """``(batch, in_features)`` to ``(batch, units)``."""
        z = super().forward(x).unflatten(-1, self.groups)
        return z.amax(-2) if self.amax else z.max(-2).values


class Trainer:
    """A network and how it learns: by our optimiser, or by torch's and a projection."""

    def __init__(
        self, model: nn.Sequential, *, by_torch: bool = False, whole: bool = False
    ) -> None:
        self.model = model
        self.whole = compile_whole(model) if whole else None
        *hidden, _ = (layer.weight for layer in model if hasattr(layer, "weight"))
        self.filters = hidden if by_torch else []
        if by_torch:
            self.optimizer: torch.optim.Optimizer = torch.optim.SGD(
                model.parameters(), RATE, momentum=MOMENTUM, fused=True
            )
        else:
            rest = [p for p in model.parameters() if all(p is not w for w in hidden)]
            groups = [{"params": hidden, "max_norm": MAX_NORM}, {"params": rest}]
            self.optimizer = SGD(groups, RATE, momentum=MOMENTUM)

    def step(self, x: Tensor, y: Tensor) -> None:
        """What is timed."""
        for _, phase in self.phases(x, y):
            phase()

    def phases(self, x: Tensor, y: Tensor) -> Iterator[tuple[str, Callable[[], object]]]:
        """The parts of a step, by name, to be called in order."""
        loss: list[Tensor] = []
        yield "forward", lambda: loss.append(cross_entropy((self.whole or self.model)(x), y))
        yield "backward", lambda: loss[0].backward()
        yield "optimiser", self.update
        if self.filters:
            yield "max-norm", partial(limit_norms, self.filters)

    def update(self) -> None:
        """Momentum SGD."""
        self.optimizer.step()
        self.optimizer.zero_grad()


@torch.no_grad()
def limit_norms(filters: list[Tensor]) -> None:
    """Shorten every filter that is longer than the maximum."""
    for weight in filters:
        norm = torch.linalg.vector_norm(weight, dim=-1, keepdim=True)
        weight.mul_(MAX_NORM / norm.clamp_(min=MAX_NORM))


def run(settings: Settings) -> list[Result]:
    """The step of each network, and the largest of its layers alone."""
    x, y = _data()
    trainers = _trainers()
    if settings.compile:
        trainers |= {
            compiled(name): Trainer(deepcopy(trainer.model), whole=True)
            for name, trainer in trainers.items()
            if not trainer.filters
        }
    for trainer in trainers.values():
        trainer.model.eval()  # what is checked has no dropout
    networks = [_contestant(name, t.model, x, t.whole) for name, t in trainers.items()]
    right = [network.name for network in checked(STEP, networks)]
    for trainer in trainers.values():
        trainer.model.train()
    steps = [
        Contestant(name, trainers[name].step, (x, y), compiled=trainers[name].whole is not None)
        for name in right
    ]
    forward, backward = _products(x)
    steps.append(Contestant(PRODUCTS, lambda: (forward(), backward())))
    step = Case(QUESTION, STEP, "batch 100", None, steps, (BOTH,))
    layer = Case(QUESTION, LAYER, "batch 100", None, _layers(x))
    return measure(step, settings) + measure(layer, settings)


def breakdown(settings: Settings) -> dict[str, dict[str, float]]:
    """Print where the time of a step goes, in microseconds; the best of many steps per phase."""
    x, y = _data()
    trainers = _trainers()
    best: dict[str, dict[str, float]] = {name: {} for name in trainers}
    end = time.perf_counter() + settings.seconds * len(trainers)
    while not best[OURS] or time.perf_counter() < end:
        for name, trainer in trainers.items():
            for phase, call in trainer.phases(x, y):
                start = time.perf_counter()
                call()
                taken = 1e6 * (time.perf_counter() - start)
                best[name][phase] = min(best[name].get(phase, taken), taken)
    forward, backward = _products(x)
    parts = {"forward": forward, "backward": backward}
    best[PRODUCTS] = {name: 1e6 * t.best for name, t in compare(parts, settings).items()}
    phases = dict.fromkeys(phase for times in best.values() for phase in times)
    rows = [
        [name, *(f"{times[phase]:.0f}" if phase in times else "" for phase in phases)]
        for name, times in best.items()
    ]
    print_table("Where a step's time goes, microseconds", ["", *phases], rows)
    return best


def _data() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.rand(BATCH, INPUTS), torch.randint(CLASSES, (BATCH,))


def _trainers() -> dict[str, Trainer]:
    """The networks, each with its optimiser."""
    options = {"dropout": DROPOUT, "input_dropout": INPUT_DROPOUT}
    net = partial(MLP, INPUTS, classes=CLASSES, **options)
    hidden = [UNITS, UNITS]
    return {
        OURS: Trainer(net(hidden, filters=FILTERS)),
        "maxout, amax": Trainer(_torch_maxout(amax=True)),
        "maxout, max": Trainer(_torch_maxout(amax=False)),
        "maxout, amax, all torch's": Trainer(_torch_maxout(True, nn.Dropout), by_torch=True),
        "ReLU, 240 units": Trainer(net(hidden, activation="relu")),
        # About as many weights, and so about the same work in matrix products.
        "ReLU, 780 units": Trainer(net([780, 780], activation="relu")),
    }


def _torch_maxout(amax: bool, dropout: type[nn.Dropout] = Dropout) -> nn.Sequential:
    return nn.Sequential(
        dropout(INPUT_DROPOUT),
        TorchMaxout(INPUTS, UNITS, FILTERS, amax=amax),
        dropout(DROPOUT),
        TorchMaxout(UNITS, UNITS, FILTERS, amax=amax),
        dropout(DROPOUT),
        nn.Linear(UNITS, CLASSES),
    )


def _layers(x: Tensor) -> list[Contestant]:
    """The first layer alone, as if it were inside a network: its input wants a gradient, too."""
    x = x.clone().requires_grad_()
    size = INPUTS, UNITS, FILTERS
    linear = nn.Linear(INPUTS, UNITS * FILTERS)
    layers = {
        OURS: LpLinear(*size),
        "MaxoutLinear": MaxoutLinear(*size),
        "maxout, amax": TorchMaxout(*size, amax=True),
        "maxout, max": TorchMaxout(*size, amax=False),
        "Linear + ReLU": nn.Sequential(linear, nn.ReLU()),
        "Linear": linear,
    }
    return [_contestant(name, layer, x) for name, layer in layers.items()]


def _contestant(
    name: str, module: nn.Module, x: Tensor, function: Callable[[Tensor], Tensor] | None = None
) -> Contestant:
    """A module, or its compiled form, with what it has to compute.

    That is the same module in double precision, with the reference in place of the Lp units.
    """
    twin = deepcopy(module).double()
    first = h = x.detach().double().requires_grad_(x.requires_grad)
    for layer in twin if isinstance(twin, nn.Sequential) else [twin]:
        if isinstance(layer, LpLinear):
            h = reference.lp_linear(h, layer.weight, layer.center, layer.rho)
            h = h if layer.bias is None else h + layer.bias
        else:
            h = layer(h)
    upstream = torch.randn(h.shape)
    learned = [t for t in (first, *twin.parameters()) if t.requires_grad]
    expected = h.detach(), *torch.autograd.grad(h, learned, upstream.double())
    return Contestant(
        name,
        function or module,
        (x,),
        tuple(module.parameters()),
        upstream,
        expected,
        compiled=function is not None,
    )


def _products(x: Tensor) -> tuple[Callable[[], None], Callable[[], None]]:
    """Exactly the matrix products of a step, nothing else: forward, and backward."""
    sizes = [(INPUTS, UNITS * FILTERS), (UNITS, UNITS * FILTERS), (UNITS, CLASSES)]
    inputs = [x, torch.rand(BATCH, UNITS), torch.rand(BATCH, UNITS)]
    weights = [torch.rand(outputs, size) for size, outputs in sizes]
    z = [torch.rand(BATCH, outputs) for _, outputs in sizes]
    by_z = [torch.rand_like(t) for t in z]
    by_weight, by_input = map(torch.empty_like, weights), map(torch.empty_like, inputs)
    layers = list(zip(inputs, weights, z, by_z, by_weight, by_input, strict=True))

    def forward() -> None:
        for a, w, out, *_ in layers:
            torch.mm(a, w.t(), out=out)

    def backward() -> None:
        for a, w, _, g, by_w, by_a in layers:
            torch.mm(g.t(), a, out=by_w)
            if a is not x:  # nobody asks for the gradient of the data
                torch.mm(g, w, out=by_a)

    return forward, backward
