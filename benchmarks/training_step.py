"""A training step of the paper's network, and what of it is not matrix multiplication.

784 inputs, two layers of 240 units with 5 filters each, 10 classes, a batch of 100; dropout of 0.2
on the inputs and 0.5 on the units, SGD with momentum, and the length of every filter held below a
maximum.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lpunits import MLP, LpLinear, reference
from lpunits.optim import SGD
from report import print_table
from timing import BOTH, OURS, Case, Contestant, Result, Settings, check, compare, measure, threads

QUESTION = "training step"
STEP = "step of MLP(784, [240, 240], 10, filters=5)"
LAYER = "LpLinear(784, 240, 5)"
PRODUCTS = "matrix products"
BATCH, INPUTS, UNITS, FILTERS, CLASSES = 100, 784, 240, 5, 10
INPUT_DROPOUT, DROPOUT = 0.2, 0.5
RATE, MOMENTUM, MAX_NORM = 0.01, 0.5, 1.9365


class Trainer:
    """A network and how it learns: by our optimiser, or by torch's and a projection."""

    def __init__(self, model: nn.Sequential, optimizer: str) -> None:
        self.model = model
        *hidden, _ = (layer.weight for layer in model if hasattr(layer, "weight"))
        self.filters = [] if optimizer == OURS else hidden
        if optimizer == OURS:
            rest = [p for p in model.parameters() if all(p is not w for w in hidden)]
            groups = [{"params": hidden, "max_norm": MAX_NORM}, {"params": rest}]
            self.optimizer: torch.optim.Optimizer = SGD(groups, RATE, momentum=MOMENTUM)
        else:
            self.optimizer = torch.optim.SGD(
                model.parameters(), RATE, momentum=MOMENTUM, fused=True
            )

    def step(self, x: Tensor, y: Tensor) -> None:
        """What is timed."""
        for _, phase in self.phases(x, y):
            phase()

    def phases(self, x: Tensor, y: Tensor) -> Iterator[tuple[str, Callable[[], object]]]:
        """The parts of a step, by name, to be called in order."""
        loss: list[Tensor] = []
        yield "forward", lambda: loss.append(cross_entropy(self.model(x), y))
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


class TorchMaxout(nn.Linear):
    """Maxout as one would write it with torch alone."""

    def __init__(self, in_features: int, units: int, filters: int, *, amax: bool) -> None:
        super().__init__(in_features, filters * units)
        self.groups, self.amax = (filters, units), amax

    def forward(self, x: Tensor) -> Tensor:
        """``(batch, in_features)`` to ``(batch, units)``."""
        z = super().forward(x).unflatten(-1, self.groups)
        return z.amax(-2) if self.amax else z.max(-2).values


def run(settings: Settings) -> list[Result]:
    """The step of each network, and the largest of its layers alone."""
    torch.manual_seed(0)
    x, y = torch.rand(BATCH, INPUTS), torch.randint(CLASSES, (BATCH,))
    with threads(max(settings.threads)):
        check(_checked_network(x))
    steps = [Contestant(name, partial(trainer.step, x, y)) for name, trainer in _trainers().items()]
    forward, backward = _products(x)
    steps.append(Contestant(PRODUCTS, lambda: (forward(), backward())))
    # A step is one call, so its "mode" is the whole of it.
    results = []
    for count in settings.threads:
        with threads(count):
            for name, timing in compare(
                {c.name: c.function for c in steps}, settings.effort
            ).items():
                results.append(Result(QUESTION, STEP, "batch 100", name, BOTH, count, None, timing))
    return results + measure(Case(QUESTION, LAYER, "batch 100", None, _layers(x)), settings)


def breakdown(settings: Settings) -> dict[str, dict[str, float]]:
    """Print where the time of a step goes, in microseconds; the best of many steps per phase."""
    torch.manual_seed(0)
    x, y = torch.rand(BATCH, INPUTS), torch.randint(CLASSES, (BATCH,))
    trainers = {
        name: trainer
        for name, trainer in _trainers().items()
        if name in (OURS, "torch maxout, amax", "ReLU, 240 units")
    }
    with threads(max(settings.threads)):
        best: dict[str, dict[str, float]] = {name: {} for name in trainers}
        end = time.perf_counter() + settings.effort.seconds * len(trainers)
        while not best[OURS] or time.perf_counter() < end:
            for name, trainer in trainers.items():
                for phase, call in trainer.phases(x, y):
                    start = time.perf_counter()
                    call()
                    taken = 1e6 * (time.perf_counter() - start)
                    best[name][phase] = min(best[name].get(phase, taken), taken)
        forward, backward = _products(x)
        parts = {"forward": forward, "backward": backward, "dropout": _dropout(x)}
        best[PRODUCTS] = {k: 1e6 * t.best for k, t in compare(parts, settings.effort).items()}
    dropout = best[PRODUCTS].pop("dropout")
    rows = [
        [phase, *(f"{times[phase]:.0f}" if phase in times else "" for times in best.values())]
        for phase in best[OURS]
    ]
    rows.append(["sum", *(f"{sum(times.values()):.0f}" for times in best.values())])
    print_table(
        f"Where a step's time goes, microseconds, {max(settings.threads)} threads",
        ["", *best],
        rows,
        f"In forward and backward: all dropout, with its backward, takes {dropout:.0f} by itself.",
    )
    return best | {"dropout": {"forward + backward": dropout}}


