"""Compiled and exported graphs hold the recurrence as one operator, for every number of steps."""

import io
import warnings
from functools import partial

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from lpunits import DOTRNN, DTRNN
from lpunits.ops import ops

DOUBLE = torch.float64
SIZES = [(9, 3), (2, 2), (40, 7), (1, 4), (6, 1)]  # steps and batch


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


def build(activation="lp", units=6, dtype=DOUBLE, **options):
    """A small network whose parameters all matter."""
    net = DTRNN(4, 5, units, activation=activation, dtype=dtype, **options)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.empty_like(parameter).uniform_(-0.3, 0.3))
    return net


def sequences(net, steps, batch, dtype=DOUBLE):
    """An input and a state to be differentiated, not contiguous."""
    shape = (4, batch, steps) if net.batch_first else (4, steps, batch)
    x = torch.randn(shape, dtype=dtype).movedim(0, 2)
    h = torch.randn(5, 1, batch, dtype=dtype).movedim(0, 2)
    return x.requires_grad_(), h.requires_grad_()


def training_step(net, call, x, h, *rest):
    """The states, and the gradients in the input, the initial state and every parameter."""
    states, last = call(x, h, *rest)
    loss = states.cos().sum() + last.square().sum()
    return states, last, *torch.autograd.grad(loss, (x, h, *net.parameters()))


def assert_same_training_step(net, compiled, *inputs):
    found, expected = (training_step(net, call, *inputs) for call in (compiled, net))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize(
    ("activation", "units", "shortcut"),
    [("lp", 6, False), ("lp", (6, 7), True), ("maxout", (6, 7), False), ("tanh", 6, True)],
    ids=["lp", "lp, two layers, shortcut", "maxout, two layers", "tanh, shortcut"],
)
def test_a_compiled_training_step_is_the_eager_one(activation, units, shortcut, recompute):
    net = build(activation, units, recompute=recompute, shortcut=shortcut)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    assert_same_training_step(net, compiled, *sequences(net, 9, 3))


@pytest.mark.parametrize("batch_first", [False, True])
def test_the_default_compiler(batch_first):
    net = build(dtype=torch.float32, batch_first=batch_first)
    compiled = torch.compile(net, fullgraph=True)
    assert_same_training_step(net, compiled, *sequences(net, 9, 3, torch.float32))


@pytest.mark.parametrize("batch_first", [False, True])
def test_padded_sequences_compiled(batch_first):
    """Whatever the padding holds."""
    net = build(batch_first=batch_first)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    x, h = sequences(net, 9, 3)
    with torch.no_grad():
        x[(2, slice(4, None)) if batch_first else (slice(4, None), 2)] = torch.nan
    assert_same_training_step(net, compiled, x, h, torch.tensor([1, 9, 4]))
    with pytest.raises(RuntimeError, match="lengths must be from 1 to the steps"):
        compiled(x, h, torch.tensor([1, 10, 4]))


def test_packed_sequences_compiled():
    net = build()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    packed = pack_sequence([torch.randn(n, 4, dtype=DOUBLE) for n in (3, 9, 1)], False)
    data, h = packed.data.requires_grad_(), torch.randn(1, 3, 5, dtype=DOUBLE, requires_grad=True)

    def run(net, data, h):
        out, last = net(packed._replace(data=data), h)
        return out.data, last

    found, expected = (training_step(net, partial(run, call), data, h) for call in (compiled, net))
    torch.testing.assert_close(found, expected)
    wrong = PackedSequence(data, packed.batch_sizes.flip(0), packed.sorted_indices)
    with pytest.raises(ValueError, match="input must be a PackedSequence whose batch sizes fall"):
        compiled(wrong, h)


