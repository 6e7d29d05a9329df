"""The operators as torch wants them: schemas, fakes, graphs, vmap, TorchScript, the meta device."""

import io
import math

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch.testing import assert_close

from cases import windows
from lpunits import DOTRNN, DTRNN, MLP, GlobalLpPool, LpLinear, LpPool2d, lp_pool
from lpunits.ops import compiled, ops, status

needs_library = pytest.mark.skipif(not compiled, reason=status())


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
