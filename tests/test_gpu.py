"""The Triton kernel, on its interpreter: every case, long groups, broadcasts, the edges.

The interpreter has to be switched on before triton is imported, and would disturb what else uses
triton in the process. So this file runs itself once more, in a process of its own.
"""

import importlib.util
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from accuracy import assert_accurate, assert_rounded_once, relative_to_largest, ulps
from cases import CASES, INF
from lpunits.ops import plain

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
HALF_CASES = [case for case in CASES if case.half]
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)

if INTERPRETED:
    from triton.runtime import interpreter

    from lpunits.ops import cuda as gpu


@needs_triton
@pytest.mark.skipif(INTERPRETED, reason="this is the process that it starts")
def test_everything_below_passes_in_the_interpreter():
    child = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert child.returncode == 0, child.stdout[-5000:] + child.stderr[-1000:]
    passed = int(re.search(r"(\d+) passed", child.stdout)[1])
    assert passed > 2 * len(CASES) + 2 * len(HALF_CASES)


@needs_triton
@pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
@pytest.mark.parametrize("held", [True, False], ids=["held", "streamed"])
@pytest.mark.parametrize("double", [False, True], ids=["single", "double"])
@pytest.mark.parametrize("name", ["_forward", "_backward"])
def test_the_kernels_compile_for_a_gpu_that_need_not_be_there(
    name, double, held, tmp_path, monkeypatch
):
    import triton
    from triton import language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from lpunits.ops import cuda as gpu

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel = getattr(gpu, name).fn
    constants = {"UNITS": 64, "CHUNK": 8, "HELD": held, "TILE": 512}
    constants["WORK"] = tl.float64 if double else tl.float32
    tensors = dict.fromkeys(("z", "center", "u", "grad", "dz"), "*fp64" if double else "*bf16")
    tensors |= {"p": "*fp32", "dp": "*fp64", "dcenter": "*fp64" if double else "*fp32"}
    signature = {
        arg: "constexpr" if arg in constants else tensors.get(arg, "i32")
        for arg in kernel.arg_names
    }
    source = ASTSource(kernel, signature, constants)
    options = {"num_warps": 4, "enable_fp_fusion": True}
    compiled = triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options)
    assert "ld.global" in compiled.asm["ptx"]


@pytest.fixture(autouse=INTERPRETED)
def _as_on_a_gpu(monkeypatch):
    """Overflow is silent, and bfloat16 is rounded to nearest; the interpreter cuts digits off."""
    cast = interpreter.InterpreterBuilder.cast_impl

    def rounding_cast(self, source, dtype):
        if dtype.scalar == interpreter.tl.bfloat16 and source.data.dtype == np.float32:
            rounded = torch.from_numpy(np.ascontiguousarray(source.data)).bfloat16()
            data = rounded.view(torch.int16).numpy().view(np.uint16)
            return interpreter.TensorHandle(data, dtype.scalar)
        return cast(self, source, dtype)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "cast_impl", rounding_cast)
    with np.errstate(all="ignore"):
        yield


def case_id(case):
    return case.name


class TestAgainst50Digits:
    __test__ = INTERPRETED

    @pytest.mark.parametrize("case", CASES, ids=case_id)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_value_and_gradients(self, case, dtype):
        assert_accurate(gpu, case, dtype)

    @pytest.mark.parametrize("case", HALF_CASES, ids=case_id)
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_half_precision_is_rounded_once(self, case, dtype):
        assert_rounded_once(gpu, case, dtype)


def assert_like_plain(z, p, center, dim, grad=None):
    """The same as the plain kernel in double precision."""
    grad = torch.randn(z.shape[:dim] + z.shape[dim + 1 :]) if grad is None else grad
    needs = (True, True, center is not None)
    double = [None if t is None else t.double() for t in (z, p, center)]
    u = gpu.forward(z, p, center, dim)
    assert ulps(u, plain.forward(*double, dim)) <= 4
    grads = gpu.backward(grad, z, p, center, dim, needs)
    truths = plain.backward(grad.double(), *double, dim, needs)
    for t, ours, truth in zip((z, p, center), grads, truths, strict=False):
        if t is not None:
            assert ours.shape == t.shape
            assert ours.dtype == t.dtype
            assert relative_to_largest(ours, truth) <= 1e-5


