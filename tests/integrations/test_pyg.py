"""LpAggregation in the real PyTorch Geometric."""

import copy
import math
import warnings

import pytest
import torch

pytest.importorskip("torch_geometric", reason="needs torch_geometric (the extra pyg)")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit.script, in its import
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import SAGEConv, aggr

    from lpunits.integrations.pyg import LpAggregation

from lpunits import orders, param_groups

X = torch.rand(50, 6, generator=torch.Generator().manual_seed(1)) + 0.1
INDEX = torch.randperm(50, generator=torch.Generator().manual_seed(2)) % 9


@pytest.mark.parametrize(
    ("order", "theirs"), [(1.0, aggr.MeanAggregation()), (math.inf, aggr.MaxAggregation())]
)
def test_its_ends_are_the_mean_and_the_maximum(order, theirs):
    ours = LpAggregation(6, order=order)
    torch.testing.assert_close(ours(X, INDEX, dim_size=12), theirs(X, INDEX, dim_size=12))


def test_grouped_rows_by_ptr():
    index = INDEX.sort().values
    ptr = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(index).cumsum(0)])
    pool = LpAggregation(6)
    expected = pool(X, index)
    torch.testing.assert_close(pool(X, ptr=ptr), expected)
    torch.testing.assert_close(pool(X, index, ptr=ptr), expected)
    torch.testing.assert_close(pool(torch.stack([X, 2 * X]), index)[1], 2 * expected)


@pytest.mark.parametrize("channels", [1, 6])
@pytest.mark.parametrize("p", [0.5, 1.0, 3.0])
def test_it_continues_a_power_mean(channels, p):
    theirs = aggr.PowerMeanAggregation(p, learn=True, channels=channels)
    ours = LpAggregation.from_power_mean(theirs)
    a, b = theirs(X, INDEX), ours(X, INDEX)
    torch.testing.assert_close(a, b)
    a.sum().backward()
    b.sum().backward()
    torch.testing.assert_close(theirs.p.grad, ours.rho.grad, rtol=1e-4, atol=1e-5)
    fixed = LpAggregation.from_power_mean(aggr.PowerMeanAggregation(p))
    assert not list(fixed.parameters())


def test_where_a_power_mean_fails():
    """Zeros, large values and large orders: PyG clamps the values; here they are exact."""
    x = torch.tensor([[0.0], [500.0], [1e30]])
    assert LpAggregation(order=60.0)(x, torch.tensor([0, 1, 2])).tolist() == x.tolist()


def test_it_learns_in_message_passing_and_readout():
    graphs = [
        Data(torch.rand(n, 6), torch.randint(n, (2, 4 * n)), y=torch.rand(1)) for n in (3, 8, 5)
    ]
    batch = Batch.from_data_list(graphs)
    conv = SAGEConv(6, 4, aggr=LpAggregation(6))
    read = aggr.MultiAggregation([LpAggregation(4, order=2.0), "max"])
    net = torch.nn.ModuleList([conv, read, torch.nn.Linear(8, 1)])
    before = copy.deepcopy(net.state_dict())
    assert set(orders(net)) == {"0.aggr_module", "1.aggrs.0"}
    optimizer = torch.optim.Adam(param_groups(net, lr=0.01))
    h = conv(batch.x, batch.edge_index).relu()
    (net[2](read(h, batch.batch))[:, 0] - batch.y).square().mean().backward()
    optimizer.step()
    moved = [name for name, t in net.state_dict().items() if not torch.equal(t, before[name])]
    assert {name for name in moved if "rho" in name} == {"0.aggr_module.rho", "1.aggrs.0.rho"}
    conv.reset_parameters()
    torch.testing.assert_close(conv.aggr_module.order, torch.full((6,), 3.0))


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match="x must have channels=4 as its last dimension, got"):
        LpAggregation(4)(X, INDEX)
    with pytest.raises(ValueError, match="channels must be"):
        LpAggregation(0)
    with pytest.raises(ValueError, match="index must be from 0 to num_segments - 1 = 1, got 8"):
        LpAggregation(6)(X, INDEX, dim_size=2)
