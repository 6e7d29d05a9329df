"""The operators: as torch wants them, in compiled and exported graphs, on every processor."""

import io
import math
import os
import shutil
import subprocess
import sys

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch.nn.functional import avg_pool2d, max_pool2d
from torch.testing import assert_close

from cases import relative_to_largest, ulps
from lpunits import DOTRNN, DTRNN, MLP, GlobalLpPool, LpLinear, LpPool2d, lp_pool
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
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        center = None if c_shape is None else torch.randn(c_shape)
        (u, *grads), (true_u, *true_grads) = both(
            torch.randn(shape), 1 + torch.randn(p_shape).exp(), center, dim
        )
    finally:
        torch.set_num_threads(before)
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
    z = torch.tensor([[3e-310, 4e-310], [3e300, 4e300], [3.0, 4e-310], [0.0, 5e-324]]).double()
    z[0] = torch.tensor([3e-310, 4e-310], dtype=torch.float64)
    z[1] = torch.tensor([3e300, 4e300], dtype=torch.float64)
    z[2, 1] = 4e-310
    z[3, 1] = 5e-324
    u = ops.lp_pool(z, torch.tensor(2.0).double(), None, 1)
    expected = torch.tensor([12.5**0.5 * 1e-310, 12.5**0.5 * 1e300, 3 / 2**0.5, 5e-324])
    assert_close(u[1:3], torch.tensor([12.5**0.5 * 1e300, 3 / 2**0.5], dtype=torch.float64))
    assert abs(u[0].item() - 12.5**0.5 * 1e-310) < 1e-322
    assert u[3].item() in (0.0, 5e-324)
    assert len(expected) == len(u)


def test_the_same_bits_for_the_same_number_of_threads():
    z, p, c = torch.randn(500, 5, 240), 1 + torch.randn(240).exp(), torch.randn(5, 240)
    grad = torch.randn(500, 240)
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


def windows(kernel, stride=None, padding=0, dilation=1, ceil_mode=False, include=True, dims=2):
    sizes = [[n] * dims for n in (kernel, stride or kernel, padding, dilation)]
    return *sizes, ceil_mode, include


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
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        u = ops.lp_pool_nd(z, p, *settings)
        grad = torch.randn(u.shape)
        dz, dp = ops.lp_pool_nd_backward(grad, z, p, *settings, True)
    finally:
        torch.set_num_threads(before)
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
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        u = ops.lp_pool_segments(z, p, offsets)
        grad = torch.randn_like(u)
        dz, dp, _ = ops.lp_pool_segments_backward(grad, z, p, offsets, True)
    finally:
        torch.set_num_threads(before)
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


