"""lp_pool on every shape, memory layout, broadcast, dtype, scale and order, against the truth."""

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from accuracy import exact, threads
from fuzz.calls import FULL, HALF, NORMS, ORDERS, SECONDS, Call, calls, fuzz, values
from fuzz.truth import assert_gradient, assert_value, gradient_limit, reference, truth, value_limit


@fuzz(100)
@given(calls([torch.float32, torch.float64], most=30))
def test_the_reference_is_right_in_50_digits(call):
    arguments = (call.z.detach(), getattr(call.p, "data", call.p), call.center)
    arguments = (*arguments, call.dim, call.grad, call.counted)
    u, *gradients = exact(*arguments)
    ours, *ours_of_gradients = reference(*arguments)
    assert_close = functools.partial(torch.testing.assert_close, rtol=1e-12)
    assert_close(ours, u, atol=2.0**-1074)
    # Of 50 digits an all but perfect tie leaves few to the gradient in p.
    size = (u * call.grad).abs().max().item() if u.numel() else 0
    for result, true in zip(ours_of_gradients, gradients, strict=True):
        assert_close(result, true, atol=1e-40 * size + 2.0**-1074)


@fuzz(800)
@given(calls([torch.float32]))
def test_single_precision(call):
    call.check()


@fuzz(250)
@given(calls([torch.float64]))
def test_double_precision(call):
    call.check()


@fuzz(400)
@given(calls(HALF))
def test_half_precision(call):
    call.check()


@fuzz(100)
@given(calls(FULL + HALF, most=3000), st.data())
def test_nan_and_infinity_stay_in_their_group(call, data):
    if not call.z.numel():
        return
    arguments = (call.p, call.center, call.dim, call.grad, call.counted)
    true, dz, *_ = truth(call.z, *arguments)
    index = [data.draw(st.integers(0, n - 1)) for n in call.z.shape]
    bad = data.draw(st.sampled_from([torch.nan, torch.inf, -torch.inf]))
    z = call.z.detach().clone()
    z[tuple(index)] = bad
    call.z = z.requires_grad_(call.z.requires_grad)
    u, grads = call.run()
    left_out = call.counted is not None and not call.counted.expand(z.shape)[tuple(index)]
    index[call.dim] = slice(None)
    group = (*index,)
    index.pop(call.dim)
    if not left_out:
        order = torch.as_tensor(call.p).expand(u.shape)[(*index,)].item()
        if order > 0 or torch.tensor(bad).isnan():
            torch.testing.assert_close(u[(*index,)].item(), abs(bad), equal_nan=True)
        u = u.detach().clone()
        u[(*index,)] = true[(*index,)] = 0
        dz[group] = 0
        if "z" in grads:
            grads["z"][group] = 0
    # The rest is as it was.
    assert_value(u, true, z.dtype, value_limit(z, call.p))
    if "z" in grads:
        assert_gradient("z", grads["z"], z, dz, gradient_limit(z.dtype, call.p))


def long_call(entries: int, kind: str | float, p: float, dim: int) -> Call:
    shape = [entries, 2] if dim == 0 else [2, entries]
    z = values(kind, shape, dim, 1.0, torch.float32, 0).float().requires_grad_()
    order = torch.tensor([p, 3.0], requires_grad=True)
    return Call(z, order, None, dim, torch.tensor([1.0, -0.7]), threads=2)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(("kind", "p"), [("normal", 1.5), ("image", 100.0)])
def test_a_million_entries_in_a_group(kind, p, dim):
    long_call(10**6, kind, p, dim).check()


@pytest.mark.skipif(not SECONDS, reason="takes seconds: see LPUNITS_FUZZ")
@pytest.mark.parametrize("p", [-1.0, 0.0, NORMS[1], 2.0, 1e4])
@pytest.mark.parametrize("kind", ["normal", "image", 1e-6])
def test_ten_million_entries_in_a_group(kind, p):
    long_call(10**7, kind, p, 1).check()


def test_an_order_per_column_where_the_first_dimension_is_pooled():
    z = torch.randn(4, 6, 3, requires_grad=True)
    p = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    Call(z, p, None, 0, torch.randn(6, 3)).check()


def test_the_number_of_threads_may_change_between_calls():
    z = torch.randn(40, 50, 17, requires_grad=True)
    p = torch.tensor(ORDERS).float()[torch.arange(17) % len(ORDERS)].requires_grad_()
    center = torch.randn(50, 17, requires_grad=True)
    for count in (1, 2, 1, 2, 2, 1):
        with threads(count):
            Call(z, p, center, 1, torch.randn(40, 17), threads=3 - count).check()
            Call(z, p, center, 1, torch.randn(40, 17), threads=count).check()
