import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lpunits.optim.solvers import conjugate_gradient, minimal_residual, nelder_mead

SOLVERS = [conjugate_gradient, minimal_residual]


def system(size: int, condition: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A positive matrix of this condition number, and a right side."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(size, size, dtype=torch.float64, generator=generator)
    Q = torch.linalg.qr(noise).Q
    values = torch.logspace(0, -math.log10(condition), size, dtype=torch.float64)
    return Q @ (values * Q).T, torch.randn(size, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("solve", SOLVERS)
@settings(deadline=None, max_examples=30)
@given(st.integers(1, 30), st.floats(1, 1e6), st.integers(0, 1000))
def test_the_residual_is_what_was_asked_for(solve, size, condition, seed):
    A, b = system(size, condition, seed)
    found = solve(lambda v: A @ v, b, 1e-8, 100 * size + 100)
    assert found.residual <= 1e-8
    assert found.residual == pytest.approx(float((b - A @ found.x).norm() / b.norm()))


@pytest.mark.parametrize("solve", SOLVERS)
def test_float32_stops_where_the_true_residual_stops(solve):
    """The recurrence would report any residual; what is returned is the true one."""
    A, b = (t.float() for t in system(60, 1e3, 0))
    found = solve(lambda v: A @ v, b, 1e-12, 2000)
    true = b.double() - A.double() @ found.x.double()
    seen = b - A @ found.x  # rounded: how close to the true one depends on the processor
    assert 1e-12 < true.norm() / b.norm() < 1e-3
    assert found.residual == pytest.approx(float(seen.norm() / b.norm()))


@pytest.mark.parametrize("solve", SOLVERS)
def test_as_many_products_as_distinct_eigenvalues(solve):
    Q = torch.linalg.qr(torch.randn(50, 50, dtype=torch.float64)).Q
    values = torch.tensor([1.0, 3.0, 10.0], dtype=torch.float64).repeat(17)[:50]
    A = Q @ (values * Q).T
    found = solve(lambda v: A @ v, torch.ones(50, dtype=torch.float64), 1e-10, 100)
    assert found.residual <= 1e-10
    assert found.products <= 3 + 2  # a product to start with, and one for the true residual


def test_minimal_residual_is_minimal_over_the_krylov_space():
    A, b = system(40, 1e4, 3)
    krylov = [b]
    for iterations in range(1, 9):
        basis = torch.linalg.qr(torch.stack(krylov, 1)).Q
        least = torch.linalg.lstsq(A @ basis, b.unsqueeze(1)).solution
        best = float((b - A @ basis @ least.squeeze(1)).norm() / b.norm())
        # Beside one product per iteration, one to begin with and one for the true residual.
        found = minimal_residual(lambda v: A @ v, b, 1e-14, iterations + 2)
        assert found.residual == pytest.approx(best, rel=1e-6)
        krylov.append(A @ krylov[-1])


@pytest.mark.parametrize("solve", SOLVERS)
def test_products_are_counted_and_limited(solve):
    A, b = system(40, 1e6, 5)
    calls = []
    found = solve(lambda v: calls.append(0) or A @ v, b, 1e-14, 15)
    assert len(calls) == found.products <= 15
    assert solve(lambda v: A @ v, torch.zeros(40).double(), 1e-4, 15).residual == 0


def counted(f):
    calls = []
    return calls, lambda x: calls.append(x) or f(*x)


def simplex(f, *points):
    return [(f(*point), point) for point in points]


@settings(deadline=None)
@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(0.1, 10), st.integers(1, 60))
@example(0.5, 0.5, 1.0, 1)  # all corners of the start have one value
def test_nelder_mead_on_a_bowl(a, b, steep, evaluations):
    bowl = lambda x, y: (x - a) ** 2 + steep * (y - b) ** 2  # noqa: E731
    start = simplex(bowl, (0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
    calls, f = counted(bowl)
    value, point = nelder_mead(f, start, evaluations, 0.0)
    assert len(calls) <= evaluations
    assert value == bowl(*point) == min([v for v, _ in start] + [bowl(*x) for x in calls])
    value, _ = nelder_mead(f, start, 300, 0.0)
    assert value < 1e-6


def test_nelder_mead_in_a_bent_valley():
    banana = lambda x, y: (1 - x) ** 2 + 100 * (y - x * x) ** 2  # noqa: E731
    start = simplex(banana, (-1.2, 1.0), (-1.0, 1.0), (-1.2, 1.2))
    value, point = nelder_mead(lambda x: banana(*x), start, 400, 0.0)
    assert value < 1e-8
    assert point == pytest.approx((1, 1), abs=1e-3)


def test_nelder_mead_on_a_line_stops_when_it_is_good_enough():
    calls, f = counted(lambda x: (x - 0.7) ** 2)
    _, (x,) = nelder_mead(f, simplex(lambda x: (x - 0.7) ** 2, (0.0,), (1.0,)), 30, 0.01)
    assert x == pytest.approx(0.7, abs=0.1)
    assert len(calls) < 12


def test_nelder_mead_walks_around_nan():
    f = lambda x, y: (x - 1) ** 2 + y * y if x < 1.5 else math.nan  # noqa: E731
    start = simplex(f, (0.0, 0.0), (2.0, 0.0), (0.0, 1.0))
    value, _ = nelder_mead(lambda x: f(*x), start, 100, 0.0)
    assert value < 1e-6
    nothing = [(math.nan, (0.0,)), (math.nan, (1.0,))]
    assert nelder_mead(lambda x: math.nan, nothing, 10, 0.01)[0] == math.inf
