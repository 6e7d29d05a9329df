"""Bad input: one sentence that names the argument, what was given and what is expected."""

import pytest
import torch

from lpunits import (
    MLP,
    GlobalLpPool,
    LpLinear,
    LpPool,
    LpPool1d,
    LpPool2d,
    MaxoutLinear,
    lp_pool,
    maxout,
    param_groups,
)

Z = torch.randn(4, 3, 5)
NAN = float("nan")

BAD = [
    # call, exception, argument, given
    (lambda: lp_pool([1.0, 2.0], 2), TypeError, "z", "list"),
    (lambda: lp_pool(torch.arange(3), 2), TypeError, "z", "torch.int64"),
    (lambda: lp_pool(Z.bool(), 2), TypeError, "z", "torch.bool"),
    (lambda: lp_pool(Z.cfloat(), 2), TypeError, "z", "torch.complex64"),
    (lambda: lp_pool(torch.tensor(1.0), 2), ValueError, "dim", "-1"),
    (lambda: lp_pool(Z, 2, dim=3), ValueError, "dim", "3"),
    (lambda: lp_pool(Z, 2, dim=-4), ValueError, "dim", "-4"),
    (lambda: lp_pool(Z, 2, dim=1.0), TypeError, "dim", "1.0"),
    (lambda: lp_pool(Z[:, :0], 2, dim=1), ValueError, "z", "(4, 0, 5)"),
    (lambda: lp_pool(Z, NAN), ValueError, "p", "nan"),
    (lambda: lp_pool(Z, "2"), TypeError, "p", "'2'"),
    (lambda: lp_pool(Z, True), TypeError, "p", "True"),
    (lambda: lp_pool(Z, torch.tensor([2])), TypeError, "p", "torch.int64"),
    (lambda: lp_pool(Z, torch.ones(4), dim=1), ValueError, "p", "(4,)"),
    (lambda: lp_pool(Z, torch.ones(4, 3, 5)), ValueError, "p", "(4, 3, 5)"),
    (lambda: lp_pool(Z, 2, center=0.0), TypeError, "center", "float"),
    (lambda: lp_pool(Z, 2, center=torch.zeros(5).int()), TypeError, "center", "torch.int32"),
    (lambda: lp_pool(Z, 2, center=torch.zeros(4)), ValueError, "center", "(4,)"),
    (lambda: lp_pool(Z, 2, center=torch.zeros(2, 4, 3, 5)), ValueError, "center", "(2, 4, 3, 5)"),
    (lambda: maxout(Z, dim=7), ValueError, "dim", "7"),
    (lambda: maxout(torch.arange(3)), TypeError, "z", "torch.int64"),
    (lambda: LpLinear(0, 3, 2), ValueError, "in_features", "0"),
    (lambda: LpLinear(4, 0, 2), ValueError, "units", "0"),
    (lambda: LpLinear(4, 3, -2), ValueError, "filters", "-2"),
    (lambda: LpLinear(4.0, 3, 2), TypeError, "in_features", "4.0"),
    (lambda: LpLinear(4, True, 2), TypeError, "units", "True"),
    (lambda: LpLinear(4, 3, 2, order=0.5), ValueError, "order", "0.5"),
    (lambda: LpLinear(4, 3, 2, order=NAN), ValueError, "order", "nan"),
    (lambda: LpLinear(4, 3, 2, order="3"), TypeError, "order", "'3'"),
    (lambda: LpLinear(4, 3, 2, order=None), TypeError, "order", "None"),
    (lambda: LpLinear(4, 3, 2, order=[2, 3]), ValueError, "order", "2"),
    (lambda: LpLinear(4, 3, 2, order=[2, 3, 0.1]), ValueError, "order", "0.1"),
    (lambda: LpLinear(4, 3, 2, dtype=torch.int32), TypeError, "dtype", "torch.int32"),
    (lambda: LpLinear(4, 3, 2)(torch.randn(7, 5)), ValueError, "in_features", "(7, 5)"),
    (lambda: LpLinear(4, 3, 2)(torch.tensor(1.0)), ValueError, "in_features", "()"),
    (lambda: LpLinear(4, 3, 2)(torch.ones(7, 4).int()), TypeError, "input", "torch.int32"),
    (lambda: MaxoutLinear(4, 3, 0), ValueError, "filters", "0"),
    (lambda: MaxoutLinear(4, 3, 2)(torch.randn(7, 5)), ValueError, "in_features", "(7, 5)"),
    (lambda: LpPool(0), ValueError, "units", "0"),
    (lambda: LpPool(3, dim="last"), TypeError, "dim", "'last'"),
    (lambda: LpPool(3)(torch.randn(4, 2)), ValueError, "p", "(3,)"),
    (lambda: LpPool1d(3, 0), ValueError, "kernel_size", "0"),
    (lambda: LpPool2d(3, (2, 2, 2)), ValueError, "kernel_size", "(2, 2, 2)"),
    (lambda: LpPool2d(3, 2.0), ValueError, "kernel_size", "2.0"),
    (lambda: LpPool2d(3, 2, stride=0), ValueError, "stride", "0"),
    (lambda: LpPool2d(3, 2, padding=2), ValueError, "padding", "(2, 2)"),
    (lambda: LpPool2d(3, 2)(torch.randn(4, 5, 8, 8)), ValueError, "channels", "(4, 5, 8, 8)"),
    (lambda: LpPool2d(3, 2)(torch.randn(8, 8)), ValueError, "input", "(8, 8)"),
    (lambda: LpPool2d(3, 4)(torch.randn(1, 3, 3, 8)), ValueError, "kernel_size", "(1, 3, 3, 8)"),
    (lambda: GlobalLpPool(3)(torch.randn(4, 3)), ValueError, "input", "(4, 3)"),
    (lambda: GlobalLpPool(3)(torch.randn(4, 5, 7, 7)), ValueError, "channels", "(4, 5, 7, 7)"),
    (lambda: MLP(4, [3], 2, activation="gelu"), ValueError, "activation", "'gelu'"),
    (lambda: MLP(4, 3, 2), TypeError, "hidden", "3"),
    (lambda: MLP(4, [3, 0], 2), ValueError, "hidden", "0"),
    (lambda: MLP(4, [3], 2, activation="relu", filters=2), ValueError, "filters", "2"),
    (lambda: MLP(4, [3, 3], 2, filters=[2]), ValueError, "filters", "[2]"),
    (lambda: MLP(4, [3], 0), ValueError, "classes", "0"),
    (lambda: MLP(4, [0], 2, activation="relu"), ValueError, "hidden", "0"),
    (lambda: MLP(4, [3], 2, dropout=1.0), ValueError, "dropout", "1.0"),
    (lambda: MLP(4, [3], 2, input_dropout=-0.1), ValueError, "input_dropout", "-0.1"),
    (lambda: MLP(4, [3], 2, noise=-0.1), ValueError, "noise", "-0.1"),
    (lambda: MLP(4, [3], 2, input_noise=float("inf")), ValueError, "input_noise", "inf"),
    (lambda: param_groups(LpPool(3), -1.0), ValueError, "lr", "-1.0"),
    (lambda: param_groups(LpPool(3), 0.1, order_scale="5"), ValueError, "order_scale", "'5'"),
]


@pytest.mark.parametrize(("call", "exception", "argument", "given"), BAD)
def test_bad_input_is_answered_by_one_clear_sentence(call, exception, argument, given):
    with pytest.raises(exception) as caught:
        call()
    message = str(caught.value)
    assert message.startswith((f"{argument} must", "input must", "z must"))
    assert argument in message
    assert given in message
    assert "\n" not in message
