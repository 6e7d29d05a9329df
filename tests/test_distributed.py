"""On parameters and inputs that two processes share, everything does what one process does."""

import copy
import os
import socket

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import fsdp, tensor

from lpunits import MLP, LpLinear, lp_pool
from lpunits.dropout import Dropout
from lpunits.optim import SGD

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.filterwarnings("ignore:DTensor random operators:UserWarning")
def test_one_process(port, monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # restored afterwards
    _rank(0, 1, port)


def test_two_processes(port):
    torch.multiprocessing.spawn(_rank, (2, port), 2)


def _rank(rank: int, size: int, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    mesh = dist.init_device_mesh("cpu", (size,))
    for layers in (_plain, _units):
        for max_norm in (None, 0.7):
            _trained_under_fsdp2(mesh, layers(), max_norm)
    placements = [tensor.Replicate(), tensor.Shard(0), tensor.Shard(1)]
    for placement in placements:
        for shape in ((6, 4), (5, 3), (3, 4, 2, 2), (1, 3)):  # also of unequal shares
            _sgd_steps(mesh, shape, placement)
        for p_placement in placements[:2]:
            for dim in (0, 1, 2):
                _pooled(mesh, placement, p_placement, dim)
        _layer(mesh, placement)
        _dropped(mesh, placement)
    _mixed_tensors_are_torchs_error(mesh)
    dist.destroy_process_group()


def _plain():
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), Dropout(0.0), nn.Linear(5, 3))


def _units():
    return MLP(6, [5, 3], 4, filters=3)


def _same(ours, theirs):
    whole = ours.full_tensor() if isinstance(ours, tensor.DTensor) else ours
    torch.testing.assert_close(whole.detach(), theirs.detach(), rtol=1e-5, atol=2e-6)


def _on(mesh, t, placement):
    return tensor.distribute_tensor(t, mesh, [placement])


def _trained_under_fsdp2(mesh, net, max_norm):
    alone = copy.deepcopy(net)
    for layer in net:
        if list(layer.parameters()):
            fsdp.fully_shard(layer, mesh=mesh)
    fsdp.fully_shard(net, mesh=mesh)
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "max_norm": max_norm}
    both = [(n, SGD(n.parameters(), **options)) for n in (net, alone)]
    for seed in range(3):
        x = torch.randn(8, 6, generator=torch.Generator().manual_seed(seed))
        for trained, optimizer in both:
            optimizer.zero_grad()
            trained(x).square().mean().backward()
            optimizer.step()
    for ours, theirs in zip(net.parameters(), alone.parameters(), strict=True):
        _same(ours, theirs)


def _sgd_steps(mesh, shape, placement):
    torch.manual_seed(0)
    start, *gradients = torch.randn(4, *shape)
    ours, alone = nn.Parameter(_on(mesh, start, placement)), nn.Parameter(start.clone())
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "max_norm": 0.7}
    optimizers = [SGD([w], **options) for w in (ours, alone)]
    for gradient in gradients:
        ours.grad, alone.grad = _on(mesh, gradient, placement), gradient
        for optimizer in optimizers:
            optimizer.step()
    _same(ours, alone)


def _pooled(mesh, z_placement, p_placement, dim):
    torch.manual_seed(0)
    z, p = torch.randn(6, 4, 5), 1 + 3 * torch.rand(5 if dim < 2 else 4)
    ours = [_on(mesh, z, z_placement), _on(mesh, p, p_placement)]
    results = []
    for values in (ours, [z, p]):
        leaves = [v.detach().requires_grad_() for v in values]
        u = lp_pool(*leaves, dim=dim)
        u.sum().backward()
        results.append([u, *(leaf.grad for leaf in leaves)])
    for shared, alone in zip(*results, strict=True):
        _same(shared, alone)


def _layer(mesh, placement):
    torch.manual_seed(0)
    layer, x = LpLinear(6, 5, 3), torch.randn(4, 6)
    alone = copy.deepcopy(layer)
    tensor.distribute_module(layer, mesh)
    y, expected = layer(_on(mesh, x, placement)), alone(x)
    y.sum().backward()
    expected.sum().backward()
    _same(y, expected)
    for ours, theirs in zip(layer.parameters(), alone.parameters(), strict=True):
        _same(ours.grad, theirs.grad)


def _dropped(mesh, placement):
    x, found = _on(mesh, torch.ones(64, 8), placement), []
    for kind in (Dropout, nn.Dropout):
        torch.manual_seed(1)
        found.append(kind(0.5)(x).full_tensor())
    assert torch.equal(*found)


def _mixed_tensors_are_torchs_error(mesh):
    x = _on(mesh, torch.ones(4, 6), tensor.Shard(0))
    for layer in (nn.Linear(6, 5), LpLinear(6, 5, 3)):
        with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor and DTensor"):
            layer(x)
