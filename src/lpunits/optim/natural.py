"""Natural conjugate gradient: second-order training of small and medium-sized models."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from lpunits.arguments import check_choice
from lpunits.optim.fisher import LOSSES, Fisher
from lpunits.optim.solvers import conjugate_gradient, minimal_residual, nelder_mead

Batch = tuple[Tensor, Tensor]

SOLVERS = {"cg": conjugate_gradient, "minres": minimal_residual}
DENSE_UP_TO, LEAST_DAMPING, MOST_DAMPING = 400, 1e-12, 1e12  # parameters; the range of lambda


@dataclass(frozen=True)
class Stop:
    """How :meth:`~lpunits.optim.NaturalConjugateGradient.minimize` ended."""

    reason: Literal["target", "steps", "stall", "zero gradient", "loss not finite"]
    steps: int
    loss: float


class Memory(NamedTuple):
    """What a step keeps for the next one: its direction, its gradient g, and g n."""

    direction: Tensor
    gradient: Tensor
    slope: float


class NaturalConjugateGradient:
    r"""Natural gradient steps, each combined with the step before (Pascanu and Bengio, 2013).

    The natural gradient n solves :math:`(F + \lambda I) n = -g`, with g the gradient of the loss
    and F the Fisher matrix of the model's output distribution. The parameters then move by
    :math:`a \, n + b \, d`, where d is the step before, and a and b are found together by a search
    of the loss in this plane: it starts from :math:`a = 1, b = 0` and from the minimum of the
    quadratic model, and continues by Nelder and Mead's method. (The paper's step length and
    :math:`\beta` are a and b / a.) The memory is dropped after every ``restart`` steps, after a
    step that was not a descent direction, and after one that did not decrease the loss.

    The Fisher matrix of an Lp network is singular, so the damping :math:`\lambda` is never 0. It
    is multiplied by 3/2 if a natural gradient step reaches less than 1/4 of the decrease that the
    quadratic model predicts, by 2/3 if it reaches more than 3/4, and by 4 if no point of the plane
    decreases the loss; the parameters then stay unchanged.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(300, 2)
    >>> y = (x.norm(dim=1) < 1).long()
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    >>> optimizer = NaturalConjugateGradient(model)
    >>> optimizer.step(x, y) < 0.69  # log 2, the loss of guessing
    True
    >>> optimizer.minimize(x, y, steps=100, target=0.01).reason
    'target'

    Args:
        model: Maps a batch of inputs, samples first, to outputs. Dropout and batch normalisation
            must be in evaluation mode: the loss must be a deterministic mean over samples.
        loss: What the outputs mean. ``"softmax"``: scores ``(samples, classes)``, targets are class
            indices. ``"logistic"``: log-odds of any shape, targets are of the same shape, from 0
            to 1. ``"squared"``: means of any shape, targets are of the same shape, and the loss is
            half of the mean squared error.
        beta: ``"search"``, as above; ``"polak-ribiere"``, a formula for :math:`\beta` and a search
            for the step length alone; or ``"zero"``, plain natural gradient.
        solver: For the linear system: ``"dense"``, a factorisation; ``"cg"`` or ``"minres"``, from
            products with F alone. By default dense up to 400 parameters, then ``"cg"``.
        damping: The first :math:`\lambda`.
        restart: Steps after which the memory is dropped.
        evaluations: The maximum number of evaluations of the loss in a search.
        tolerance: The relative residual to which ``"cg"`` and ``"minres"`` solve.
        products: The maximum number of products with F in one solution.

    Attributes:
        damping: The current :math:`\lambda`.
        beta: b / a of the last step; 0 if it had no memory or did not move.
        steps: The number of steps so far.
        stationary: Whether the gradient of the last step was zero.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        loss: str = "softmax",
        beta: str = "search",
        solver: str | None = None,
        damping: float = 1e-2,
        restart: int = 40,
        evaluations: int = 30,
        tolerance: float = 1e-4,
        products: int = 250,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        if not self._parameters:
            raise ValueError("model must have parameters that require a gradient, got none")
        size = sum(p.numel() for p in self._parameters)
        solver = ("dense" if size <= DENSE_UP_TO else "cg") if solver is None else solver
        check_choice("loss", loss, LOSSES)
        check_choice("beta", beta, ("search", "polak-ribiere", "zero"))
        check_choice("solver", solver, ("dense", *SOLVERS))
        for name, number in (("damping", damping), ("tolerance", tolerance)):
            real = isinstance(number, Real) and not isinstance(number, bool)
            if not real or not 0 < number < math.inf:
                raise ValueError(f"{name} must be a positive number, got {number!r}")
        _check_count("restart", restart, 1)
        _check_count("evaluations", evaluations, 3)
        _check_count("products", products, 2)
        self.model, self.damping, self.beta, self.steps = model, float(damping), 0.0, 0
        self._loss, self._rule, self._solver = LOSSES[loss], beta, solver
        self._restart, self._evaluations = restart, evaluations
        self._tolerance, self._products = tolerance, products
        self.stationary = False
        self._memory: Memory | None = None
        self._since = 0  # steps since the memory was dropped

    def step(
        self,
        inputs: Tensor,
        targets: Tensor,
        *,
        metric: Tensor | None = None,
        search: Batch | None = None,
    ) -> float:
        """Make one step and return the loss after it, on the batch of the search.

        Args:
            inputs: The batch for the gradient.
            targets: Its targets.
            metric: Inputs for the Fisher matrix; ``inputs`` by default.
            search: Inputs and targets for the search; those of the gradient by default.

        Raises:
            FloatingPointError: The loss or its gradient is not finite before the step.
        """
        before, g = self._gradient(inputs, targets)
        if search is not None:
            before = self._evaluate(*search)
        if not math.isfinite(before) or not g.isfinite().all():
            raise FloatingPointError(
                "the loss must be finite, with a finite gradient, "
                f"got the loss {before} before step {self.steps + 1}"
            )
        self.steps += 1
        self.stationary = not g.any()
        if self.stationary:
            self._forget()
            return before
        if self._since >= self._restart:
            self._forget()
        product, n = self._natural_gradient(g, inputs if metric is None else metric)
        basis = self._basis(g, n)

        theta = torch.cat([p.detach().flatten() for p in self._parameters])
        batch = (inputs, targets) if search is None else search

        def along(point: tuple[float, ...]) -> Tensor:
            return sum((x * v for x, v in zip(point, basis, strict=True)), torch.zeros_like(theta))

        def value(point: tuple[float, ...]) -> float:
            self._move(theta + along(point))
            return self._evaluate(*batch)

        plane = torch.stack(basis).double()
        slope = plane @ g.double()
        bend = plane @ torch.stack([product(v) for v in basis]).double().T
        try:
            (after, point), ratio = self._search(value, before, slope, bend)
        except BaseException:  # do not leave the parameters at a trial point
            self._move(theta)
            raise

        if not after < before:
            self._move(theta)
            self._scale_damping(4.0)
            self._forget()
            return before
        self._scale_damping(1.5 if not ratio >= 0.25 else 2 / 3 if ratio > 0.75 else 1.0)
        step = along(point)
        self._move(theta + step)
        if len(point) == 2:
            self.beta = point[1] / point[0] if point[0] else math.inf
        self._since += 1
        if self._rule == "zero" or not g @ step < 0:
            self._forget()
        else:
            self._memory = Memory(step if self._rule == "search" else basis[0], g, float(g @ n))
        return after

    def minimize(
        self,
        inputs: Tensor,
        targets: Tensor,
        *,
        steps: int,
        target: float | Callable[[], bool] = 0.0,
        patience: int = 20,
        progress: float = 1e-3,
        metric: Tensor | None = None,
        search: Batch | None = None,
    ) -> Stop:
        """Make steps until the target is reached, the loss stalls, or ``steps`` are done.

        Args:
            inputs: The batch for the gradient.
            targets: Its targets.
            steps: The maximum number of steps.
            target: The loss to reach, or a function that says after each step whether to stop.
            patience: The loss stalls if over this many steps it falls by less than ...
            progress: ... this fraction of itself.
            metric: As for :meth:`step`.
            search: As for :meth:`step`.
        """
        _check_count("steps", steps, 1)
        _check_count("patience", patience, 1)
        losses: list[float] = []

        def stop(reason: Any) -> Stop:
            return Stop(reason, len(losses), losses[-1] if losses else math.nan)

        while len(losses) < steps:
            try:
                losses.append(self.step(inputs, targets, metric=metric, search=search))
            except FloatingPointError:
                return stop("loss not finite")
            if target() if callable(target) else losses[-1] <= target:
                return stop("target")
            if self.stationary:
                return stop("zero gradient")
            if len(losses) > patience and losses[-1] > (1 - progress) * losses[-1 - patience]:
                return stop("stall")
        return stop("steps")

    def state_dict(self) -> dict[str, Any]:
        """The state besides the model: numbers, tensors and None."""
        memory = (None, None, None) if self._memory is None else self._memory
        return {
            "damping": self.damping,
            "beta": self.beta,
            "steps": self.steps,
            "since_restart": self._since,
            **dict(zip(Memory._fields, memory, strict=True)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from the state of another optimiser, with identical results."""
        missing = self.state_dict().keys() - state.keys()
        if missing:
            raise ValueError(f"state must hold {', '.join(sorted(missing))}, got {sorted(state)}")
        memory = None
        if state["direction"] is not None:
            size = sum(p.numel() for p in self._parameters)
            if state["direction"].shape != (size,):
                raise ValueError(
                    f"state must be of a model with {size} parameters, "
                    f"got a direction of the shape {tuple(state['direction'].shape)}"
                )
            like = self._parameters[0].detach()
            direction, gradient = (
                state[name].detach().to(like, copy=True) for name in ("direction", "gradient")
            )
            memory = Memory(direction, gradient, state["slope"])
        self.damping, self.beta, self.steps = state["damping"], state["beta"], state["steps"]
        self._memory, self._since = memory, state["since_restart"]

    def _forget(self) -> None:
        """Drop the memory: the next step is a natural gradient step."""
        self._memory, self._since, self.beta = None, 0, 0.0

    def _basis(self, g: Tensor, n: Tensor) -> list[Tensor]:
        """The directions to search: n, n and the last step, or their combination by the formula."""
        if self._memory is None:
            return [n]
        if self._rule == "search":
            return [n, self._memory.direction]
        factor = float((g - self._memory.gradient) @ n) / self._memory.slope
        direction = n + max(factor, 0.0) * self._memory.direction
        if not g @ direction < 0:
            self._forget()
            return [n]
        self.beta = max(factor, 0.0)
        return [direction]

    def _gradient(self, inputs: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        with torch.enable_grad():
            loss = self._mean_loss(inputs, targets)
            grads = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        parts = zip(grads, self._parameters, strict=True)
        flat = [(torch.zeros_like(p) if g is None else g).flatten() for g, p in parts]
        return float(loss.detach()), torch.cat(flat)

    @torch.no_grad()
    def _evaluate(self, inputs: Tensor, targets: Tensor) -> float:
        return float(self._mean_loss(inputs, targets))

    def _mean_loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The loss, after checks of the outputs and the targets."""
        outputs = self.model(inputs)
        if not isinstance(outputs, Tensor) or not outputs.is_floating_point():
            got = outputs.dtype if isinstance(outputs, Tensor) else type(outputs).__name__
            raise TypeError(f"model must return a floating-point tensor, got {got}")
        shape = tuple(outputs.shape)
        if self._loss.per_output:
            if targets.shape != outputs.shape:
                raise ValueError(
                    f"targets must have the shape {shape} of the outputs, "
                    f"got {tuple(targets.shape)}"
                )
            targets = targets.to(outputs.dtype)
        elif len(shape) != 2:
            raise ValueError(f"model must return scores (samples, classes), got the shape {shape}")
        elif targets.shape != shape[:1] or targets.is_floating_point():
            raise ValueError(
                f"targets must be {shape[0]} class numbers, "
                f"got the shape {tuple(targets.shape)} of {targets.dtype}"
            )
        return self._loss.value(outputs, targets)

    def _natural_gradient(
        self, g: Tensor, inputs: Tensor
    ) -> tuple[Callable[[Tensor], Tensor], Tensor]:
        """The product with F, and n."""
        fisher = Fisher(self.model, self._loss, inputs)
        if self._solver != "dense":
            solve = SOLVERS[self._solver]
            damped = lambda v: fisher.product(v) + self.damping * v  # noqa: E731
            return fisher.product, solve(damped, -g, self._tolerance, self._products).x
        F = fisher.dense()
        if not F.isfinite().all():
            raise FloatingPointError("the Fisher matrix must be finite, got one that is not")
        while True:
            factor, failed = torch.linalg.cholesky_ex(F + self.damping * torch.eye(len(F)).to(F))
            if not failed:
                break
            self._scale_damping(4.0)
        n = -torch.cholesky_solve(g.to(F).unsqueeze(1), factor).squeeze(1)
        return (lambda v: F @ v.to(F)), n.to(g)

    def _search(
        self,
        value: Callable[[tuple[float, ...]], float],
        before: float,
        slope: Tensor,
        bend: Tensor,
    ) -> tuple[tuple[float, tuple[float, ...]], float]:
        """The best point, and the fraction of the predicted decrease that n reached."""
        # In the plane the quadratic model is slope @ x + x @ bend @ x / 2.
        first = (1.0,) + (0.0,) * (len(slope) - 1)
        trial = (value(first), first)
        ratio = (before - trial[0]) / -float(slope[0] + bend[0, 0] / 2)
        scale = bend.diagonal().rsqrt()  # n may be many orders of magnitude shorter than d
        inverse = torch.linalg.pinv((scale * bend * scale[:, None]).nan_to_num(), hermitian=True)
        lowest = tuple((-scale * (inverse @ (scale * slope))).tolist())
        corners = [trial]
        if all(map(math.isfinite, lowest)):
            corners.append((value(lowest), lowest))
        corners.sort(key=lambda corner: math.inf if math.isnan(corner[0]) else corner[0])
        left = self._evaluations - len(corners)
        origin = (before, (0.0,) * len(slope))
        best = corners[0]
        if len(slope) == 1:
            corners = [best, origin]
        elif len(corners) < 2 or abs(lowest[1]) < 0.1:  # the three would be collinear
            beside = (best[1][0], best[1][1] + 0.5)
            corners = [best, origin, (value(beside), beside)]
            left -= 1
        else:
            corners.append(origin)
        found = nelder_mead(value, corners, left, 0.01)
        return found, ratio

    def _move(self, theta: Tensor) -> None:
        with torch.no_grad():
            sizes = [p.numel() for p in self._parameters]
            for p, part in zip(self._parameters, theta.split(sizes), strict=True):
                p.copy_(part.view_as(p))

    def _scale_damping(self, factor: float) -> None:
        self.damping = min(max(self.damping * factor, LEAST_DAMPING), MOST_DAMPING)


def _check_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