class TestRegistration:
    def samples(self):
        z = torch.randn(4, 3, 5, requires_grad=True)
        p = torch.tensor([1.5, 2.0, 3.0, 4.0, 5.0], requires_grad=True)
        c = torch.randn(3, 5, requires_grad=True)
        image = torch.randn(2, 5, 8, 9, requires_grad=True)
        offsets = torch.tensor([0, 1, 4])
        yield ops.lp_pool.default, (z, p, c, 1)
        yield ops.lp_pool.default, (z, p, None, 1)
        grad = torch.randn(4, 5)
        inputs = [t.detach() for t in (z, p, c)]
        yield ops.lp_pool_backward.default, (grad, *inputs, 1, True, True)
        yield ops.lp_pool_nd.default, (image, p, *windows(3, 2, 1))
        last = image.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
        yield ops.lp_pool_nd.default, (last, p, *windows(3, 2, 1))
        grad = torch.randn(2, 5, 4, 5)
        args = (grad, image.detach(), p.detach(), *windows(3, 2, 1), True)
        yield ops.lp_pool_nd_backward.default, args
        yield ops.lp_pool_segments.default, (z, p, offsets)
        grad = torch.randn(2, 3, 5)
        args = (grad, z.detach(), p.detach(), offsets, True)
        yield ops.lp_pool_segments_backward.default, args
        if compiled:
            yield ops.dropout.default, (torch.randn(7, 9), 0.5, 3)

    def test_opcheck(self):
        for operator, args in self.samples():
            torch.library.opcheck(operator, args)

    @needs_library
    def test_opcheck_of_the_descent(self):
        weights, velocities, grads = ([torch.randn(3, 4)] for _ in range(3))
        args = (weights, velocities, grads, [4], 0.1, 0.9, 0.0, [1.0])
        torch.library.opcheck(ops.descend_.default, args)

    @pytest.mark.parametrize(
        ("net", "shape", "names"),
        [
            (MLP(6, [20, 20], 3), (6,), {"lp_pool", "lp_pool_backward"}),
            (LpPool2d(3, 2), (3, 8, 8), {"lp_pool_nd", "lp_pool_nd_backward"}),
            (GlobalLpPool(3), (3, 8, 8), {"lp_pool", "lp_pool_backward"}),
        ],
        ids=["mlp", "windows", "global"],
    )
    def test_a_compiled_graph_contains_the_operator(self, net, shape, names):
        found = set()

        def look(graph, _):
            targets = [str(node.target) for node in graph.graph.nodes]
            found.update(t.split(".")[1] for t in targets if t.startswith("lpunits."))
            dtypes = {getattr(node.meta.get("val"), "dtype", None) for node in graph.graph.nodes}
            assert torch.float64 not in dtypes
            return make_boxed_func(graph.forward)

        torch._dynamo.reset()
        call = torch.compile(net, backend=aot_autograd(fw_compiler=look), fullgraph=True)
        x = torch.randn(4, *shape, requires_grad=True)
        u = call(x)
        assert_close(u, net(x))
        u.sum().backward()
        assert found == names

    def test_an_exported_graph_contains_the_operator(self):
        program = torch.export.export(LpLinear(6, 5, 4), (torch.randn(4, 6),))
        assert "torch.ops.lpunits.lp_pool.default" in program.graph_module.code

    @needs_library
    @pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own
    def test_ahead_of_time_by_inductor(self, tmp_path, monkeypatch):
        from torch._inductor.lowering import lowerings

        monkeypatch.setenv("CI", "1")  # there Inductor refuses an operator with a decomposition
        monkeypatch.delitem(lowerings, torch.ops.lpunits.lp_pool.default, raising=False)
        net = MLP(6, [20], 3).eval()
        batch = torch.export.Dim("batch", min=1, max=64)
        program = torch.export.export(net, (torch.randn(4, 6),), dynamic_shapes=[{0: batch}])
        path = tmp_path / "net.pt2"
        torch._inductor.aoti_compile_and_package(program, package_path=str(path))
        loaded = torch._inductor.aoti_load_package(str(path))
        for size in (3, 9):
            x = torch.randn(size, 6)
            assert_close(loaded(x), net(x))

    def test_make_fx_records_the_operator(self):
        from torch.fx.experimental.proxy_tensor import make_fx

        z = torch.randn(3, 4, 5)
        graph = make_fx(lambda z: lp_pool(z, 3.0, dim=1))(z)
        other = torch.randn(3, 4, 5)
        assert_close(graph(other), lp_pool(other, 3.0, dim=1))