def _networks() -> dict[str, nn.Sequential]:
    options = {"dropout": DROPOUT, "input_dropout": INPUT_DROPOUT}
    hidden = [UNITS, UNITS]
    return {
        OURS: MLP(INPUTS, hidden, CLASSES, filters=FILTERS, **options),
        "MaxoutLinear": MLP(
            INPUTS, hidden, CLASSES, activation="maxout", filters=FILTERS, **options
        ),
        "torch maxout, amax": _torch_network(amax=True),
        "torch maxout, max": _torch_network(amax=False),
        "ReLU, 240 units": MLP(INPUTS, hidden, CLASSES, activation="relu", **options),
        # About as many weights, and so about the same work in matrix products.
        "ReLU, 780 units": MLP(INPUTS, [780, 780], CLASSES, activation="relu", **options),
    }


def _trainers() -> dict[str, Trainer]:
    """The networks with the optimiser of their own library, and one with that of the other."""
    trainers = {
        name: Trainer(model, "torch" if name.startswith("torch") else OURS)
        for name, model in _networks().items()
    }
    return trainers | {"torch maxout, amax, our SGD": Trainer(_torch_network(amax=True), OURS)}


def _torch_network(amax: bool) -> nn.Sequential:
    return nn.Sequential(
        nn.Dropout(INPUT_DROPOUT),
        TorchMaxout(INPUTS, UNITS, FILTERS, amax=amax),
        nn.Dropout(DROPOUT),
        TorchMaxout(UNITS, UNITS, FILTERS, amax=amax),
        nn.Dropout(DROPOUT),
        nn.Linear(UNITS, CLASSES),
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


def _dropout(x: Tensor) -> Callable[[], None]:
    """The dropout of a step by itself, with its backward where there is one."""
    data, units = nn.Dropout(INPUT_DROPOUT), nn.Dropout(DROPOUT)
    hidden = torch.rand(BATCH, UNITS, requires_grad=True)
    upstream = torch.rand(BATCH, UNITS)

    def dropout() -> None:
        data(x)
        for _ in range(2):
            torch.autograd.grad(units(hidden), hidden, upstream)

    return dropout


def _layers(x: Tensor) -> list[Contestant]:
    """The first layer alone, as if it were inside a network: its input wants a gradient, too."""
    x = x.clone().requires_grad_()
    layer, linear = LpLinear(INPUTS, UNITS, FILTERS), nn.Linear(INPUTS, UNITS * FILTERS)
    upstream, upstream_linear = torch.randn(BATCH, UNITS), torch.randn(BATCH, UNITS * FILTERS)
    found = [_reference_layer(layer, x, upstream)]
    for amax in (True, False):
        maxout = TorchMaxout(INPUTS, UNITS, FILTERS, amax=amax)
        name = f"torch maxout, {'amax' if amax else 'max'}"
        found.append(Contestant(name, partial(maxout, x), (x, *maxout.parameters()), upstream))
    relu = nn.Sequential(linear, nn.ReLU())
    learned = (x, *linear.parameters())
    found.append(Contestant("Linear + ReLU", partial(relu, x), learned, upstream_linear))
    found.append(Contestant("Linear", partial(linear, x), learned, upstream_linear))
    return found


def _reference_layer(layer: LpLinear, x: Tensor, upstream: Tensor) -> Contestant:
    learned = (x, layer.weight, layer.center, layer.rho)
    doubles = [t.detach().double().requires_grad_() for t in learned]
    u = reference.lp_linear(*doubles)
    truth = (u.detach(), *torch.autograd.grad(u, doubles, upstream.double()))
    return Contestant(OURS, partial(layer, x), learned, upstream, truth)


def _checked_network(x: Tensor) -> Contestant:
    """Our network without dropout, whose every gradient has to be the reference's."""
    model = MLP(INPUTS, [UNITS, UNITS], CLASSES, filters=FILTERS)
    learned = tuple(model.parameters())
    named = {name: t.detach().double().requires_grad_() for name, t in model.named_parameters()}
    h = x.double()
    for index in range(2):
        h = reference.lp_linear(
            h, *(named[f"{index}.{name}"] for name in ("weight", "center", "rho"))
        )
    logits = h @ named["2.weight"].t() + named["2.bias"]
    upstream = torch.randn(BATCH, CLASSES)
    gradients = torch.autograd.grad(logits, list(named.values()), upstream.double())
    truth = (logits.detach(), *gradients)
    return Contestant("our network", partial(model, x), learned, upstream, truth)
