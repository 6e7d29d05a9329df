"""Bad input of the recurrent networks: one sentence that says what is expected, and what is not."""

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from lpunits import DOTRNN, DTRNN


@pytest.mark.parametrize(
    ("call", "exception", "start", "given"),
    [
        (
            lambda net: net(torch.randn(5, 2, 3)),
            ValueError,
            "input must have the shape (steps, batch, 4)",
            "(5, 2, 3)",
        ),
        (
            lambda net: net(torch.randn(0, 2, 4)),
            ValueError,
            "input must have the shape (steps, batch, 4)",
            "(0, 2, 4)",
        ),
        (
            lambda net: net(torch.randn(4)),
            ValueError,
            "input must have the shape (steps, batch, 4)",
            "(4,)",
        ),
        (
            lambda net: net(torch.randn(2, 2, 2, 4)),
            ValueError,
            "input must have the shape",
            "(2, 2, 2, 4)",
        ),
        (lambda net: net(torch.ones(5, 2, 4).int()), TypeError, "input must be", "torch.int32"),
        (
            lambda net: net(torch.randn(5, 2, 4).double()),
            TypeError,
            "input must have the parameters'",
            "float64",
        ),
        (
            lambda net: net(torch.randn(5, 2, 4), torch.zeros(2, 5)),
            ValueError,
            "hx must have the shape (1, 2, 5)",
            "(2, 5)",
        ),
        (
            lambda net: net(torch.randn(5, 4), torch.zeros(1, 1, 5)),
            ValueError,
            "hx must have the shape (1, 5)",
            "(1, 1, 5)",
        ),
        (lambda net: net(torch.randn(5, 2, 4), 0.0), TypeError, "hx must be", "float"),
        (
            lambda net: net(torch.randn(5, 2, 4), lengths=[6, 2]),
            ValueError,
            "lengths must be from 1 to the 5 steps",
            "[6, 2]",
        ),
        (
            lambda net: net(torch.randn(5, 2, 4), lengths=[5, 0]),
            ValueError,
            "lengths must be from 1",
            "[5, 0]",
        ),
        (
            lambda net: net(torch.randn(5, 2, 4), lengths=[5]),
            ValueError,
            "lengths must be 2 integers",
            "[5]",
        ),
        (
            lambda net: net(torch.randn(5, 4), lengths=[5]),
            ValueError,
            "lengths must be None",
            "[5]",
        ),
        (
            lambda net: net(PackedSequence(torch.randn(5, 4), torch.tensor([2, 4]))),
            ValueError,
            "input must be a PackedSequence whose",
            "[2, 4]",
        ),
        (
            lambda net: net(pack_sequence([torch.randn(5, 4)]), lengths=[5]),
            ValueError,
            "lengths must be None",
            "",
        ),
        (
            lambda net: net.step(torch.randn(5, 2, 4)),
            ValueError,
            "input must have 2 dimensions",
            "(5, 2, 4)",
        ),
        (
            lambda net: DTRNN(4, 5, 6, activation="gelu"),
            ValueError,
            "activation must be one of",
            "'gelu'",
        ),
        (lambda net: DTRNN(4, 5, 6, 2, activation="tanh"), ValueError, "filters must be 1", "2"),
        (
            lambda net: DTRNN(4, 5, [6, 6], [2]),
            ValueError,
            "filters must be a number or one",
            "[2]",
        ),
        (lambda net: DTRNN(4, 5, []), ValueError, "units must be", ""),
        (lambda net: DTRNN(4, 0, 6), ValueError, "hidden_size must be", "0"),
        (lambda net: DTRNN(4, 5, 6, dropout=1.0), ValueError, "dropout must be", "1.0"),
        (
            lambda net: DTRNN(4, 5, 6, dropout_per="piece"),
            ValueError,
            "dropout_per must be",
            "'piece'",
        ),
        (
            lambda net: DOTRNN(4, 5, 3, 6, output_dropout=1.5),
            ValueError,
            "output_dropout must be",
            "1.5",
        ),
        (lambda net: DOTRNN(4, 5, 0, 6), ValueError, "output_size must be", "0"),
    ],
)
def test_bad_input_is_answered_by_one_clear_sentence(call, exception, start, given):
    with pytest.raises(exception) as caught:
        call(DTRNN(4, 5, 6))
    message = str(caught.value)
    assert message.startswith(start)
    assert given in message
    assert "\n" not in message