class TestVmap:
    """The rules for batching, against a loop: a batch in each argument or not."""

    batch = 3
    z, batched_z = torch.randn(4, 5, 6), torch.randn(4, batch, 5, 6)
    p, batched_p = 1 + torch.rand(6), 1 + torch.rand(batch, 6)
    center, batched_center = torch.randn(5, 6), torch.randn(5, 6, batch)
    image, batched_image = torch.randn(2, 6, 8, 8), torch.randn(2, 6, batch, 8, 8)
    offsets = torch.tensor([0, 1, 4])

    def check(self, function, *arguments):
        tensors, dims = zip(*arguments, strict=True)
        together = torch.vmap(function, in_dims=dims)(*tensors)
        each = [
            function(*(t if d is None else t.select(d, k) for t, d in arguments))
            for k in range(self.batch)
        ]
        if isinstance(together, Tensor):
            together, each = (together,), [(u,) for u in each]
        for u, parts in zip(together, zip(*each, strict=True), strict=True):
            assert_close(u, torch.stack(parts))

    @pytest.mark.parametrize("z", [(z, None), (batched_z, 1)], ids=["z", "batched-z"])
    @pytest.mark.parametrize(
        "p",
        [(p, None), (batched_p, 0), (batched_p[:, 0], 0), (p[0], None)],
        ids=["p", "batched-p", "number-each", "number"],
    )
    @pytest.mark.parametrize(
        "center", [(center, None), (batched_center, 2)], ids=["center", "batched-center"]
    )
    def test_pool(self, z, p, center):
        grad = torch.randn(self.batch, 4, 6), 0
        if any(d is not None for _, d in (z, p, center)):
            self.check(lambda z, p, c: lp_pool(z, p, center=c, dim=1), z, p, center)
        for need in (True, False):
            args = (1, need, need)
            self.check(lambda *t, a=args: ops.lp_pool_backward(*t, *a), grad, z, p, center)

    @pytest.mark.parametrize("z", [(image, None), (batched_image, 2)], ids=["z", "batched-z"])
    @pytest.mark.parametrize("p", [(p, None), (batched_p, 0)], ids=["p", "batched-p"])
    def test_windows(self, z, p):
        grad, args = (torch.randn(self.batch, 2, 6, 4, 4), 0), windows(3, 2, 1)
        if z[1] is not None or p[1] is not None:
            self.check(lambda z, p: ops.lp_pool_nd(z, p, *args), z, p)
        self.check(lambda *t: ops.lp_pool_nd_backward(*t, *args, True), grad, z, p)

    @pytest.mark.parametrize("z", [(z, None), (batched_z, 1)], ids=["z", "batched-z"])
    @pytest.mark.parametrize("p", [(p, None), (batched_p, 0)], ids=["p", "batched-p"])
    def test_segments(self, z, p):
        grad, offsets = (torch.randn(self.batch, 2, 5, 6), 0), self.offsets
        if z[1] is not None or p[1] is not None:
            self.check(lambda z, p: ops.lp_pool_segments(z, p, offsets), z, p)
        self.check(lambda *t: ops.lp_pool_segments_backward(*t, offsets, True), grad, z, p)

    def test_a_batch_of_offsets_is_refused(self):
        offsets = self.offsets.expand(self.batch, -1)
        with pytest.raises(NotImplementedError, match="the same for all"):
            torch.vmap(ops.lp_pool_segments, in_dims=(None, None, 0))(self.z, self.p, offsets)

    def test_gradients_through_a_batch_and_of_a_batch(self):
        z = torch.randn(3, 4, 5, requires_grad=True)
        p = torch.tensor([2.0, 3.0, 4.0], requires_grad=True)
        u = torch.vmap(lambda z, p: lp_pool(z, p, dim=0))(z, p)
        alone = lp_pool(z, p.unsqueeze(1), dim=1)
        grads = torch.randn(7, *u.shape)
        ours = torch.autograd.grad(u, (z, p), grads[0], retain_graph=True)
        assert_close(ours, torch.autograd.grad(alone, (z, p), grads[0], retain_graph=True))
        (many,) = torch.autograd.grad(alone, z, grads, is_grads_batched=True, retain_graph=True)
        assert_close(many[3], torch.autograd.grad(alone, z, grads[3])[0])


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda: LpLinear(6, 5, 4, order=[1.0, 2.0, 3.0, math.inf, 4.0]), (3, 6)),
        (lambda: MLP(6, [5, 4], 3), (3, 6)),
        (lambda: DTRNN(6, 5, 4, 2), (7, 3, 6)),
        (lambda: DOTRNN(6, 5, 3, 4, 2, 4, 2), (7, 3, 6)),
        (lambda: nn.Sequential(LpPool2d(3, 2), GlobalLpPool(3)), (2, 3, 8, 8)),
    ],
    ids=["linear", "mlp", "rnn", "deep-output-rnn", "pooling"],
)
def test_a_network_can_be_built_on_the_meta_device_and_filled_later(build, shape):
    """As from_pretrained does: no memory first, then the weights of a checkpoint."""
    real = build()
    with torch.device("meta"):
        empty = build()
    assert all(t.is_meta for t in empty.parameters())
    empty.load_state_dict(real.state_dict(), assign=True)
    x = torch.randn(shape)
    assert_close(empty.eval()(x), real.eval()(x))


class TestTorchScript:
    @pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # checks of shapes
    def test_a_trace_can_be_saved(self):
        layer = LpLinear(6, 5, 4)
        with pytest.warns(DeprecationWarning, match="torch.jit"):
            traced = torch.jit.trace(layer, torch.randn(3, 6), check_trace=False)
        stored = io.BytesIO()
        with pytest.warns(DeprecationWarning, match="torch.jit"):
            torch.jit.save(traced, stored)
        stored.seek(0)
        with pytest.warns(DeprecationWarning, match="torch.jit"):
            loaded = torch.jit.load(stored)
        x = torch.randn(3, 6)
        assert_close(loaded(x), layer(x))

    @pytest.mark.parametrize("net", [LpLinear(6, 5, 4), nn.Sequential(GlobalLpPool(3))])
    def test_scripting_is_refused_in_a_sentence(self, net):
        with (
            pytest.warns(DeprecationWarning, match="torch.jit"),
            pytest.raises(TypeError, match=r"torch.jit.script cannot compile .*: use torch.export"),
        ):
            torch.jit.script(net)


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment
    )


@needs_library
@pytest.mark.parametrize("name", ["default", "avx2", "avx512"])
def test_every_instruction_set(name):
    """The cases once more, by the instruction set that the environment asks for."""
    code = (
        "import sys, torch; sys.path.insert(0, 'tests')\n"
        "from cases import CASES, Operator, assert_accurate, assert_rounded_once\n"
        "from lpunits.ops import status\n"
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
