"""Dropout: the right share, the same mask for the gradient, and torch's own where we have none."""

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from lpunits import dropout
from lpunits.dropout import Dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.97])
@pytest.mark.parametrize("threads", [1, 2])
def test_share_and_scale(rate, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        y = Dropout(rate)(torch.ones(1000, 777))
    finally:
        torch.set_num_threads(before)
    dropped = (y == 0).double()
    # Five standard deviations of a share of that many entries.
    assert abs(dropped.mean() - rate) < 5 * (rate * (1 - rate) / y.numel()) ** 0.5
    assert dropped.mean(0).var() == pytest.approx(rate * (1 - rate) / 1000, rel=0.3)
    assert dropped.mean(1).var() == pytest.approx(rate * (1 - rate) / 777, rel=0.3)
    torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / (1 - rate)))


def test_entries_are_independent():
    masks = [(Dropout(0.5)(torch.ones(512, 511)) == 0).double() - 0.5 for _ in range(2)]
    limit = 5 * 0.25 / masks[0].numel() ** 0.5
    assert abs((masks[0] * masks[1]).mean()) < limit
    flat = masks[0].flatten()
    for lag in (1, 2, 7, 16, 511, 4096):
        assert abs((flat[lag:] * flat[:-lag]).mean()) < limit


def test_the_generator_decides_and_the_number_of_threads_does_not():
    x, layer = torch.randn(300, 300), Dropout(0.3)
    results = []
    before = torch.get_num_threads()
    for threads in (1, 2, 1):
        torch.manual_seed(7)
        torch.set_num_threads(threads)
        results.append(layer(x))
    torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    assert not torch.equal(layer(x), layer(x))


def test_the_gradient_has_the_mask_of_the_value():
    x = torch.randn(50, 33, requires_grad=True)
    y = Dropout(0.4)(x)
    upstream = torch.ones_like(y).requires_grad_()
    (dx,) = torch.autograd.grad(y, x, upstream, create_graph=True)
    scale = torch.where(y.detach() == 0, 0.0, 1 / 0.6)
    torch.testing.assert_close(dx.detach(), scale)
    (again,) = torch.autograd.grad(dx.sum(), upstream)
    torch.testing.assert_close(again, scale)


def test_nothing_happens_in_evaluation_and_at_a_rate_of_zero():
    x = torch.randn(5)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert not Dropout(1.0)(x).any()


def test_infinite_entries_can_be_dropped():
    y = Dropout(0.5)(torch.full((1000,), torch.inf))
    assert not y.isnan().any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_torch_serves_other_dtypes(dtype):
    torch.manual_seed(3)
    ours = Dropout(0.5)(torch.ones(100, dtype=dtype))
    torch.manual_seed(3)
    assert torch.equal(ours, nn.Dropout(0.5)(torch.ones(100, dtype=dtype)))


def test_torch_serves_where_there_is_no_compiled_code(monkeypatch):
    monkeypatch.setattr(dropout, "compiled", False)
    torch.manual_seed(3)
    ours = Dropout(0.5)(torch.ones(100))
    torch.manual_seed(3)
    assert torch.equal(ours, nn.Dropout(0.5)(torch.ones(100)))


def test_not_contiguous_and_empty():
    x = torch.randn(64, 48).t()
    y = Dropout(0.5)(x)
    kept = y != 0
    torch.testing.assert_close(y[kept], 2 * x[kept])
    assert Dropout(0.5)(torch.empty(0, 3)).shape == (0, 3)


def test_in_place():
    x = torch.ones(100)
    y = Dropout(0.5, inplace=True)(x)
    assert y.data_ptr() == x.data_ptr()
    assert set(x.unique().tolist()) == {0.0, 2.0}


def test_vmap_takes_torchs_own():
    y = torch.func.vmap(Dropout(0.5), randomness="different")(torch.ones(4, 100))
    assert set(y.unique().tolist()) == {0.0, 2.0}


def test_forward_mode_keeps_the_tangent():
    x, tangent = torch.ones(100), torch.full((100,), 3.0)
    with torch.autograd.forward_ad.dual_level():
        dual = Dropout(0.5)(torch.autograd.forward_ad.make_dual(x, tangent))
        y, dy = torch.autograd.forward_ad.unpack_dual(dual)
        torch.testing.assert_close(dy, 3 * y)
        assert set(y.unique().tolist()) == {0.0, 2.0}


def in_a_mode(layer, x, mode):
    with mode:
        return layer(x)


def default_device(layer):
    torch.set_default_device("meta")
    try:
        return layer(torch.ones(100, device="cpu"))
    finally:
        torch.set_default_device(None)


def masks_of_a_graph(layer, make):
    graph = make(layer, torch.ones(1000))
    return torch.cat([graph(torch.ones(1000)), graph(torch.ones(1000))])


@pytest.mark.parametrize(
    "case",
    [
        lambda d: d(torch.ones(3, device="meta")).is_meta,
        lambda d: d(torch.eye(3).to_sparse()),
        lambda d: d(torch.eye(3).to_sparse_csr()),
        lambda d: d(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])).is_nested,
        lambda d: d(torch._efficientzerotensor((3,))),
        lambda d: d(torch.ones(3, dtype=torch.int64)),
        lambda d: d([1.0]),
        lambda d: d(FakeTensorMode().from_tensor(torch.ones(3))).shape,
        lambda d: in_a_mode(d, torch.ones(3), FakeTensorMode()),
        lambda d: in_a_mode(d, torch.ones(3), FakeTensorMode(allow_non_fake_inputs=True)).shape,
        default_device,
        lambda d: masks_of_a_graph(d, lambda f, x: torch.jit.trace(f, x, check_trace=False)),
        lambda d: masks_of_a_graph(d, lambda f, x: make_fx(f)(x)),
        lambda d: masks_of_a_graph(d, lambda f, x: make_fx(f, tracing_mode="fake")(x)),
        lambda d: masks_of_a_graph(d, lambda f, x: torch.func.functionalize(f)),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_torchs_result_or_its_kind_of_error(case):
    """And a graph draws a new mask at every call."""

    def outcome(kind):
        torch.manual_seed(3)
        try:
            return case(kind(0.5))
        except Exception as error:  # any: the kinds are compared
            return error

    ours, theirs = outcome(Dropout), outcome(nn.Dropout)
    if isinstance(theirs, Exception):
        assert type(ours) is type(theirs), ours
    elif not isinstance(theirs, torch.Tensor):
        assert ours == theirs
    else:
        assert set(ours.unique().tolist()) == set(theirs.unique().tolist())
        if len(theirs) == 2000:
            assert not torch.equal(*ours.chunk(2))


def test_a_sparse_upstream_gradient():
    x = torch.ones(4, 4, requires_grad=True)
    y = Dropout(0.5)(x)
    (dx,) = torch.autograd.grad(y, x, torch.eye(4).to_sparse())
    torch.testing.assert_close(dx, y.detach() * torch.eye(4))
