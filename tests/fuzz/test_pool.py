"""lp_pool on every shape, memory layout, broadcast, dtype, scale and order, against the truth."""

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cases import exact
from fuzz.calls import FULL, HALF, ORDERS, SECONDS, Call, calls, fuzz, threads, values
from fuzz.truth import reference


@fuzz(100)
@given(calls([torch.float32, torch.float64], most=30))
def test_the_reference_is_right_in_50_digits(call):
    arguments = (call.z.detach(), getattr(call.p, "data", call.p), call.center)
    u, *gradients = exact(*arguments, call.dim, call.grad)
    ours, *ours_of_gradients = reference(*arguments, call.dim, call.grad)
    assert_close = functools.partial(torch.testing.assert_close, rtol=1e-12)
    assert_close(ours, u, atol=2.0**-1074)
    # Of 50 digits an all but perfect tie leaves few to the gradient in p.
    size = (u * call.grad).abs().max().item() if u.numel() else 0
    for result, true in zip(ours_of_gradients, gradients, strict=True):
        assert_close(result, true, atol=1e-40 * size + 2.0**-1074)


@fuzz(500)
@given(calls([torch.float32]))
def test_single_precision(call):
    call.check()


@fuzz(150)
@given(calls([torch.float64]))
def test_double_precision(call):
    call.check()


@fuzz(200)
@given(calls(HALF))
def test_half_precision(call):
    call.check()


@fuzz(100)
@given(calls(FULL + HALF, most=3000), st.data())
def test_nan_and_infinity_stay_in_their_group(call, data):
    if call.grad.numel() == 0:
        return
    clean, clean_grads = call.run()
    group = data.draw(st.integers(0, call.grad.numel() - 1))
    entry = data.draw(st.integers(0, call.z.shape[call.dim] - 1))
    bad = data.draw(st.sampled_from([torch.nan, torch.inf, -torch.inf]))
    z = call.z.detach().clone(memory_format=torch.contiguous_format)
    hit = torch.zeros(call.grad.shape, dtype=torch.bool)
    hit.view(-1)[group] = True
    mask = hit.unsqueeze(call.dim % z.ndim) & (torch.arange(z.shape[call.dim]) == entry).view(
        [-1 if d == call.dim % z.ndim else 1 for d in range(z.ndim)]
    )
    call.z = z.masked_fill(mask, bad).requires_grad_(call.z.requires_grad)
    u, grads = call.run()
    assert torch.equal(u[hit], torch.full((1,), abs(bad), dtype=u.dtype)) or (
        bad != bad and u[hit].isnan().all()
    )
    # An expanded z has become a dense one, so not the bits but the limits are the same.
    tolerance = {"rtol": 2 * torch.finfo(u.dtype).eps, "atol": 0}
    torch.testing.assert_close(u[~hit], clean[~hit], **tolerance)
    if "z" in grads:
        others = (~hit).unsqueeze(call.dim % z.ndim).expand_as(z)
        scale = clean_grads["z"].abs().max().item()
        tolerance = {"rtol": 0, "atol": max(1e-5, 2 * torch.finfo(u.dtype).eps) * scale}
        torch.testing.assert_close(grads["z"][others], clean_grads["z"][others], **tolerance)


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
@pytest.mark.parametrize("p", [ORDERS[1], 2.0, 1e4])
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
