import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from lpunits import MLP
from lpunits.optim import NaturalConjugateGradient
from lpunits.optim.natural import LEAST_DAMPING

X = torch.randn(200, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
CLASS = (X.sum(1) + X[:, 0] ** 2).ge(0.5).long() + X[:, 1].ge(1).long()
RULES = ["search", "polak-ribiere", "zero"]


def net(**options) -> MLP:
    return MLP(3, [4], 3, dtype=torch.float64, **options)


class Quadratic(nn.Module):
    """Outputs sqrt(k) * theta: with targets of 0 the loss is a quadratic with curvatures k / n."""

    def __init__(self, curvatures: list[float]) -> None:
        super().__init__()
        self.root = torch.tensor(curvatures, dtype=torch.float64).sqrt()
        self.theta = nn.Parameter(torch.linspace(1, 2, len(curvatures), dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.root * self.theta).expand(len(x), -1)


@pytest.mark.parametrize("solver", ["dense", "cg", "minres"])
@pytest.mark.parametrize("beta", RULES)
def test_it_reaches_the_optimum_of_lbfgs_on_a_linear_softmax(solver, beta):
    model = nn.Linear(3, 3, dtype=torch.float64)
    twin = copy.deepcopy(model)
    lbfgs = torch.optim.LBFGS(
        twin.parameters(), max_iter=500, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        lbfgs.zero_grad()
        loss = cross_entropy(twin(X), CLASS)
        loss.backward()
        return loss

    lbfgs.step(closure)
    optimizer = NaturalConjugateGradient(model, beta=beta, solver=solver)
    stop = optimizer.minimize(X, CLASS, steps=60, progress=1e-12, patience=3)
    assert stop.loss == pytest.approx(closure().item(), abs=1e-9)
    assert stop.loss == cross_entropy(model(X), CLASS).item()


def test_conjugate_steps_solve_a_quadratic_in_as_many_as_it_has_distinct_curvatures():
    """Under an immense damping n is the gradient, and only the memory makes the steps conjugate."""
    x = torch.zeros(4, 1, dtype=torch.float64)
    targets = torch.zeros(4, 9, dtype=torch.float64)
    for beta, solved in (("search", True), ("zero", False)):
        model = Quadratic([1.0, 4.0, 20.0] * 3)
        optimizer = NaturalConjugateGradient(model, loss="squared", beta=beta, damping=1e9)
        start = optimizer.step(x, targets)
        for _ in range(2):
            last = optimizer.step(x, targets)
        assert (last < 1e-10 * start) == solved


def test_with_little_damping_a_quadratic_takes_one_step():
    model = Quadratic([1.0, 4.0, 20.0, 1e3])
    x, targets = torch.zeros(4, 1).double(), torch.zeros(4, 4).double()
    optimizer = NaturalConjugateGradient(model, loss="squared", damping=1e-10)
    assert optimizer.step(x, targets) < 1e-12


@pytest.mark.parametrize("beta", RULES)
def test_the_loss_never_rises(beta):
    model = net()
    optimizer = NaturalConjugateGradient(model, beta=beta)
    losses = [cross_entropy(model(X), CLASS).item()]
    losses += [optimizer.step(X, CLASS) for _ in range(50)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] == cross_entropy(model(X), CLASS).item()
    assert losses[-1] < 0.2 * losses[0]


def test_logistic_is_the_softmax_of_two_classes():
    """The same distribution: log-odds z, or scores (0, z). So the same steps, up to rounding."""

    class Scores(nn.Module):
        def __init__(self, odds: nn.Module) -> None:
            super().__init__()
            self.odds = odds

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            z = self.odds(x)
            return torch.cat([torch.zeros_like(z), z], 1)

    odds = MLP(3, [2], 1, dtype=torch.float64)
    scores = Scores(copy.deepcopy(odds))
    y = CLASS.clamp(max=1)
    logistic = NaturalConjugateGradient(odds, loss="logistic")
    softmax = NaturalConjugateGradient(scores)
    for _ in range(5):
        assert logistic.step(X, y.unsqueeze(1)) == pytest.approx(softmax.step(X, y), rel=1e-6)


def test_the_search_evaluates_at_most_as_often_as_allowed(monkeypatch):
    optimizer = NaturalConjugateGradient(net(), evaluations=30)
    calls = []
    evaluate = optimizer._evaluate
    monkeypatch.setattr(optimizer, "_evaluate", lambda *b: calls.append(0) or evaluate(*b))
    for _ in range(20):
        calls.clear()
        optimizer.step(X, CLASS)
        assert 2 <= len(calls) <= 30


def test_damping_follows_the_reduction_ratio():
    x, targets = torch.zeros(4, 1).double(), torch.zeros(4, 4).double()
    optimizer = NaturalConjugateGradient(Quadratic([1, 2, 3, 4]), loss="squared", damping=0.3)
    optimizer.step(x, targets)  # the quadratic model is exact: the ratio is 1
    assert optimizer.damping == pytest.approx(0.2)

    class Bent(Quadratic):
        """From 2, Newton's step to the zero of the arc tangent leads to -3.5."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (2 * self.theta).atan().expand(len(x), -1)

    optimizer = NaturalConjugateGradient(Bent([1.0]), loss="squared", damping=1e-9)
    loss = optimizer.step(x, torch.zeros(4, 1).double())
    assert loss < math.atan(2) ** 2 / 2
    assert optimizer.damping == pytest.approx(1.5e-9)


def test_where_nothing_decreases_the_parameters_stay_and_damping_grows():
    model = Quadratic([1.0, 2.0])
    x, theta = torch.zeros(4, 1).double(), model.theta.detach().clone()
    optimizer = NaturalConjugateGradient(model, loss="squared", damping=0.1)
    here = (x, model(x).detach())  # the batch of the search has its minimum where we are
    assert optimizer.step(x, torch.zeros(4, 2).double(), search=here) == 0
    assert torch.equal(model.theta, theta)
    assert optimizer.damping == pytest.approx(0.4)


def test_batches_are_used_for_what_they_are_given():
    def after(**batches):
        torch.manual_seed(0)
        model = net()
        loss = NaturalConjugateGradient(model).step(X[:100], CLASS[:100], **batches)
        return loss, torch.cat([p.detach().flatten() for p in model.parameters()]), model

    same, theta, _ = after()
    assert after(metric=X[:100], search=(X[:100], CLASS[:100]))[0] == same
    assert not torch.equal(after(metric=X[100:])[1], theta)
    loss, _, model = after(search=(X[100:], CLASS[100:]))
    assert loss == cross_entropy(model(X[100:]), CLASS[100:]).item()


@pytest.mark.parametrize("beta", RULES)
def test_a_restored_state_goes_on_to_the_same_bits(beta, tmp_path):
    model = net()
    optimizer = NaturalConjugateGradient(model, beta=beta)
    for _ in range(4):
        optimizer.step(X, CLASS)
    torch.save((model.state_dict(), optimizer.state_dict()), tmp_path / "state")
    expected = [optimizer.step(X, CLASS) for _ in range(4)]

    twin = net()
    weights, state = torch.load(tmp_path / "state", weights_only=True)
    twin.load_state_dict(weights)
    restored = NaturalConjugateGradient(twin, beta=beta)
    restored.load_state_dict(state)
    assert [restored.step(X, CLASS) for _ in range(4)] == expected


def test_the_memory_is_dropped_after_so_many_steps():
    optimizer = NaturalConjugateGradient(net(), restart=3)
    betas = []
    for _ in range(9):
        optimizer.step(X, CLASS)
        betas.append(optimizer.beta)
    assert betas[0] == 0
    assert any(betas)
    runs = "".join("0" if beta == 0 else "1" for beta in betas)
    assert "111" not in runs  # a step without memory, then at most two with it


class TestStops:
    def test_at_a_loss(self):
        stop = NaturalConjugateGradient(net()).minimize(X, CLASS, steps=100, target=0.3)
        assert (stop.reason, stop.loss <= 0.3) == ("target", True)

    def test_when_told(self):
        answers = iter([False, False, True])
        optimizer = NaturalConjugateGradient(net())
        stop = optimizer.minimize(X, CLASS, steps=100, target=lambda: next(answers))
        assert (stop.reason, stop.steps, optimizer.steps) == ("target", 3, 3)

    def test_after_so_many_steps(self):
        stop = NaturalConjugateGradient(net()).minimize(X, CLASS, steps=2)
        assert (stop.reason, stop.steps) == ("steps", 2)

    def test_at_a_stall(self):
        linear = nn.Linear(3, 3, dtype=torch.float64)  # a convex loss, whose minimum is not zero
        stop = NaturalConjugateGradient(linear).minimize(X, CLASS, steps=500, patience=5)
        assert stop.reason == "stall"
        assert stop.steps < 60

    def test_at_a_zero_gradient(self):
        model = Quadratic([1.0, 2.0])
        x, y = torch.zeros(4, 1).double(), torch.zeros(4, 2).double()
        with torch.no_grad():
            model.theta.zero_()
        optimizer = NaturalConjugateGradient(model, loss="squared")
        stop = optimizer.minimize(x, y, steps=9, target=-1.0)
        assert (stop.reason, stop.loss, stop.steps) == ("zero gradient", 0.0, 1)
        assert torch.equal(model.theta, torch.zeros(2).double())

    def test_at_a_loss_that_is_not_finite(self):
        model = net()
        optimizer = NaturalConjugateGradient(model)
        bad = X.clone()
        bad[0, 0] = math.nan
        with pytest.raises(FloatingPointError, match=r"loss must be finite, .* before step 1"):
            optimizer.step(bad, CLASS)
        stop = optimizer.minimize(bad, CLASS, steps=5)
        assert (stop.reason, stop.steps, math.isnan(stop.loss)) == ("loss not finite", 0, True)
        assert all(p.isfinite().all() for p in model.parameters())


def test_a_search_over_points_without_a_loss_finds_the_ones_with():
    """A model that breaks far from home: NaN outside a small box."""

    class Fragile(Quadratic):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            return y if (self.theta - 1.5).abs().max() < 0.6 else y * math.nan

    model = Fragile([1.0, 1.0])
    x, y = torch.zeros(4, 1).double(), torch.zeros(4, 2).double()
    optimizer = NaturalConjugateGradient(model, loss="squared")
    first = optimizer.step(x, y)
    assert math.isfinite(first)
    for _ in range(5):
        assert optimizer.step(x, y) <= first


def test_a_model_that_raises_in_the_search_keeps_its_parameters():
    class Breaks(Quadratic):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            if self.calls == 8:
                raise RuntimeError("out of memory")
            return super().forward(x)

    model = Breaks([1.0, 2.0])
    theta = model.theta.detach().clone()
    optimizer = NaturalConjugateGradient(model, loss="squared", damping=10.0)
    with pytest.raises(RuntimeError, match="out of memory"):
        optimizer.step(torch.zeros(4, 1).double(), torch.zeros(4, 2).double())
    assert torch.equal(model.theta, theta)


def test_middle_sized_models_are_solved_without_their_matrix(monkeypatch):
    from lpunits.optim.fisher import Fisher

    def refuse(self):
        raise AssertionError("no dense matrix")

    monkeypatch.setattr(Fisher, "dense", refuse)
    model = MLP(3, [60], 3, filters=3, dtype=torch.float64)
    optimizer = NaturalConjugateGradient(model)
    assert optimizer.minimize(X, CLASS, steps=30, target=0.05).reason == "target"


def test_single_precision_and_orders_that_move():
    model = MLP(3, [4], 3)
    orders = model[0].order.detach().clone()
    optimizer = NaturalConjugateGradient(model)
    stop = optimizer.minimize(X.float(), CLASS, steps=60, target=0.05)
    assert stop.loss < 0.2
    assert optimizer.damping >= LEAST_DAMPING
    assert (model[0].order - orders).abs().max() > 0.1


SMALL = nn.Linear(3, 3, dtype=torch.float64)
CONSTANT = nn.Linear(3, 3).requires_grad_(False)


class Returns(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.value = value

    def forward(self, x):
        return self.value


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("loss", "hinge", "loss must be one of .*softmax.*, got 'hinge'"),
        ("beta", 0.5, "beta must be one of .*search.*, got 0.5"),
        ("solver", "lu", "solver must be one of .*minres.*, got 'lu'"),
        ("damping", 0, "damping must be a positive number, got 0"),
        ("tolerance", "tiny", "tolerance must be a positive number, got 'tiny'"),
        ("restart", 0, "restart must be an integer of at least 1, got 0"),
        ("evaluations", 2, "evaluations must be an integer of at least 3, got 2"),
    ],
)
def test_a_wrong_option_gets_one_clear_sentence(option, value, message):
    with pytest.raises(ValueError, match=message):
        NaturalConjugateGradient(SMALL, **{option: value})


@pytest.mark.parametrize(
    ("call", "exception", "message"),
    [
        (lambda: NaturalConjugateGradient([SMALL]), TypeError, r"model must be .*, got list"),
        (lambda: NaturalConjugateGradient(CONSTANT), ValueError, "model must have .*, got none"),
        (
            lambda: NaturalConjugateGradient(SMALL).minimize(X, CLASS, steps=1.5),
            ValueError,
            "steps must be an integer of at least 1, got 1.5",
        ),
        (
            lambda: NaturalConjugateGradient(SMALL).step(X, CLASS[:7]),
            ValueError,
            r"targets must be 200 class numbers, got the shape \(7,\)",
        ),
        (
            lambda: NaturalConjugateGradient(SMALL).step(X, CLASS.double()),
            ValueError,
            "targets must be 200 class numbers, got .* of torch.float64",
        ),
        (
            lambda: NaturalConjugateGradient(SMALL, loss="logistic").step(X, CLASS),
            ValueError,
            r"targets must have the shape \(200, 3\) of the outputs, got \(200,\)",
        ),
        (
            lambda: NaturalConjugateGradient(Returns(None)).step(X, CLASS),
            TypeError,
            "model must return a floating-point tensor, got NoneType",
        ),
        (
            lambda: NaturalConjugateGradient(Returns(CLASS)).step(X, CLASS),
            TypeError,
            "model must return a floating-point tensor, got torch.int64",
        ),
        (
            lambda: NaturalConjugateGradient(Returns(torch.zeros(200))).step(X, CLASS),
            ValueError,
            r"model must return scores \(samples, classes\), got the shape \(200,\)",
        ),
        (
            lambda: NaturalConjugateGradient(SMALL).load_state_dict({"damping": 1.0}),
            ValueError,
            "state must hold beta, .*, got",
        ),
    ],
)
def test_mistakes_are_answered_by_one_clear_sentence(call, exception, message):
    with pytest.raises(exception, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_state_of_another_model_is_refused():
    optimizer = NaturalConjugateGradient(net())
    optimizer.step(X, CLASS)
    other = NaturalConjugateGradient(SMALL)
    with pytest.raises(ValueError, match=r"state must be of a model with 12 parameters, got"):
        other.load_state_dict(optimizer.state_dict())
