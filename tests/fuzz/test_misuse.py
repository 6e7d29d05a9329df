"""Misuse ends in an error, never in a crash or in a wrong number without a word."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from accuracy import threads
from fuzz.calls import Call, fuzz, shapes
from lpunits import lp_pool, optim

ERRORS = (TypeError, ValueError, RuntimeError)


def broadcasts(shape: list[int], target: list[int]) -> bool:
    try:
        return torch.broadcast_shapes(shape, target) == torch.Size(target)
    except RuntimeError:
        return False


@fuzz(200)
@given(shapes(ranks=(2, 4), most=300), shapes(most=300))
def test_a_shape_that_does_not_broadcast(drawn, other):
    (shape, dim), (other, _) = drawn, other
    z = torch.ones(shape)
    out = list(z.select(dim, 0).shape)
    for name, target, arguments in (
        ("p", out, {"p": torch.full(other, 2.0)}),
        ("center", shape, {"p": 2.0, "center": torch.zeros(other)}),
    ):
        if broadcasts(other, target):
            assert torch.equal(lp_pool(z, **arguments, dim=dim), torch.ones(out))
        else:
            with pytest.raises(ValueError, match=rf"^{name} must broadcast to the shape"):
                lp_pool(z, **arguments, dim=dim)


@pytest.mark.parametrize("shape", [(5,), (1, 5), ()], ids=str)
@pytest.mark.parametrize("name", ["p", "center"])
def test_an_argument_on_another_device(name, shape):
    arguments = {"p": 2.0, name: torch.ones(shape, device="meta")}
    with pytest.raises(ERRORS, match=rf"\b{name}\b"):
        lp_pool(torch.randn(3, 4, 5), **arguments, dim=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_fake_tensors(dtype):
    with FakeTensorMode():
        z = torch.empty(3, 4, 5, dtype=dtype, requires_grad=True)
        p = torch.empty(5, requires_grad=True)
        center = torch.empty(4, 5, dtype=dtype, requires_grad=True)
        for u in (lp_pool(z, p, center=center, dim=1), lp_pool(z, 2.0, dim=1)):
            assert isinstance(u, FakeTensor)
            assert u.shape == (3, 5)
            assert u.dtype == dtype
        lp_pool(z, p, center=center, dim=1).sum().backward()
    for t in (z, p, center):
        assert t.grad.shape == t.shape
        assert t.grad.dtype == t.dtype


@pytest.mark.filterwarnings("ignore")  # torch calls its nested tensors a prototype
@pytest.mark.parametrize("dim", [-1, 1])
def test_a_nested_tensor_is_pooled_right_or_refused_in_a_sentence(dim):
    parts = [torch.randn(3, 4), torch.randn(5, 4)]
    z = torch.nested.nested_tensor(parts, layout=torch.jagged)
    refusal = None
    try:
        result = list(lp_pool(z, 3.0, dim=dim).unbind())
    except (*ERRORS, NotImplementedError) as error:
        refusal = str(error)
    if refusal is not None:
        assert len(refusal.split()) > 3
        return
    for u, part in zip(result, parts, strict=True):
        torch.testing.assert_close(u, lp_pool(part, 3.0, dim=dim if dim < 0 else dim - 1))


@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (8, 3), (3, 4), (12,), (5, 4, 3)], ids=str)
def test_a_momentum_of_another_size_than_its_weight(shape):
    weight = torch.nn.Parameter(torch.ones(4, 3))
    optimizer = optim.SGD([weight], 0.1, momentum=0.9)
    state = {"state": {0: {"momentum_buffer": torch.ones(shape)}}}
    weight.grad = torch.ones(4, 3)

    def load_and_step() -> None:  # either may raise
        optimizer.load_state_dict(optimizer.state_dict() | state)
        optimizer.step()

    with pytest.raises(ERRORS):
        load_and_step()
    assert torch.equal(weight, torch.ones(4, 3))


def test_16_threads_of_python_at_once_give_the_same_bits_as_one():
    def work(seed: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed % 4)
        z, p, center, grad = (
            torch.randn(*shape, generator=generator)
            for shape in ((64, 49, 16), (16,), (49, 16), (64, 16))
        )
        leaves = [t.requires_grad_() for t in (z, 1 + p.exp(), center)]
        u, grads = Call(*leaves, 1, grad, threads=torch.get_num_threads()).run()
        return [u.detach(), *grads.values()]

    with threads(2):
        with ThreadPoolExecutor(1) as pool:
            expected = list(pool.map(work, range(4)))
        with ThreadPoolExecutor(16) as pool:
            for i, results in enumerate(pool.map(work, range(64))):
                assert all(map(torch.equal, results, expected[i % 4]))


# What torch itself computes in the child is too small for threads, in which it would hang.
FORK = """
import os, signal, sys, time
import torch
from lpunits import lp_pool
torch.set_num_threads(2)
z = torch.full((64, 300, 16), 1.5, requires_grad=True)
p = torch.full((16,), 3.0)
def right():
    u = lp_pool(z, p, dim=1)
    (dz,) = torch.autograd.grad(u.sum(), z)
    return bool((u == 1.5).all()) and all((part - 1 / 300).abs().max() < 1e-8 for part in dz)
assert right()
child = os.fork()
if child == 0:
    os._exit(0 if right() else 3)
end = time.monotonic() + 60
while time.monotonic() < end:
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        sys.exit(os.waitstatus_to_exitcode(status))
    time.sleep(0.01)
os.kill(child, signal.SIGKILL)
sys.exit("the forked child hangs")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_forked_child_of_a_parent_that_used_threads():
    # In a process of its own: a fork of this one would also have the threads of the test runner.
    run = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