def graphs_of(net, *inputs):
    """What the compiled forward and backward call."""
    torch._dynamo.reset()
    calls = []

    def keep(graph, _):
        calls.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
    out, _ = torch.compile(net, backend=backend, fullgraph=True)(*inputs)
    out.sum().backward()
    return calls


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_one_node_for_all_steps(dropout):
    net = build(units=(6, 7), dropout=dropout)
    few, many = (graphs_of(net, torch.randn(steps, 3, 4, dtype=DOUBLE)) for steps in (3, 200))
    assert few == many
    forward, backward = many
    assert forward.count(ops.recurrence.default) == 1
    assert backward.count(ops.recurrence_backward.default) == 1
    products = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}
    assert not products & {*forward, *backward}


@pytest.mark.parametrize("lengths", [False, True], ids=["equal lengths", "lengths"])
def test_one_compilation_for_all_sizes(lengths):
    net = build().eval()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(net, backend=counter, fullgraph=True, dynamic=True)
    for steps, batch in SIZES[:3]:  # a size of 1 is one of its own for torch.compile
        x, h = sequences(net, steps, batch)
        rest = (torch.randint(1, steps + 1, (batch,)),) if lengths else ()
        assert_same_training_step(net, compiled, x, h, *rest)
    assert counter.frame_count == 1


def test_dropout_is_drawn_anew_at_every_call_of_a_graph():
    net = build(dropout=0.5)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    x = torch.randn(3, 2, 4, dtype=DOUBLE)
    one, other = compiled(x)[0], compiled(x)[0]
    assert not torch.equal(one, other)
    torch.manual_seed(1)
    one, _ = compiled(x)
    torch.manual_seed(1)
    assert torch.equal(compiled(x)[0], one)


def reloaded(program):
    """The module of an exported program that was on disk."""
    stored = io.BytesIO()
    torch.export.save(program, stored)
    stored.seek(0)
    return torch.export.load(stored).module()


@pytest.mark.parametrize("strict", [False, True], ids=["non-strict", "strict"])
@pytest.mark.parametrize(
    "net",
    [DTRNN(4, 5, [6, 7]), DOTRNN(4, 5, 3, 6, batch_first=True), DTRNN(4, 5, 6, activation="tanh")],
    ids=["two layers", "deep output", "tanh"],
)
def test_export_with_dynamic_steps_and_batch(net, strict):
    steps, batch = torch.export.Dim("steps"), torch.export.Dim("batch")
    program = torch.export.export(
        net.eval(), (torch.randn(5, 3, 4),), dynamic_shapes=[{0: steps, 1: batch}], strict=strict
    )
    loaded = reloaded(program)
    for sizes in SIZES:
        x = torch.randn(*sizes, 4)
        torch.testing.assert_close(loaded(x), net(x))


