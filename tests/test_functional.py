"""lp_pool and maxout: against 50-digit arithmetic, closed forms, and at the edges."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accuracy import (
    Operator,
    assert_accurate,
    assert_rounded_once,
    order_of,
    run,
    truth,
    ulps,
)
from cases import CASES, DOUBLE_CASES, INF, NORMS, ORDERS, Case
from lpunits import lp_pool, maxout, reference
from lpunits.ops import compiled, plain

KERNELS = {"plain": plain} | ({"compiled": Operator} if compiled else {})
FULL = [torch.float32, torch.float64]
HALF = [torch.float16, torch.bfloat16]


def case_id(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", CASES, ids=case_id)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
class TestAgainst50Digits:
    @pytest.mark.parametrize("dtype", FULL, ids=str)
    def test_value_and_gradients(self, kernel, case, dtype):
        assert_accurate(kernel, case, dtype)

    @pytest.mark.parametrize("dtype", HALF, ids=str)
    def test_half_precision_is_rounded_once(self, kernel, case, dtype):
        if not case.half:
            pytest.skip("the values of this case do not exist in half precision")
        assert_rounded_once(kernel, case, dtype)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_the_path_for_transforms_gives_the_same_numbers(case):
    z, p, center, weight = case.tensors(torch.float32)
    tensors = [z, order_of(p, z, case.dim), center, weight]
    for k, t in enumerate(tensors):
        if t is not None and t.is_floating_point():
            tensors[k] = t.clone().requires_grad_()
    z, p, center, weight = tensors
    u = plain.differentiable(z, p, center, case.dim % z.ndim, weight)
    u_kernel, grad, grads = run(plain, case, torch.float32)
    torch.testing.assert_close(u, u_kernel, rtol=1e-6, atol=0)
    leaves = [t for t in tensors if t is not None and t.requires_grad]
    kernels = [g for g in grads if g is not None]
    for leaf, ours, kernel in zip(
        leaves, torch.autograd.grad(u, leaves, grad), kernels, strict=True
    ):
        kernel = kernel.sum_to_size(leaf.shape).clamp(-3e38, 3e38)
        ours = ours.clamp(-3e38, 3e38)
        # Automatic gradients cancel in p where a group is nearly tied; the kernel's do not.
        largest = kernel.abs().max().item() if kernel.numel() else 0.0
        torch.testing.assert_close(ours, kernel, rtol=0, atol=1e-5 * largest + 1e-15)


@pytest.mark.parametrize("case", DOUBLE_CASES, ids=case_id)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_double_precision_up_to_its_ends(kernel, case):
    assert_accurate(kernel, case, torch.float64)


@pytest.mark.parametrize("case", CASES + DOUBLE_CASES, ids=case_id)
def test_the_path_for_transforms_loses_at_most_three_digits(case):
    z, p, center, weight = case.tensors(torch.float64)
    u = plain.differentiable(z, order_of(p, z, case.dim), center, case.dim % z.ndim, weight)
    assert ulps(u, truth(case, torch.float64)[0]) <= 1400  # as much as ln(u/m) may be


@pytest.mark.parametrize("width", [20, 150])
@pytest.mark.parametrize("p", [-INF, -3.2, -0.7, 0.0, 0.3, 0.8, 2.5, 300.0, INF])
def test_the_path_for_transforms_has_the_gradients_of_entries_far_apart(p, width):
    exponents = torch.linspace(-width, width, 9, dtype=torch.float64)
    z = (10**exponents * torch.tensor([1.0, -1.3, 0.7]).repeat(3)).requires_grad_()
    order = torch.tensor(p, dtype=torch.float64, requires_grad=True)
    found = torch.autograd.grad(lp_pool(z, order), (z, order), create_graph=True)
    for ours, kernel in zip(found, torch.autograd.grad(lp_pool(z, order), (z, order)), strict=True):
        torch.testing.assert_close(ours, kernel, rtol=1e-9, atol=1e-300)
    u = lp_pool(z.detach() ** 2, order)  # beyond, powers may become 0, but nothing a NaN
    found = torch.autograd.grad(lp_pool(z * z.detach(), order), (z, order), create_graph=True)
    assert u.isfinite()
    assert not any(t.isnan().any() for t in found)


@pytest.mark.parametrize("path", ["kernel", "transform"])
def test_the_smallest_orders_have_a_sign_beside_an_infinity(path):
    z = torch.tensor([[1.0, INF], [0.0, INF]], dtype=torch.float64, requires_grad=True)
    pool = plain_pool if path == "transform" else lp_pool
    p = torch.tensor([-1e-300, 1e-300], dtype=torch.float64)
    assert pool(z, p).tolist() == [INF, INF]


class TestSpecialCases:
    z = torch.randn(64, 5, 8, generator=torch.Generator().manual_seed(1))

    def test_order_1_is_the_mean_of_absolute_values(self):
        torch.testing.assert_close(lp_pool(self.z, 1, dim=1), self.z.abs().mean(1))

    def test_order_2_is_the_root_mean_square(self):
        torch.testing.assert_close(lp_pool(self.z, 2, dim=1), self.z.square().mean(1).sqrt())

    def test_infinite_order_is_the_largest_absolute_value_exactly(self):
        assert torch.equal(lp_pool(self.z, INF, dim=1), self.z.abs().amax(1))

    @pytest.mark.parametrize("values", [[1.0, -1, 0.5], [2.0, 2, 2], [0.0, 0, 0], [0.0, -3, 0]])
    def test_infinite_order_shares_the_gradient_among_ties_as_amax_does(self, values):
        ours = torch.tensor(values, requires_grad=True)
        torchs = torch.tensor(values, requires_grad=True)
        lp_pool(ours, INF).backward()
        torchs.abs().amax(-1).backward()
        assert torch.equal(ours.grad, torchs.grad)

    @pytest.mark.parametrize("p", ORDERS)
    def test_one_element_is_its_absolute_value(self, p):
        z = self.z[:, :1].clone().requires_grad_()
        u = lp_pool(z, p, dim=1)
        assert torch.equal(u, z.abs().squeeze(1))
        assert torch.equal(torch.autograd.grad(u.sum(), z)[0], z.sign())

    def test_non_negative_input_at_infinity_is_maxout(self):
        assert torch.equal(lp_pool(self.z.abs(), INF, dim=1), maxout(self.z.abs(), dim=1))

    @pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 6.5])
    def test_non_negative_input_is_gem(self, p):
        z = self.z.abs() + 0.1
        gem = z.clamp(min=1e-6).pow(p).mean(1).pow(1 / p)
        torch.testing.assert_close(lp_pool(z, p, dim=1), gem)

    def test_reference_agrees_where_plain_arithmetic_is_enough(self):
        p = torch.tensor([1.0, 1.5, 2, 3, 4, 6, 10, INF])
        center = torch.randn(5, 8)
        truth = reference.lp_pool(self.z.double(), p.double(), center=center.double(), dim=1)
        ours = lp_pool(self.z, p, center=center, dim=1)
        torch.testing.assert_close(ours, truth.float(), rtol=1e-6, atol=1e-6)

    def test_maxout_shares_its_gradient_among_equal_maxima(self):
        z = torch.tensor([[1.0, 3.0, 3.0], [-2.0, -5.0, -1.0]], requires_grad=True)
        u = maxout(z)
        u.backward(torch.tensor([1.0, 2.0]))
        assert u.tolist() == [3.0, -1.0]
        assert z.grad.tolist() == [[0.0, 0.5, 0.5], [0.0, 0.0, 2.0]]


class TestNanAndInfinity:
    @pytest.mark.parametrize("p", ORDERS)
    def test_nan_propagates_and_stays_in_its_group(self, p):
        z = torch.tensor([[1.0, math.nan, 2.0], [1.0, 0.0, 2.0]], requires_grad=True)
        u = lp_pool(z, p)
        u.sum().backward()
        assert u.isnan().tolist() == z.abs().mean(1).isnan().tolist() == [True, False]
        assert z.grad[1].isfinite().all()

    @pytest.mark.parametrize("p", NORMS)
    @pytest.mark.parametrize("path", ["kernel", "transform"])
    def test_infinity_propagates_and_takes_the_gradient(self, p, path):
        z = torch.tensor([[1.0, -INF, 2.0], [INF, 0.0, -INF]], requires_grad=True)
        order = torch.full((2, 1), p, requires_grad=True)
        pool = plain_pool if path == "transform" else lp_pool
        u = pool(z, order[:, 0])
        u.sum().backward()
        assert u.tolist() == [INF, INF]
        assert z.grad.tolist() == [[0, -1, 0], [0.5, 0, -0.5]]
        assert order.grad.tolist() == [[0], [0]]

    def test_infinity_beside_nan_is_nan(self):
        assert lp_pool(torch.tensor([INF, math.nan]), 3).isnan()


def plain_pool(z: Tensor, p: Tensor) -> Tensor:
    return plain.differentiable(z, p.unsqueeze(-1), None, 1)


finite = st.floats(-(2.0**126), 2.0**126, width=32)


@settings(deadline=None)  # the first call may compile the kernel
@given(
    z=st.lists(finite, min_size=1, max_size=9),
    p=st.one_of(st.floats(1, 1e6), st.sampled_from(NORMS)),
    scale=st.sampled_from([0.5, 2.0, 1024.0]),
)
def test_properties_of_a_normalised_norm(z, p, scale):
    z = torch.tensor(z, dtype=torch.float32, requires_grad=True)
    order = torch.tensor(p, dtype=torch.float32, requires_grad=True)
    u = lp_pool(z, order)
    u.backward()
    # Between the mean and the maximum of the absolute values, growing with the order.
    a = z.detach().abs().double()
    assert a.mean() * (1 - 1e-6) - 1e-45 <= u.item() <= a.max() * (1 + 1e-7)
    assert u.item() <= lp_pool(z, order * 2).item() * (1 + 1e-6)
    # Homogeneous, blind to signs and, but for the rounding of sums, to permutations.
    torch.testing.assert_close(lp_pool(z / scale, order), u / scale, rtol=1e-6, atol=1e-44)
    assert torch.equal(lp_pool(-z, order), u)
    torch.testing.assert_close(lp_pool(z.flip(0), order), u, rtol=1e-6, atol=1e-44)
    # Gradients are finite, and Euler's relation holds: sum_i z_i du/dz_i = u.
    assert z.grad.isfinite().all()
    assert order.grad.isfinite()
    assert (z.double() * z.grad.double()).sum().item() == pytest.approx(
        u.item(), rel=1e-5, abs=1e-44
    )


def test_triangle_inequality():
    x, y = torch.randn(2, 500, 6, dtype=torch.float64)
    for p in NORMS:
        assert (lp_pool(x + y, p) <= (lp_pool(x, p) + lp_pool(y, p)) * (1 + 1e-12)).all()


def test_result_has_the_dtype_of_z_whatever_the_others_have():
    z = torch.randn(4, 3, dtype=torch.bfloat16)
    u = lp_pool(z, torch.tensor(3.0, dtype=torch.float64), center=torch.zeros(3))
    assert u.dtype == torch.bfloat16


def test_only_the_inputs_are_saved_for_backward():
    z = torch.randn(100, 5, 240, requires_grad=True)
    p = torch.full((240,), 3.0, requires_grad=True)
    c = torch.zeros(5, 240, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        lp_pool(z, p, center=c, dim=1)
    assert sum(t.numel() for t in saved) == z.numel() + p.numel() + c.numel()


def test_gradients_that_nobody_wants_are_not_computed():
    z, p, c = torch.randn(4, 3), torch.tensor([3.0]), torch.zeros(3)
    needs = (True, False, False)
    dz, *others = plain.backward(torch.ones(4), z, p, c, 1, needs)
    assert dz is not None
    assert others == [None] * 3