class TestShapes:
    __test__ = INTERPRETED

    @pytest.mark.parametrize("shape", [(2, 3000), (1, 5000), (1, 400, 3)], ids=str)
    @pytest.mark.parametrize("order", [1.0, 50.0])
    def test_long_groups(self, shape, order):
        """Growing values: in a group that comes in chunks, each has a new maximum."""
        z = torch.randn(shape).abs().sort(1).values
        center = torch.rand(shape[1:]) if len(shape) == 3 else None
        assert_like_plain(z, torch.tensor(order), center, 1)

    def test_long_groups_of_near_ties(self):
        z = 1 + 1e-5 * torch.rand(1, 200, 2)
        assert_like_plain(z, torch.tensor([1.0, 1e4]), 1e-3 * torch.randn(200, 2), 1)

    def test_sizes_beside_the_blocks(self):
        p, center = 1 + torch.randn(601).exp(), torch.randn(5, 601)
        assert_like_plain(torch.randn(3, 5, 601), p, center, 1)

    @pytest.mark.parametrize("scale", [1.0, 1e-41])
    def test_a_batch_that_is_walked_through(self, scale, monkeypatch):
        monkeypatch.setattr(gpu, "LEAST_IN_FLIGHT", 1)
        p, center = 1 + torch.randn(7).exp(), scale * torch.randn(5, 7)
        assert_like_plain(scale * torch.randn(35, 5, 7), p, center, 1)

    @pytest.mark.parametrize(
        ("p_shape", "center_shape"),
        [
            ((3, 1, 1, 2), (5, 2)),
            ((1, 4, 1, 1), (3, 4, 5, 2)),
            ((3, 4, 1, 1), (1, 4, 1, 2)),
            ((1,), (3, 1, 5, 1)),
            ((4, 1, 2), (1, 4, 1, 1)),
            ((3, 1, 1, 1), (4, 1, 1)),
        ],
        ids=str,
    )
    def test_broadcasts(self, p_shape, center_shape):
        p, center = 1 + torch.randn(p_shape).exp(), torch.randn(center_shape)
        assert_like_plain(torch.randn(3, 4, 5, 2), p, center, 2)

    def test_broadcasts_that_no_strides_describe(self):
        p, center = 1 + torch.randn(5).exp(), torch.randn(1, 3, 1, 5)
        assert_like_plain(torch.randn(2, 3, 4, 5), p, center, 1)

    def test_strided_and_expanded_arguments(self):
        p = (1 + torch.randn(12).exp())[::3].expand(20, 1, 4)
        center = torch.randn(8, 3).mT[:, ::2]
        grad = torch.ones(()).expand(20, 4)
        assert_like_plain(torch.randn(20, 3, 4), p, center, 1, grad)


class TestEdges:
    __test__ = INTERPRETED

    @pytest.mark.parametrize("p", [1.0, 1.0001, 3.0, 1e6, INF])
    @pytest.mark.parametrize("length", [3, 150], ids=["held", "streamed"])
    def test_nan_stays_in_its_group_and_infinity_takes_the_gradient(self, p, length):
        z = torch.zeros(length, 4)
        z[-3:, 0] = torch.tensor([1.0, float("nan"), 2.0])
        z[-3:, 1] = torch.tensor([1.0, -INF, 2.0])
        z[-3:, 2] = torch.tensor([INF, 0.0, -INF])
        z[-3:, 3] = torch.tensor([1.0, 0.0, 2.0])
        order = torch.full((4,), p)
        center = torch.zeros(4)
        u = gpu.forward(z, order, center, 0)
        dz, dp, dc, _ = gpu.backward(torch.ones(4), z, order, center, 0, (True, True, True))
        assert u[0].isnan()
        assert u[1:3].tolist() == [INF, INF]
        assert dz[-3:, 0].isnan().all()
        assert dz[-3:, 1:3].T.tolist() == [[0, -1, 0], [0.5, 0, -0.5]]
        assert dp[1:3].tolist() == [0, 0]
        assert torch.stack([u[3], dp[3], dc[3], *dz[:, 3]]).isfinite().all()

    @pytest.mark.parametrize("p", [1.0, 3.0, INF])
    def test_infinity_beside_nan_is_nan(self, p):
        assert gpu.forward(torch.tensor([INF, float("nan")]), torch.tensor(p), None, 0).isnan()

    def test_infinite_order_is_the_largest_absolute_value_exactly(self):
        z = torch.randn(6, 5, 8)
        assert torch.equal(gpu.forward(z, torch.tensor(INF), None, 1), z.abs().amax(1))

    @pytest.mark.parametrize("shape", [(0, 4, 3), (2, 4, 0)], ids=str)
    def test_nothing_to_do(self, shape):
        z, p, center = torch.randn(shape), torch.tensor(3.0), torch.randn(4, 1)
        u = gpu.forward(z, p, center, 1)
        dz, dp, dc, _ = gpu.backward(u, z, p, center, 1, (True, True, True))
        assert (u.shape, dz.shape) == ((shape[0], shape[2]), shape)
        assert (dp, *dc) == (0, 0, 0, 0, 0)

    @pytest.mark.parametrize(
        "needs", [(True, False, False), (False, True, False), (False, False, 1)]
    )
    def test_gradients_that_nobody_wants_are_not_computed(self, needs):
        z, p, center = torch.randn(9, 3, 4), torch.full((4,), 3.0), torch.randn(3, 4)
        grads = gpu.backward(torch.ones(9, 4), z, p, center, 1, needs)
        everything = gpu.backward(torch.ones(9, 4), z, p, center, 1, (True, True, True))
        for need, alone, together in zip(needs, grads[:3], everything[:3], strict=True):
            assert torch.allclose(alone, together) if need else alone is None

    @pytest.mark.parametrize("least", [1, 2**16])
    def test_the_same_bits_every_time(self, least, monkeypatch):
        monkeypatch.setattr(gpu, "LEAST_IN_FLIGHT", least)
        z, p, center = torch.randn(40, 5, 9), 1 + torch.randn(9).exp(), torch.randn(5, 9)
        first, second = (
            gpu.backward(torch.ones(40, 9), z, p, center, 1, (True, True, True)) for _ in range(2)
        )
        assert all(map(torch.equal, first[:3], second[:3]))