def test_export_with_lengths():
    net = DTRNN(4, 5, 6)
    steps, batch = torch.export.Dim("steps"), torch.export.Dim("batch")
    program = torch.export.export(
        net,
        (torch.randn(5, 3, 4), None, torch.tensor([5, 1, 2])),
        dynamic_shapes=[{0: steps, 1: batch}, None, {0: batch}],
    )
    loaded = reloaded(program)
    for n, count in SIZES:
        x, lengths = torch.randn(n, count, 4), torch.randint(1, n + 1, (count,))
        torch.testing.assert_close(loaded(x, None, lengths), net(x, lengths=lengths))


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
@pytest.mark.parametrize("activation", ["lp", "maxout", "relu"])
def test_onnx_with_a_dynamic_batch(activation, dynamo, tmp_path):
    pytest.importorskip("onnxscript", reason="needs lpunits[export]")
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs lpunits[export]")
    net, path = build(activation, dtype=torch.float32).eval(), tmp_path / "net.onnx"
    dynamic = (
        {"dynamic_shapes": [{1: torch.export.Dim("batch")}, None, {0: torch.export.Dim("batch")}]}
        if dynamo
        else {"dynamic_axes": {"input": {1: "batch"}, "lengths": {0: "batch"}}}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        torch.onnx.export(
            net,
            (torch.randn(2, 3, 4), None, torch.tensor([2, 1, 2])),
            path,
            dynamo=dynamo,
            input_names=["input", "lengths"],
            verbose=False,
            **dynamic,
        )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x, lengths = torch.randn(2, 4, 4), torch.tensor([2, 2, 1, 1])
    found = session.run(None, {"input": x.numpy(), "lengths": lengths.numpy()})
    expected = [t.detach() for t in net(x, lengths=lengths)]
    torch.testing.assert_close([torch.from_numpy(t) for t in found], expected)


@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_onnx_says_that_the_number_of_steps_is_fixed(tmp_path):
    pytest.importorskip("onnxscript", reason="needs lpunits[export]")
    net, path = DTRNN(4, 5, 6, activation="relu"), tmp_path / "net.onnx"
    shapes = [{0: torch.export.Dim("steps")}]
    with pytest.warns(UserWarning, match="ONNX gets the recurrence unrolled, for 3 steps"):
        torch.onnx.export(
            net, (torch.randn(3, 2, 4),), path, dynamo=True, dynamic_shapes=shapes, verbose=False
        )


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_trace_serves_every_batch():
    net = DTRNN(4, 5, [6, 7]).eval()
    traced = torch.jit.trace(net, torch.randn(5, 3, 4))
    x = torch.randn(5, 7, 4)
    torch.testing.assert_close(traced(x), net(x))


def arguments(kinds, batch_sizes, mask_rows, recompute):
    """Those of ``lpunits::recurrence``, for 7 rows in 3 sequences or in one."""
    batch = 3 if batch_sizes is not None else 1
    filters = [1 if kind == "tanh" else 2 for kind in kinds]
    inputs = [torch.randn(7, 4), torch.randn(batch, 5), torch.randn(6 * filters[0], 4)]
    inputs += [torch.randn(5, 6), None, torch.randn(5, 5) if recompute else None]
    for i, (kind, n) in enumerate(zip(kinds, filters, strict=True)):
        mask = torch.rand(mask_rows, 6) if mask_rows else None
        order = torch.rand(6) + 1.5 if kind == "lp" else None
        inputs += [torch.randn(6 * n, 6 if i else 5), torch.randn(6 * n), order, mask]
    return inputs, batch_sizes, kinds, filters, recompute


@pytest.mark.parametrize(
    "case",
    [
        (["lp"], None, 0, False),
        (["lp", "lp"], torch.tensor([3, 2, 2]), 3, False),
        (["maxout"], torch.tensor([3, 3, 1]), 7, True),
        (["tanh", "maxout"], None, 7, False),
    ],
    ids=["lp", "uneven, one mask", "recomputed, a mask per step", "two kinds"],
)
def test_operators_keep_their_promises(case):
    """Schemas, fakes, and gradients in traced graphs, by torch's own checks."""
    inputs, *rest, recompute = arguments(*case)
    needs = [t is not None and (i < 6 or i % 4 != 1) for i, t in enumerate(inputs)]
    states, last, kept = ops.recurrence(inputs, *rest, recompute)
    grads = torch.randn_like(states), torch.randn(last.shape[::-1]).mT
    torch.library.opcheck(
        ops.recurrence_backward.default, (*grads, states, kept, inputs, *rest, needs)
    )
    learned = [t.requires_grad_() if need else t for t, need in zip(inputs, needs, strict=True)]
    torch.library.opcheck(ops.recurrence.default, (learned, *rest, recompute))


def test_the_meta_device():
    with torch.device("meta"):
        net = DTRNN(4, 5, [6, 7])
        out, last = net(torch.randn(9, 3, 4))
        out.sum().backward()
    assert out.is_meta
    assert out.shape == (9, 3, 5)
    assert last.shape == (1, 3, 5)
    assert all(p.grad.shape == p.shape for p in net.parameters())
