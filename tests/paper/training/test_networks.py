"""The networks of the configs."""

import dataclasses
import math

import pytest
import torch
from configs import IMAGES, SMALL

from lpunits import LpLinear
from lpunits.orders import orders
from lpunits.paper.training.job import Job


@pytest.mark.parametrize(("hidden", "filters"), [((240, 240), 5), ((400,), 6), ((50, 20, 30), 3)])
def test_elementwise_units_get_as_many_weights(hidden, filters):
    config = dataclasses.replace(SMALL, hidden=hidden, filters=filters)
    pooled, relu = (
        sum(w.numel() for name, w in model.named_parameters() if name.endswith("weight"))
        for model in (
            dataclasses.replace(config, activation=activation).model((784,), 10)
            for activation in ("lp", "relu")
        )
    )
    assert relu == pytest.approx(pooled, rel=0.02)


def test_weights_start_in_the_range_that_is_asked_for():
    model = dataclasses.replace(SMALL, weight_range=0.05).model((8, 8), 10)
    for layer in model:
        if hasattr(layer, "weight"):
            assert 0.045 < layer.weight.abs().max() <= 0.05


def test_orders_by_layer():
    model = dataclasses.replace(SMALL, order=2.5).model((8, 8), 10)
    assert isinstance(model[0], LpLinear)
    assert {name: p.unique().tolist() for name, p in orders(model).items()} == {
        "0": [2.5],
        "1": [2.5],
    }


def test_global_pooling_of_fixed_order_is_average_or_maximum(tmp_path):
    x = torch.rand(5, 64)
    for order, pooled in ((1.0, lambda z: z.mean((2, 3))), (math.inf, lambda z: z.amax((2, 3)))):
        model = dataclasses.replace(IMAGES, order=order, learn_order=False).model((8, 8), 10).eval()
        features, pool = model[:-2](x), model[-2]
        assert features.shape == (5, 16, 4, 4)
        torch.testing.assert_close(pool(features), pooled(features))
    outcome = dataclasses.replace(IMAGES, order=math.inf, learn_order=False, epochs=1).run(
        0, Job(tmp_path)
    )
    assert outcome["orders"][0]["final"] == ["inf"] * 16
    with pytest.raises(ValueError, match=r"data must be of images, got 'covertype' with the shape"):
        dataclasses.replace(IMAGES, data="covertype").model((54,), 7)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data", "minst"),
        ("activation", "gelu"),
        ("decay", "step"),
        ("epochs", 0),
        ("batch", 0),
        ("patience", 0),
        ("lr", -1.0),
        ("lr", math.nan),
        ("last_epochs", -1),
        ("optimizer", "adagrad"),
        ("normalization", "group"),
        ("label_smoothing", 1.0),
        ("adversarial", -1.0),
        ("average", -0.1),
        ("filters", 0),
    ],
)
def test_bad_fields_are_told_at_once(field, value):
    with pytest.raises(ValueError, match=f"{field}|unknown dataset 'minst'"):
        dataclasses.replace(SMALL, **{field: value})
    with pytest.raises(ValueError, match="final_lr must be above 0 for exponential decay"):
        dataclasses.replace(SMALL, decay="exponential")
