"""The GRU for comparison computes what torch's does."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from lpunits.paper.training.gru import GRU


@pytest.mark.parametrize("lengths", [(6, 4, 4, 1), (3, 3), (1,)])
@pytest.mark.parametrize("state", [False, True])
def test_values_and_gradients_are_those_of_torch(lengths, state):
    torch.manual_seed(0)
    theirs, ours = nn.GRU(3, 5).double(), GRU(3, 5).double()
    ours.load_state_dict(theirs.state_dict())
    x = [torch.randn(n, 3, dtype=torch.float64, requires_grad=True) for n in lengths]
    h = torch.randn(1, len(lengths), 5, dtype=torch.float64, requires_grad=True)
    weigh_last = torch.randn_like(h)

    def found(gru):
        states, last = gru(pack_sequence(x), h if state else None)
        loss = states.data.sin().sum() + (weigh_last * last).sum()
        wanted = [*x, *gru.parameters(), *([h] if state else [])]
        return [states.data, last, *torch.autograd.grad(loss, wanted)]

    for mine, true in zip(found(ours), found(theirs), strict=True):
        torch.testing.assert_close(mine, true, rtol=1e-12, atol=1e-14)


def test_inputs_without_a_gradient_and_padded_ones():
    torch.manual_seed(0)
    gru = GRU(3, 5)
    x = torch.randn(4, 2, 3)
    states, last = gru(pack_sequence([x[:, 0], x[:, 1]]))
    padded, padded_last = gru(x)
    torch.testing.assert_close(states.data.view(4, 2, 5), padded)
    torch.testing.assert_close(last, padded_last)
    states.data.sum().backward()
    assert all(p.grad.isfinite().all() for p in gru.parameters())


def test_sequences_in_any_order_are_left_to_torch():
    torch.manual_seed(0)
    gru = GRU(3, 5)
    x = [torch.randn(n, 3) for n in (2, 5, 3)]
    _, last = gru(pack_sequence(x, enforce_sorted=False))
    for i, sequence in enumerate(x):
        torch.testing.assert_close(last[:, i : i + 1], gru(sequence.unsqueeze(1))[1])
