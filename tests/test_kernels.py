"""Which kernel serves which tensor, and what is particular to the CPU kernel."""

import logging
import os
import subprocess
import sys

import pytest
import torch

from cases import relative_to_largest, ulps
from lpunits import kernels, lp_pool
from lpunits.kernels import cpu, plain


class TestDispatch:
    def test_the_fused_kernel_serves_ordinary_tensors_in_single_and_half_precision(self):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            assert kernels.kernel_for(torch.zeros(1, dtype=dtype)) is cpu
        assert kernels.kernel_for(torch.nn.Parameter(torch.zeros(1))) is cpu
        assert kernels.kernel_for(torch.zeros(1, dtype=torch.float64)) is plain

    def test_other_devices_and_tensors_without_memory_get_plain_torch(self):
        assert kernels.kernel_for(torch.zeros(1, device="meta")) is plain
        with torch._subclasses.FakeTensorMode():
            assert kernels.kernel_for(torch.zeros(1)) is plain

    def test_the_device_decides(self, monkeypatch):
        pytest.importorskip("triton", reason="triton is not installed")
        monkeypatch.setattr(kernels, "FUSED", {"cpu": "lpunits.kernels.gpu"})
        kernels._fused.cache_clear()
        try:
            assert kernels.kernel_for(torch.zeros(1)).__name__ == "lpunits.kernels.gpu"
        finally:
            kernels._fused.cache_clear()

    def test_a_missing_library_is_told_once_and_costs_only_speed(self, monkeypatch, caplog):
        monkeypatch.setattr(kernels, "FUSED", {"cpu": "lpunits.kernels.not_there"})
        kernels._fused.cache_clear()
        try:
            with caplog.at_level(logging.INFO, logger="lpunits"):
                u = [lp_pool(torch.ones(3), 2) for _ in range(3)]
        finally:
            kernels._fused.cache_clear()
        assert u == [1.0, 1.0, 1.0]
        (record,) = caplog.records
        assert record.levelno == logging.INFO
        assert "plain torch serves cpu tensors" in record.message

    def test_another_processor_is_served_by_plain_torch(self):
        code = (
            "import logging; logging.basicConfig(level=logging.INFO)\n"
            "from llvmlite import binding\n"
            "binding.get_host_cpu_features = lambda: {}\n"
            "import torch, lpunits\n"
            "w = torch.nn.Parameter(torch.ones(2, 3)); w.grad = torch.ones(2, 3)\n"
            "lpunits.optim.SGD([w], 0.5).step()\n"
            "assert w.eq(0.5).all() and lpunits.Dropout(0.5)(w).shape == w.shape\n"
            "print(lpunits.lp_pool(torch.ones(3), 2.0).item())\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout == "1.0\n", done.stderr
        assert "plain torch serves cpu tensors: compiled kernels need an x86" in done.stderr

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
    def test_a_forked_child_can_still_pool(self):
        code = (
            "import os, torch, lpunits\n"
            "z = torch.ones(100, 5, 240)\n"
            "lpunits.lp_pool(z, 2.0, dim=1)\n"
            "torch.set_num_threads(1)\n"
            "pid = os.fork()\n"
            "if not pid: os._exit(not lpunits.lp_pool(z, 2.0, dim=1).eq(1).all())\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        )
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True)
        assert done.stdout.split() == [b"0"], done.stderr.decode()


def both(z, p, center, dim):
    """Value and gradients of the fused kernel, and those of plain torch in double precision."""
    u = cpu.forward(z, p, center, dim)
    grad = torch.randn_like(u)
    needs = (True, True, center is not None)
    ours = u, *cpu.backward(grad, z, p, center, dim, needs)
    doubles = [None if t is None else t.double() for t in (z, p, center)]
    truth = plain.forward(*doubles, dim), *plain.backward(grad.double(), *doubles, dim, needs)
    return ours, truth


SHAPES = {
    "layer": ((100, 5, 240), 1, (240,), (5, 240)),
    "odd-sizes": ((37, 3, 131), 1, (131,), (3, 131)),
    "few-units": ((501, 4, 3), 1, (3,), (4, 3)),
    "short-rows": ((700, 9, 5), 2, (9, 1), (9, 5)),
    "rows-of-49": ((40, 33, 49), 2, (33, 1), None),
    "long-rows": ((5, 7, 3000), 2, (7, 1), (3000,)),
    "long-columns": ((3, 3000, 70), 1, (70,), None),
    "one-order": ((700, 9, 5), 2, (1,), (5,)),
    "order-per-sample": ((300, 4, 50), 1, (300, 1, 1), (4, 1)),
}


@pytest.mark.parametrize(("shape", "dim", "p_shape", "c_shape"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_large_shapes_with_every_number_of_threads(shape, dim, p_shape, c_shape, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        center = None if c_shape is None else torch.randn(c_shape)
        (u, *grads), (true_u, *true_grads) = both(
            torch.randn(shape), 1 + torch.randn(p_shape).exp(), center, dim
        )
    finally:
        torch.set_num_threads(before)
    assert ulps(u, true_u) <= 4
    for ours, truth in zip(grads, true_grads, strict=True):
        assert (ours is None) == (truth is None)
        assert ours is None or relative_to_largest(ours, truth) <= 1e-5


@pytest.mark.parametrize("size", [3, 49, 3000], ids=["short", "middle", "long"])
@pytest.mark.parametrize("layout", ["side-by-side", "in-a-row"])
def test_nan_infinity_and_zeros_stay_in_their_groups(size, layout):
    z = torch.randn(6, size)
    z[0, 1], z[1, 2], z[2] = torch.nan, -torch.inf, 0.0
    z[3, 0], z[3, 2] = torch.inf, torch.inf
    p = torch.tensor([3.0])
    if layout == "side-by-side":
        z = z.T.contiguous().T
    u = cpu.forward(z, p, None, 1)
    dz, dp, _ = cpu.backward(torch.ones(6), z, p, None, 1, (True, True, False))
    assert u.isnan().tolist() == [True] + [False] * 5
    assert u[1:4].tolist() == [torch.inf, 0.0, torch.inf]
    assert dz[0].isnan().all()
    assert dz[1].nonzero().flatten().tolist() == [2]
    assert dz[1, 2] == -1
    assert not dz[2].any()
    assert dz[3, [0, 2]].tolist() == [0.5, 0.5]
    assert dp.isnan()
    torch.testing.assert_close(u[4:], plain.forward(z[4:], p, None, 1))


@pytest.mark.parametrize("shape", [(4, 3, 20), (4, 20, 3), (4, 20, 300)], ids=str)
def test_an_order_that_is_not_a_number_shows(shape):
    dim = 1 if shape[2] == 20 else 2
    z, p = torch.randn(shape), torch.full((20,), 2.5)
    p[7] = torch.nan
    order = p if dim == 1 else p[:, None]
    u = cpu.forward(z, order, None, dim)
    grads = cpu.backward(torch.ones_like(u), z, order, None, dim, (True, True, False))
    assert u.isnan().any(0).nonzero().flatten().tolist() == [7]
    by_unit = grads[0].movedim(dim, 0).isnan().any(0).any(0)
    assert by_unit.nonzero().flatten().tolist() == [7]
    assert grads[1].isnan().nonzero()[:, 0].tolist() == [7]


def test_the_same_bits_for_the_same_number_of_threads():
    z, p, c = torch.randn(500, 5, 240), 1 + torch.randn(240).exp(), torch.randn(5, 240)
    grad = torch.randn(500, 240)
    runs = [cpu.backward(grad, z, p, c, 1, (True, True, True)) for _ in range(3)]
    for repeat in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], repeat, strict=True))


def test_memory_order_of_the_input_is_kept():
    z = torch.randn(4, 33, 7, 7).to(memory_format=torch.channels_last)
    u = lp_pool(z.flatten(2), torch.full((33,), 3.0))
    torch.testing.assert_close(u, lp_pool(z.contiguous().flatten(2), torch.full((33,), 3.0)))
    dz = cpu.backward(torch.ones(4, 33), z.flatten(2), torch.ones(33, 1), None, 2, (True,) * 3)[0]
    assert dz.stride() == z.flatten(2).stride()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_number_of_half_precision_is_read_and_written(dtype):
    numbers = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    u = cpu.forward(numbers.unsqueeze(1), torch.tensor([[2.0]]), None, 1)
    assert torch.equal(u.isnan(), numbers.isnan())
    sound = ~numbers.isnan()
    assert torch.equal(u[sound], numbers[sound].abs())


WINDOWS = {
    "k2": ((3, 5, 9, 21), (2, 2), (2, 2)),
    "k3-overlapping": ((2, 20, 15, 40), (3, 3), (2, 2)),
    "k3-stride-1": ((2, 3, 9, 50), (3, 3), (1, 1)),
    "line": ((2, 17, 50), (4,), (3,)),
    "cube": ((2, 3, 6, 7, 9), (2, 2, 2), (2, 2, 2)),
    "many-entries": ((2, 3, 8, 9, 9), (3, 3, 3), (2, 1, 2)),
    "gaps": ((2, 3, 9, 40), (2, 2), (3, 4)),
}


@pytest.mark.parametrize(("shape", "size", "stride"), WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("memory", ["channels-first", "channels-last"])
@pytest.mark.parametrize("threads", [1, 2])
def test_windows_in_place_are_windows_laid_out(shape, size, stride, memory, threads):
    z = torch.randn(shape)
    z[0, 0].flatten()[3] = 0.0
    if memory == "channels-last":
        z = z.movedim(1, -1).contiguous().movedim(-1, 1)
    p = 1 + torch.randn(shape[1]).exp()
    p[0] = torch.inf

    def unfolded(z):
        for dim, (length, step) in enumerate(zip(size, stride, strict=True), start=2):
            z = z.unfold(dim, length, step)
        return z.flatten(2 + len(size))

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        u = cpu.forward_windows(z, p, size, stride)
        grad = torch.randn(u.shape)
        dz, dp = cpu.backward_windows(grad, z, p, size, stride, (True, True))
    finally:
        torch.set_num_threads(before)
    doubles = z.double().requires_grad_()
    groups = unfolded(doubles)
    orders = p.double().reshape(-1, *[1] * len(size), 1)
    dim = groups.ndim - 1
    assert ulps(u, plain.forward(groups.detach(), orders, None, dim)) <= 4
    needs = (True, True, False)
    by_group, true_dp, _ = plain.backward(grad.double(), groups.detach(), orders, None, dim, needs)
    (true_dz,) = torch.autograd.grad(groups, doubles, by_group)
    assert relative_to_largest(dz, true_dz) <= 1e-5
    assert relative_to_largest(dp, true_dp.flatten()) <= 1e-5
    assert dz.stride() == z.stride()
    assert u.is_contiguous() == z.is_contiguous()


class TestMachineCode:
    CODE = (
        "import torch, lpunits\n"
        "from lpunits.kernels import simd\n"
        "compiled = []\n"
        "real = simd._compile\n"
        "simd._compile = lambda module: compiled.append(1) or real(module)\n"
        "u = lpunits.lp_pool(torch.ones(100, 5, 240), 2.0, dim=1)\n"
        "assert u.eq(1).all()\n"
        "print(len(compiled))\n"
    )

    def run(self, folder) -> str:
        environment = os.environ | {"XDG_CACHE_HOME": str(folder)}
        done = subprocess.run(
            [sys.executable, "-c", self.CODE], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @pytest.mark.skipif(sys.platform == "win32", reason="another folder there")
    def test_it_is_compiled_once_and_kept(self, tmp_path):
        assert self.run(tmp_path) == "1"
        assert self.run(tmp_path) == "0"
        (kept,) = (tmp_path / "lpunits" / "kernels").iterdir()
        assert kept.suffix == ".o"

    @pytest.mark.skipif(sys.platform == "win32", reason="another folder there")
    def test_a_folder_that_cannot_be_written_costs_only_time(self, tmp_path):
        (tmp_path / "file").write_text("")
        assert self.run(tmp_path / "file") == "1"
