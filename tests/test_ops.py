"""The operators on every processor: layouts, threads, windows, segments, instruction sets."""

import os
import shutil
import subprocess
import sys

import pytest
import torch
from torch.nn.functional import avg_pool2d, max_pool2d
from torch.testing import assert_close

import accuracy
from accuracy import relative_to_largest, ulps
from cases import CASES, windows
from lpunits.ops import compiled, layouts, ops, plain, status

needs_library = pytest.mark.skipif(not compiled, reason=status())


def both(z, p, center, dim):
    """Value and gradients of the operator, and those of plain torch in double precision."""
    u = ops.lp_pool(z, p, center, dim)
    grad = torch.randn_like(u)
    ours = u, *ops.lp_pool_backward(grad, z, p, center, dim, True, center is not None)[:3]
    doubles = [None if t is None else t.double() for t in (z, p, center)]
    needs = (True, True, center is not None)
    truth = plain.forward(*doubles, dim), *plain.backward(grad.double(), *doubles, dim, needs)[:3]
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
    "order-of-the-last": ((4, 600, 3), 0, (3,), None),
}


@pytest.mark.parametrize(("shape", "dim", "p_shape", "c_shape"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_large_shapes_with_every_number_of_threads(shape, dim, p_shape, c_shape, threads):
    center = None if c_shape is None else torch.randn(c_shape)
    with accuracy.threads(threads):
        (u, *grads), (true_u, *true_grads) = both(
            torch.randn(shape), 1 + torch.randn(p_shape).exp(), center, dim
        )
    assert ulps(u, true_u) <= 5
    for ours, truth in zip(grads, true_grads, strict=True):
        assert truth is None or relative_to_largest(ours, truth) <= 1e-5


@pytest.mark.parametrize("size", [3, 49, 3000], ids=["short", "middle", "long"])
@pytest.mark.parametrize("layout", ["side-by-side", "in-a-row"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_nan_infinity_and_zeros_stay_in_their_groups(size, layout, dtype):
    z = torch.randn(6, size, dtype=dtype)
    z[0, 1], z[1, 2], z[2] = torch.nan, -torch.inf, 0.0
    z[3, 0], z[3, 2] = torch.inf, torch.inf
    p = torch.tensor([3.0])
    if layout == "side-by-side":
        z = z.T.contiguous().T
    u = ops.lp_pool(z, p, None, 1)
    dz, dp, *_ = ops.lp_pool_backward(torch.ones_like(u), z, p, None, 1, True, False)
    assert u.isnan().tolist() == [True] + [False] * 5
    assert u[1:4].tolist() == [torch.inf, 0.0, torch.inf]
    assert dz[0].isnan().all()
    assert dz[1].nonzero().flatten().tolist() == [2]
    assert dz[1, 2] == -1
    assert not dz[2].any()
    assert dz[3, [0, 2]].tolist() == [0.5, 0.5]
    assert dp.isnan()
    assert_close(u[4:], plain.forward(z[4:], p, None, 1))


@pytest.mark.parametrize("shape", [(4, 3, 20), (4, 20, 3), (4, 20, 300)], ids=str)
def test_an_order_that_is_not_a_number_shows(shape):
    dim = 1 if shape[2] == 20 else 2
    z, p = torch.randn(shape), torch.full((20,), 2.5)
    p[7] = torch.nan
    order = p if dim == 1 else p[:, None]
    u = ops.lp_pool(z, order, None, dim)
    dz, dp, *_ = ops.lp_pool_backward(torch.ones_like(u), z, order, None, dim, True, False)
    assert u.isnan().any(0).nonzero().flatten().tolist() == [7]
    assert dz.movedim(dim, 0).isnan().any(0).any(0).nonzero().flatten().tolist() == [7]
    assert dp.isnan().nonzero()[:, 0].tolist() == [7]


def test_double_precision_of_every_size():
    """Denormal numbers, and numbers whose powers would overflow, in one group and alone."""
    groups = [[3e-310, 4e-310], [3e300, 4e300], [3.0, 4e-310], [0.0, 5e-324]]
    z = torch.tensor(groups, dtype=torch.float64)
    denormal, huge, one, smallest = ops.lp_pool(z, torch.tensor(2.0).double(), None, 1).tolist()
    assert denormal == pytest.approx(12.5**0.5 * 1e-310, rel=0, abs=1e-322)
    assert huge == pytest.approx(12.5**0.5 * 1e300, rel=1e-15)
    assert one == pytest.approx(3 / 2**0.5, rel=1e-15)
    assert smallest in (0.0, 5e-324)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_bits_for_the_same_number_of_threads(threads):
    z, p, c = torch.randn(500, 5, 240), 1 + torch.randn(240).exp(), torch.randn(5, 240)
    grad = torch.randn(500, 240)
    with accuracy.threads(threads):
        runs = [ops.lp_pool_backward(grad, z, p, c, 1, True, True) for _ in range(3)]
    for repeat in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], repeat, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_number_of_half_precision_is_read_and_written(dtype):
    numbers = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    u = ops.lp_pool(numbers.unsqueeze(1), torch.tensor([[2.0]]), None, 1)
    assert torch.equal(u.isnan(), numbers.isnan())
    valid = ~numbers.isnan()
    assert torch.equal(u[valid], numbers[valid].abs())


@pytest.mark.parametrize("include", [True, False], ids=["padding-counts", "padding-does-not"])
@pytest.mark.parametrize("ceil_mode", [False, True], ids=["floor", "ceil"])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (3, 1, 1), (4, 3, 2)]
)
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last], ids=str)
def test_windows_of_order_1_and_inf_are_torchs_pooling(
    kernel, stride, padding, ceil_mode, include, memory
):
    z = torch.rand(2, 5, 21, 37).contiguous(memory_format=memory)
    settings = windows(kernel, stride, padding, 1, ceil_mode, include)
    mean = avg_pool2d(z, kernel, stride, padding, ceil_mode, include)
    assert_close(ops.lp_pool_nd(z, torch.ones(5), *settings), mean)
    top = max_pool2d(z, kernel, stride, padding, ceil_mode=ceil_mode)
    found = ops.lp_pool_nd(z, torch.full((5,), torch.inf), *settings)
    assert torch.equal(found, top)
    assert found.stride() == top.stride()


