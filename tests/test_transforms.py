"""Every transform of torch sees through the unit and finds the same numbers."""

import copy
import io
import math
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

from lpunits import MLP, GlobalLpPool, LpLinear, LpPool2d, lp_pool, ops, reference

DOUBLE = torch.float64


def inputs(batch: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """z, p and center of a small layer, away from the kinks at z = center."""
    z = torch.randn(batch, 4, 5, dtype=DOUBLE)
    z = z + 0.2 * z.sign()
    p = torch.tensor([1.5, 2.0, 3.0, 7.0, 20.0], dtype=DOUBLE)
    return z, p, 0.05 * torch.randn(4, 5, dtype=DOUBLE)


def pool(z, p, center):
    return lp_pool(z, p, center=center, dim=1)


def truth(z, p, center):
    return reference.lp_pool(z, p, center=center, dim=1)


@pytest.mark.parametrize("p", [1.0001, 2.0, 3.0, 1e2, 1e4])
def test_gradcheck_and_gradgradcheck_in_z_p_and_center(p):
    z, _, center = inputs(2)
    # Entries within a few 1/p of each other, so that all of them matter at large orders.
    z = center + (1 + (z - center).tanh() / p) * z.sign() if p >= 10 else z
    order = torch.full((5,), p, dtype=DOUBLE)
    step = 1e-6 if p < 1e3 else 1e-8
    args = [t.requires_grad_() for t in (z, order, center)]
    assert torch.autograd.gradcheck(pool, args, eps=step, atol=1e-5, check_forward_ad=True)
    if p < 1e3:  # beyond, second derivatives are of the order of p and differences lose them
        assert torch.autograd.gradgradcheck(pool, args, eps=1e-6, atol=1e-4 * max(1, p))


def test_gradgradcheck_at_an_infinite_order():
    z, _, center = inputs(2)
    order = torch.tensor(math.inf, dtype=DOUBLE)
    args = [t.requires_grad_() for t in (z, center)]
    assert torch.autograd.gradgradcheck(lambda z, c: pool(z, order, c), args)


def test_second_derivatives_of_a_group_of_zeros_are_zero():
    z = torch.zeros(2, 3, requires_grad=True)
    p = torch.tensor([1.5, 3.0], requires_grad=True)
    (first,) = torch.autograd.grad(lp_pool(z, p).sum(), z, create_graph=True)
    second = torch.autograd.grad(first.sum(), (z, p))
    assert all(torch.equal(g, torch.zeros_like(g)) for g in (first, *second))


@pytest.mark.parametrize("argnum", [0, 1, 2])
class TestFunc:
    def test_grad(self, argnum):
        args = inputs()
        ours = grad(lambda *a: pool(*a).square().sum(), argnums=argnum)(*args)
        true = grad(lambda *a: truth(*a).square().sum(), argnums=argnum)(*args)
        torch.testing.assert_close(ours, true)

    @pytest.mark.parametrize("jacobian", [jacrev, jacfwd, hessian], ids=lambda f: f.__name__)
    def test_jacobians_and_hessian(self, argnum, jacobian):
        args = inputs(2)
        ours, true = (jacobian(f, argnums=argnum)(*args) for f in (pool, truth))
        torch.testing.assert_close(ours, true, rtol=1e-6, atol=1e-9)

    def test_vmap_over_one_argument(self, argnum):
        args = list(inputs())
        args[argnum] = torch.stack([args[argnum], args[argnum] * 1.1])
        in_dims = tuple(0 if i == argnum else None for i in range(3))
        ours, true = (vmap(f, in_dims)(*args) for f in (pool, truth))
        torch.testing.assert_close(ours, true)


def test_jvp_and_vjp():
    args = inputs()
    tangents = tuple(torch.randn_like(t) for t in args)
    torch.testing.assert_close(jvp(pool, args, tangents), jvp(truth, args, tangents))
    cotangent = torch.randn(3, 5, dtype=DOUBLE)
    ours, true = vjp(pool, *args)[1](cotangent), vjp(truth, *args)[1](cotangent)
    torch.testing.assert_close(ours, true)


def test_forward_mode():
    z, p, center = inputs()
    tangent = torch.randn_like(z)
    with forward_ad.dual_level():
        u = pool(forward_ad.make_dual(z, tangent), p, center)
        ours = forward_ad.unpack_dual(u).tangent
    torch.testing.assert_close(ours, jvp(lambda z: truth(z, p, center), (z,), (tangent,))[1])


def test_per_sample_gradients_of_a_layer_by_functional_call():
    layer = LpLinear(6, 5, 4, bias=True)
    x = torch.randn(7, 6)
    weights = {name: t.detach() for name, t in layer.named_parameters()}

    def loss(weights, x):
        return functional_call(layer, weights, x).square().sum()

    each = vmap(grad(loss), in_dims=(None, 0))(weights, x)
    layer(x).square().sum().backward()
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(each[name].sum(0), parameter.grad)


def test_an_ensemble_by_vmap():
    layers = [LpLinear(6, 5, 4, order=o) for o in (1.5, 2.0, 8.0)]
    weights, buffers = torch.func.stack_module_state(layers)
    x = torch.randn(7, 6)
    together = vmap(lambda w, b: functional_call(layers[0], (w, b), x))(weights, buffers)
    torch.testing.assert_close(together, torch.stack([layer(x) for layer in layers]))


class TestCompile:
    """No graph break, one graph for every batch size, the numbers of eager execution."""

    @pytest.fixture(autouse=True)
    def _fresh(self):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()

    @pytest.mark.parametrize("mixed", [False, True], ids=["finite", "with-infinity"])
    def test_training_step_of_a_layer_with_dynamic_batch(self, mixed):
        orders = [1.5, 2.0, 3.0, 4.0, math.inf if mixed else 5.0]
        layer = LpLinear(6, 5, 4, order=orders)
        compiled = torch.compile(layer, fullgraph=True, dynamic=True)
        for batch in (3, 8, 17):
            x = torch.randn(batch, 6)
            results = []
            for call in (layer, compiled):
                layer.zero_grad()
                u = call(x)
                u.square().sum().backward()
                results.append([u.detach(), *(w.grad.clone() for w in layer.parameters())])
            torch.testing.assert_close(*results)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1

    def test_spatial_layers(self):
        net = nn.Sequential(LpPool2d(3, 2), GlobalLpPool(3))
        x = torch.randn(2, 3, 8, 8)
        torch.testing.assert_close(torch.compile(net, fullgraph=True)(x), net(x))


NETS = {
    "mlp": (MLP(6, [5], 3, filters=3, order=2.5).eval(), (6,)),
    "mixed orders": (LpLinear(6, 3, 2, order=[2.0, 30.0, math.inf]), (6,)),
    "global": (GlobalLpPool(3), (3, 8, 8)),
    "windows": (LpPool2d(3, 3, padding=1), (3, 8, 8)),
}


class TestExport:
    net = MLP(6, [5, 4], 3, filters=3, order=2.5, dropout=0.1).eval()
    batch = torch.export.Dim("batch")

    def test_torch_export_with_dynamic_batch(self):
        program = torch.export.export(
            self.net, (torch.randn(4, 6),), dynamic_shapes=[{0: self.batch}]
        )
        stored = io.BytesIO()
        torch.export.save(program, stored)
        stored.seek(0)
        loaded = torch.export.load(stored).module()
        for size in (2, 9):
            x = torch.randn(size, 6)
            torch.testing.assert_close(loaded(x), self.net(x), rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize(
        ("way", "name"),
        [
            *((way, name) for way in ("dynamo", "trace") for name in NETS),
            ("program", "mixed orders"),
            ("program", "windows"),
        ],
    )
    def test_onnx_with_dynamic_batch(self, name, way, tmp_path):
        pytest.importorskip("onnxscript", reason="needs lpunits[export]")
        onnxruntime = pytest.importorskip("onnxruntime", reason="needs lpunits[export]")
        net, shape = NETS[name]
        path, example = tmp_path / "net.onnx", torch.randn(4, *shape)
        dynamic = {"dynamo": True, "verbose": False, "dynamic_shapes": [{0: self.batch}]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's own
            if way == "dynamo":
                torch.onnx.export(net, (example,), path, **dynamic)
            elif way == "program":  # which holds the operator, to be decomposed
                program = torch.export.export(net, (example,), dynamic_shapes=[{0: self.batch}])
                program = program.run_decompositions(ops.decompositions)
                torch.onnx.export(program, (example,), path, **dynamic)
            else:
                names = {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}}
                if isinstance(net, LpPool2d):
                    with pytest.raises(NotImplementedError, match="use dynamo=True"):
                        torch.onnx.export(net, (example,), path, dynamo=False, **names)
                    return
                torch.onnx.export(net, (example,), path, dynamo=False, **names)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        for size in (2, 9):
            x = torch.randn(size, *shape)
            x[0] = 0.0  # groups of zeros too
            (out,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
            torch.testing.assert_close(torch.from_numpy(out), net(x).detach(), rtol=1e-6, atol=1e-6)


def test_autocast():
    layer = LpLinear(64, 5, 4)
    x = torch.randn(7, 64)
    with torch.autocast("cpu", torch.bfloat16):
        u = layer(x)
    assert u.dtype == torch.bfloat16
    torch.testing.assert_close(u.float(), layer(x), rtol=0.02, atol=0.02)
    u.sum().backward()
    assert all(w.grad.dtype == torch.float32 for w in layer.parameters())


def test_checkpointing_gives_the_same_gradients():
    layer = LpLinear(6, 5, 4)
    x = torch.randn(7, 6)
    grads = []
    for call in (layer, lambda x: checkpoint(layer, x, use_reentrant=False)):
        layer.zero_grad()
        call(x).square().sum().backward()
        grads.append([w.grad.clone() for w in layer.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize(
    "layer",
    [LpLinear(6, 5, 4), LpLinear(6, 2, 4, order=[2.0, math.inf]), MLP(6, [5], 2), GlobalLpPool(3)],
    ids=lambda layer: type(layer).__name__,
)
class TestCopies:
    def test_deepcopy_and_pickle(self, layer):
        for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert repr(twin) == repr(layer)
            assert_same_state(twin, layer)

    def test_state_dict(self, layer):
        twin = copy.deepcopy(layer)
        for tensor in twin.parameters():
            nn.init.normal_(tensor)
        twin.load_state_dict(layer.state_dict())
        assert_same_state(twin, layer)

    def test_safetensors(self, layer, tmp_path):
        safetensors = pytest.importorskip("safetensors.torch", reason="needs lpunits[paper]")
        safetensors.save_model(layer, tmp_path / "layer.safetensors")
        twin = copy.deepcopy(layer)
        for tensor in twin.parameters():
            nn.init.normal_(tensor)
        safetensors.load_model(twin, tmp_path / "layer.safetensors")
        assert_same_state(twin, layer)


def assert_same_state(one: nn.Module, other: nn.Module) -> None:
    a, b = one.state_dict(), other.state_dict()
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)
