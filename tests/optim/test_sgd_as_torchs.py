"""Where the compiled step does not fit, SGD does what torch's does: its result or its error."""

import copy

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from lpunits.optim import SGD

BUFFER = "momentum_buffer"


def weight(grad=None, data=None):
    made = nn.Parameter(torch.ones(3, 4) if data is None else data)
    made.grad = torch.ones(3, 4) if grad is None else grad
    return made


def two_steps(kind, w, **options):
    optimizer = kind([w], lr=0.1, **({"momentum": 0.9} | options))
    optimizer.step()
    optimizer.step()
    return w.detach()


def from_buffer(kind, buffer):
    w = weight()
    optimizer = kind([w], lr=0.1, momentum=0.9)
    optimizer.state[w][BUFFER] = buffer
    optimizer.step()
    return w.detach()


def from_state(kind, **options):
    """A step of torch's optimiser, then one of this kind with its state."""
    w = weight()
    before = torch.optim.SGD([w], **({"lr": 0.1, "momentum": 0.9} | options))
    before.step()
    optimizer = kind([w], lr=0.5)
    optimizer.load_state_dict(copy.deepcopy(before.state_dict()))
    optimizer.step()
    return w.detach()


def another_size(kind):
    w = weight()
    w.data = torch.ones(5, 4)
    return two_steps(kind, w)


def fake(kind):
    with FakeTensorMode():
        w = weight()
    return list(two_steps(kind, w).shape)


def real_under_fake(kind):
    w = weight()
    with FakeTensorMode():
        return two_steps(kind, w)


def momentum_later(kind):
    w = weight()
    optimizer = kind([w], lr=0.1)
    optimizer.step()
    optimizer.param_groups[0]["momentum"] = 0.9
    optimizer.step()
    optimizer.step()
    return w.detach()


def an_infinite_gradient_once(kind):
    w = weight(torch.full((3, 4), torch.inf))
    optimizer = kind([w], lr=0.0)
    optimizer.step()
    w.grad = torch.ones(3, 4)
    with torch.no_grad():
        w.fill_(1)
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    return w.detach()


def default_device(kind):
    w = weight()
    torch.set_default_device("meta")
    try:
        return two_steps(kind, w)
    finally:
        torch.set_default_device(None)


def backward_after_a_step(kind):
    """The weight that the gradient needs has changed."""
    w = weight()
    loss = w.square().sum()
    two_steps(kind, w)
    loss.backward()


def sparse(values=1.0):
    return torch.sparse_coo_tensor([[0, 2]], torch.full((2, 4), values), (3, 4))


CASES = {
    "meta": lambda kind: two_steps(
        kind, weight(torch.ones(3, 4, device="meta"), torch.ones(3, 4, device="meta"))
    ),
    "sparse gradient": lambda kind: two_steps(kind, weight(sparse())),
    "sparse gradient without momentum": lambda kind: two_steps(kind, weight(sparse()), momentum=0),
    "sparse gradient with decay": lambda kind: two_steps(kind, weight(sparse()), weight_decay=0.1),
    "sparse weight": lambda kind: two_steps(kind, weight(sparse(), sparse())).to_dense(),
    "compressed weight": lambda kind: two_steps(
        kind,
        weight(torch.ones(3, 4).to_sparse_csr(), torch.ones(3, 4).to_sparse_csr()),
        momentum=0,
    ).to_dense(),
    "complex": lambda kind: two_steps(
        kind, weight(1j * torch.ones(3, 4), torch.ones(3, 4, dtype=torch.complex64))
    ),
    "half": lambda kind: two_steps(kind, weight(torch.ones(3, 4).half(), torch.ones(3, 4).half())),
    "negative view": lambda kind: two_steps(kind, weight(torch._neg_view(torch.ones(3, 4)))),
    "zero tensor": lambda kind: two_steps(kind, weight(torch._efficientzerotensor((3, 4)))),
    "subclass": lambda kind: two_steps(
        kind, weight(data=torch.ones(3, 4).as_subclass(type("Other", (torch.Tensor,), {})))
    ).as_subclass(torch.Tensor),
    "one value for all": lambda kind: two_steps(kind, weight(data=torch.ones(1).expand(3, 4))),
    "empty": lambda kind: two_steps(kind, weight(torch.ones(0, 4), torch.ones(0, 4))),
    "fake": fake,
    "real under a fake mode": real_under_fake,
    "default device": default_device,
    "weight of another size": another_size,
    "larger state": lambda kind: from_buffer(kind, torch.ones(2, 3, 4)),
    "smaller state": lambda kind: from_buffer(kind, torch.ones(3, 3)),
    "state of one value": lambda kind: from_buffer(kind, torch.ones(1)),
    "state on another device": lambda kind: from_buffer(kind, torch.ones(3, 4, device="meta")),
    "state of another dtype": lambda kind: from_buffer(kind, torch.ones(3, 4).double()),
    "no state": lambda kind: from_buffer(kind, None),
    "not a tensor": lambda kind: from_buffer(kind, [1, 2]),
    "torch's state": from_state,
    "torch's state without momentum": lambda kind: from_state(kind, momentum=0),
    "torch's state with nesterov": lambda kind: from_state(kind, nesterov=True),
    "torch's state with dampening": lambda kind: from_state(kind, dampening=0.5),
    "torch's state with maximize": lambda kind: from_state(kind, maximize=True),
    "momentum later": momentum_later,
    "an infinite gradient once": an_infinite_gradient_once,
    "backward after a step": backward_after_a_step,
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
def test_the_same_result_or_the_same_kind_of_error(case):
    def outcome(kind):
        try:
            return case(kind)
        except Exception as error:  # any: the kinds are compared
            return error

    ours, theirs = outcome(SGD), outcome(torch.optim.SGD)
    if isinstance(theirs, Exception):
        assert type(ours) is type(theirs), ours
    elif isinstance(theirs, list):
        assert ours == theirs
    else:
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)  # a few roundings


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 4), (2, 3, 4, 4), (5, 0), (0, 5)])
def test_the_bound_outside_of_the_compiled_step(shape):
    w = nn.Parameter(torch.ones(shape))
    w.grad = torch.zeros(shape).to_sparse()
    SGD([w], lr=0.1, max_norm=0.5).step()
    filters = w.detach().flatten(1) if len(shape) == 4 else w.detach()
    norms = filters.norm(dim=-1)
    torch.testing.assert_close(norms, torch.full_like(norms, 0.5 if filters.shape[-1] else 0.0))