WINDOWS = {
    "k2": ((3, 5, 9, 21), windows(2)),
    "k3-overlapping": ((2, 20, 15, 40), windows(3, 2)),
    "k3-stride-1": ((2, 3, 9, 50), windows(3, 1, 1)),
    "line": ((2, 17, 50), windows(4, 3, dims=1)),
    "cube": ((2, 3, 6, 7, 9), windows(2, dims=3)),
    "many-entries": ((2, 3, 8, 9, 9), windows(3, 2, dims=3)),
    "gaps": ((2, 3, 9, 40), windows(2, 4)),
    "dilated": ((2, 3, 19, 40), windows(3, 2, 1, 3)),
    "ceil-without-padding": ((2, 3, 10, 41), windows(3, 2, 1, 1, True, False)),
}


@pytest.mark.parametrize(("shape", "settings"), WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("memory", ["channels-first", "channels-last", "slices"])
@pytest.mark.parametrize("threads", [1, 2])
def test_windows_in_place_are_windows_laid_out(shape, settings, memory, threads):
    z = torch.randn(shape)
    z[0, 0].flatten()[3] = 0.0
    if memory == "channels-last":
        z = z.movedim(1, -1).contiguous().movedim(-1, 1)
    elif memory == "slices":
        z = torch.randn(*shape[:-1], 2 * shape[-1])[..., ::2]
    p = 1 + torch.randn(shape[1]).exp()
    p[0] = torch.inf
    with accuracy.threads(threads):
        u = ops.lp_pool_nd(z, p, *settings)
        grad = torch.randn(u.shape)
        dz, dp = ops.lp_pool_nd_backward(grad, z, p, *settings, True)
    doubles = z.double().requires_grad_(), p.double().requires_grad_()
    true_u = layouts.pool_nd(*doubles, *settings)
    assert ulps(u, true_u.detach()) <= 5
    true_dz, true_dp = torch.autograd.grad(true_u, doubles, grad.double())
    assert relative_to_largest(dz, true_dz) <= 1e-5
    assert relative_to_largest(dp, true_dp.nan_to_num()) <= 1e-5
    assert dz.stride() == torch.empty_like(z).stride()


@pytest.mark.parametrize("width", [(), (3,), (40,), (2, 5)], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_segments_are_groups_of_any_size(width, threads):
    sizes = [3, 0, 1, 200, 17, 0, 5, 1000]
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    z = torch.randn(sum(sizes), *width)
    p = 1 + torch.randn(len(sizes), *width).exp()
    p[4] = torch.inf
    with accuracy.threads(threads):
        u = ops.lp_pool_segments(z, p, offsets)
        grad = torch.randn_like(u)
        dz, dp, _ = ops.lp_pool_segments_backward(grad, z, p, offsets, True)
    for g, part in enumerate(z.double().split(sizes)):
        if not len(part):
            assert not u[g].any()
            assert not dp[g].any()
            continue
        order, upstream = p[g : g + 1].double(), grad[g].double()
        assert ulps(u[g], plain.forward(part, order, None, 0)) <= 5
        true_dz, true_dp, *_ = plain.backward(upstream, part, order, None, 0, (True, True, False))
        assert relative_to_largest(dz[offsets[g] : offsets[g + 1]], true_dz) <= 1e-5
        assert relative_to_largest(dp[g], true_dp[0]) <= 1e-5
    assert_close(layouts.pool_segments(z, p, offsets), u)


@pytest.mark.parametrize(
    "offsets", [[0, 3, 2, 5], [0, 3, 9], [1, 5], [0, 4]], ids=["falling", "beyond", "late", "short"]
)
@needs_library
def test_bad_offsets_are_refused(offsets):
    with pytest.raises(RuntimeError, match="offsets must"):
        ops.lp_pool_segments(torch.ones(5, 2), torch.tensor(2.0), torch.tensor(offsets))


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment
    )


@pytest.fixture(scope="module")
def truths(tmp_path_factory):
    """A file with the truth about every case, which takes longer than all instruction sets.

    And with its inputs: torch's own randn has other last digits with each of them.
    """
    inputs, grads = {}, {}
    for case in CASES:
        for dtype in (torch.float32, torch.float64, *[torch.float16] * case.half):
            accuracy.truth(case, dtype)
            inputs[case.name, dtype] = case.tensors(dtype)
            grads[case.name, dtype] = accuracy.gradient(case, dtype)
    path = tmp_path_factory.mktemp("truths") / "truths.pt"
    torch.save((accuracy.TRUTHS, inputs, grads), path)
    return path


@needs_library
@pytest.mark.parametrize("name", ["default", "avx2", "avx512"])
def test_every_instruction_set(name, truths):
    """The cases once more, by the instruction set that the environment asks for."""
    code = (
        "import sys, torch; sys.path.insert(0, 'tests')\n"
        "import accuracy\n"
        "from accuracy import Operator, assert_accurate, assert_rounded_once\n"
        "from cases import CASES, Case\n"
        "from lpunits.ops import status\n"
        f"accuracy.TRUTHS, inputs, grads = torch.load({str(truths)!r})\n"
        "Case.tensors = lambda case, dtype: inputs[case.name, dtype]\n"
        "accuracy.gradient = lambda case, dtype: grads[case.name, dtype]\n"
        "for case in CASES:\n"
        "    assert_accurate(Operator, case, torch.float32)\n"
        "    assert_accurate(Operator, case, torch.float64)\n"
        "    if case.half: assert_rounded_once(Operator, case, torch.float16)\n"
        "print(status())\n"
    )
    done = run(code, ATEN_CPU_CAPABILITY=name)
    assert done.returncode == 0, done.stderr
    served = done.stdout.strip().removeprefix("compiled for ")
    if served != name.replace("default", "baseline"):
        pytest.skip(f"this processor has {served} at best")


def test_without_the_library_plain_torch_serves_and_says_why(tmp_path):
    import lpunits

    shutil.copytree(lpunits.__path__[0], tmp_path / "lpunits")
    library = tmp_path / "lpunits" / "ops" / "_cpu.so"
    code = (
        "import torch, lpunits\n"
        "w = torch.nn.Parameter(torch.ones(2, 3)); w.grad = torch.ones(2, 3)\n"
        "lpunits.optim.SGD([w], 0.5).step()\n"
        "assert w.eq(0.5).all() and lpunits.Dropout(0.5)(w).shape == w.shape\n"
        "z = torch.randn(4, 3, 20, requires_grad=True)\n"
        "lpunits.LpPool(20, dim=1)(z).sum().backward()\n"
        "lpunits.LpPool2d(3, 2)(torch.randn(2, 3, 8, 8, requires_grad=True)).sum().backward()\n"
        "print(lpunits.ops.status())\n"
    )
    for damage in (
        lambda: library.unlink(missing_ok=True),
        lambda: library.write_bytes(b"\x7fELF"),
    ):
        damage()
        done = run(code, PYTHONPATH=str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("plain torch, as the compiled library could not be loaded: ")


@needs_library
def test_foreign_tensors_are_refused_by_the_operator_itself():
    z, p = torch.randn(3, 4, 5), torch.full((5,), 2.0)
    with pytest.raises(RuntimeError, match="does not broadcast"):
        ops.lp_pool(z, torch.ones(4), None, 1)
    with pytest.raises(RuntimeError, match="grad must be like u"):
        ops.lp_pool_backward(torch.ones(3, 4), z, p, None, 1, True, False)
    with pytest.raises(RuntimeError, match="dim must be"):
        ops.lp_pool(z, p, None, 3)
    with pytest.raises(RuntimeError, match="of one shape"):
        ops.descend_([torch.ones(4)], [torch.ones(2)], [torch.ones(4)], [4], 0.1, 0.9, 0.0, [1.0])


@pytest.mark.parametrize("name", ["nd", "nd_backward", "segments", "segments_backward"])
def test_windows_and_segments_are_plain_torch_on_a_gpu(name):
    """Which needs none to be known: Triton serves lp_pool alone."""
    table = torch._C._dispatch_dump_table(f"lpunits::lp_pool_{name}")
    (gpu,) = (line for line in table.splitlines() if line.startswith("CUDA: "))
    assert "default backend kernel" in gpu
    table = torch._C._dispatch_dump_table("lpunits::lp_pool")
    (gpu,) = (line for line in table.splitlines() if line.startswith("CUDA: "))
    assert "default backend kernel" not in gpu
