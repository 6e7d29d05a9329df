"""The training loop: it learns, keeps its schedules and limits, and chooses on validation alone."""

import copy
import dataclasses
import math

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

from lpunits import LpLinear, MaxoutLinear
from lpunits.paper import data
from lpunits.paper.training.job import Job
from lpunits.paper.training.loop import NotFiniteError, _Run, orders
from lpunits.paper.training.networks import Convolutional, FeedForward

SMALL = FeedForward("digits", hidden=(16, 16), filters=2, epochs=3, lr=0.3)
MODERN = dataclasses.replace(
    SMALL,
    optimizer="adamw",
    normalization="batch",
    label_smoothing=0.1,
    average=0.8,
    weight_decay=0.01,
    lr=0.02,
    dropout=0.1,
)
IMAGES = Convolutional("digits", channels=(8, 16), optimizer="adam", lr=0.05, epochs=4)


def net(config, path):
    """The network that a run has kept."""
    model = config.model((8, 8), 10)
    model.load_state_dict(load_file(path / "model.safetensors"))
    return model.eval()


def error(model, split):
    return (model(split.features).argmax(1) != split.targets).double().mean().item()


@pytest.mark.parametrize("activation", ["lp", "l2", "maxout", "relu"])
def test_every_kind_of_unit_learns_and_the_numbers_are_those_of_the_kept_net(activation, tmp_path):
    config = dataclasses.replace(
        SMALL, activation=activation, epochs=12, dropout=0.1, lr=0.5, max_norm=1.9365
    )
    outcome = config.run(0, Job(tmp_path))
    digits = data.load("digits")
    model = net(config, tmp_path)
    for name, split in (("train", digits.train), ("valid", digits.valid), ("test", digits.test)):
        metrics = outcome["metrics"][name]
        assert metrics["error"] == error(model, split) < 0.15
        nll = cross_entropy(model(split.features), split.targets).item()
        assert metrics["nll"] == pytest.approx(nll, rel=1e-4)
    assert outcome["examples"] == {"train": 1197, "valid": 300, "test": 300}
    valid = [row["valid_error"] for row in outcome["curve"]]
    assert valid[outcome["chosen_epoch"] - 1] == min(valid) == outcome["metrics"]["valid"]["error"]
    norms = [layer.weight.norm(dim=-1).max() for layer in model if hasattr(layer, "weight")]
    assert max(norms) <= 1.9365 + 1e-5
    learned = activation == "lp"
    for layer in outcome["orders"]:
        assert len(layer["initial"]) == len(layer["final"]) == 16
        assert (layer["initial"] != layer["final"]) == learned
    assert len(outcome["orders"]) == (2 if activation in ("lp", "l2") else 0)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(tmp_path):
    config = dataclasses.replace(SMALL, dropout=0.5, last_epochs=1)
    runs = [config.run(seed, Job(tmp_path / str(i))) for i, seed in enumerate((0, 0, 1))]
    assert runs[0] == runs[1]
    assert runs[0]["weights_sha256"] != runs[2]["weights_sha256"]


@pytest.mark.parametrize(
    ("decay", "half"), [("linear", 0.55), ("exponential", math.sqrt(0.1)), ("cosine", 0.55)]
)
def test_the_rate_falls_to_its_fraction(decay, half):
    config = dataclasses.replace(SMALL, decay=decay, final_lr=0.1)
    assert config.rate(0.4, 0, over=10) == 0.4
    assert config.rate(0.4, 5, over=10) == pytest.approx(0.4 * half)
    assert config.rate(0.4, 10, over=10) == pytest.approx(0.04)
    assert config.rate(0.4, 99, over=10) == pytest.approx(0.04)


def test_every_kind_of_parameter_has_its_own_rate_and_limits(tmp_path):
    config = dataclasses.replace(
        SMALL,
        bias=True,
        weight_decay=0.01,
        max_norm=1.5,
        order_scale=7.0,
        center_scale=0.5,
        momentum=0.2,
        final_momentum=0.6,
        epochs=4,
    )
    run = _Run(config, 0, Job(tmp_path))
    run.state["epoch"] = 1
    run.set_rates(config.rate(config.lr, 1, 4), 1)
    lr = 0.3 * (1 + math.cos(math.pi / 4)) / 2
    expected = {
        "weights": (lr, 0.01, 1.5),
        "biases": (lr, 0.0, None),
        "orders": (7 * lr, 0.0, None),
        "centers": (lr / 2, 0.0, None),
    }
    groups = {group["name"]: group for group in run.optimizer.param_groups}
    assert groups.keys() == expected.keys()
    for name, (rate, decay, limit) in expected.items():
        group = groups[name]
        assert group["lr"] == pytest.approx(rate)
        assert (group["weight_decay"], group["max_norm"]) == (decay, limit)
        assert group["momentum"] == pytest.approx(0.3)
    assert sum(len(g["params"]) for g in groups.values()) == len(list(run.model.parameters()))


def test_the_biases_of_maxout_are_no_filters(tmp_path):
    config = dataclasses.replace(SMALL, activation="maxout", max_norm=1.0)
    model = config.model((8, 8), 10)
    for layer in model:
        if isinstance(layer, MaxoutLinear):
            torch.nn.init.constant_(layer.bias, 3.0)
    optimizer = config.build_optimizer(model)
    model(torch.zeros(5, 64)).sum().backward()
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    assert all((m.bias == 3).all() for m in model if isinstance(m, MaxoutLinear))


def test_batches_are_a_permutation_of_all_examples(tmp_path):
    run = _Run(dataclasses.replace(SMALL, batch=128), 0, Job(tmp_path))
    for splits in ([run.data.train], [run.data.train, run.data.valid]):
        count = sum(map(len, splits))
        order = torch.randperm(count, generator=run.batches)
        batches = list(run.examples(splits, order))
        assert {len(y) for _, y in batches[:-1]} == {128}
        found = torch.cat([torch.cat([x, y[:, None]], 1) for x, y in batches])
        wanted = torch.cat([torch.cat([s.features, s.targets[:, None]], 1) for s in splits])
        assert torch.equal(found.unique(dim=0), wanted.unique(dim=0))
        assert len(found) == count


def test_the_last_weights_are_kept_if_that_is_asked_for(tmp_path):
    config = dataclasses.replace(SMALL, epochs=4, keep_best=False, lr=0.0)
    outcome = config.run(0, Job(tmp_path))
    assert outcome["chosen_epoch"] == 4
    assert len({row["valid_error"] for row in outcome["curve"]}) == 1  # no epoch was better
    with pytest.raises(ValueError, match="patience must be None unless keep_best, got 3"):
        dataclasses.replace(config, patience=3)


def test_patience_ends_the_first_stage(tmp_path):
    config = dataclasses.replace(SMALL, epochs=50, patience=2, lr=0.0)
    outcome = config.run(0, Job(tmp_path))
    assert outcome["chosen_epoch"] == 1
    assert len(outcome["curve"]) == 3


def test_the_last_stage_goes_on_with_all_examples_from_the_chosen_weights(tmp_path):
    config = dataclasses.replace(SMALL, epochs=6, last_epochs=40, last_lr=0.3)
    outcome = config.run(0, Job(tmp_path))
    stages = [row["stage"] for row in outcome["curve"]]
    first = stages.index("last")
    assert first == 6
    last = outcome["curve"][first:]
    assert 1 <= len(last) < 40
    # It ends as soon as the loss on the former validation examples is down to that of training.
    goal = outcome["metrics"]["train"]["nll"]
    assert [row["valid_nll"] <= goal for row in last] == [False] * (len(last) - 1) + [True]
    model, test = net(config, tmp_path), data.load("digits").test
    assert outcome["last_stage"]["test"]["error"] == error(model, test)
    assert outcome["last_stage"]["test"] != outcome["metrics"]["test"]


def test_without_an_order_of_its_own_rate_the_orders_hardly_move(tmp_path):
    def movement(scale):
        config = dataclasses.replace(SMALL, order_scale=scale)
        outcome = config.run(0, Job(tmp_path / str(scale)))
        return max(
            abs(a - b)
            for o in outcome["orders"]
            for a, b in zip(o["initial"], o["final"], strict=True)
        )

    assert movement(50.0) > 5 * movement(1.0) > 0
    assert movement(0.0) == 0


def test_a_loss_that_is_not_finite_ends_the_run_with_what_was_found(tmp_path):
    outcome = dataclasses.replace(SMALL, lr=1e30, decay="linear").run(0, Job(tmp_path))
    assert outcome["diverged"].startswith("the loss")
    assert "metrics" not in outcome
    assert not (tmp_path / "model.safetensors").exists()


def test_an_evaluation_that_is_not_finite_ends_the_run(tmp_path):
    run = _Run(SMALL, 0, Job(tmp_path))
    with torch.no_grad():
        run.model[0].weight.fill_(math.nan)
    with pytest.raises(NotFiniteError, match="the loss of evaluation was nan after epoch 0"):
        run.evaluated(run.data.valid)


def test_inputs_are_centred_and_bytes_become_floats(tmp_path):
    sizes = (("train", 50), ("valid", 20), ("test", 20))
    config = dataclasses.replace(SMALL, data="pentomino", data_options=sizes, center_inputs=True)
    run = _Run(config, 0, Job(tmp_path))
    x = run.prepared(run.data.train.features)
    assert x.dtype == torch.float32
    assert x.mean(0).abs().max() < 1e-6
    assert config.run(0, Job(tmp_path))["examples"]["train"] == 50


@pytest.mark.parametrize("activation", ["lp", "maxout", "relu"])
def test_sparse_inputs_train_the_same_net(activation, tmp_path):
    sizes = (("train", 200), ("valid", 50), ("test", 50))
    config = dataclasses.replace(SMALL, data="pentomino", data_options=sizes, activation=activation)
    dense = _Run(config, 0, Job(tmp_path / "dense"))
    sparse = _Run(dataclasses.replace(config, sparse_inputs=True), 0, Job(tmp_path / "sparse"))
    assert sparse.prepared(sparse.data.train.features).is_sparse
    losses = [run.epoch([run.data.train], 0.1, 2) for run in (dense, sparse)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for a, b in zip(dense.model.parameters(), sparse.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_sparse_inputs_resume_with_the_same_bits_and_refuse_what_fills_them(tmp_path):
    sizes = (("train", 200), ("valid", 50), ("test", 50))
    config = dataclasses.replace(
        SMALL, data="pentomino", data_options=sizes, sparse_inputs=True, epochs=2
    )
    _Run(config, 0, Job(tmp_path / "stopped")).first_stage_epoch()
    assert config.run(0, Job(tmp_path / "stopped")) == config.run(0, Job(tmp_path / "whole"))
    with pytest.raises(ValueError, match="center_inputs must be False with sparse_inputs"):
        dataclasses.replace(config, center_inputs=True)
    with pytest.raises(ValueError, match=r"input_dropout must be 0.0 with sparse_inputs, got 0.2"):
        dataclasses.replace(config, input_dropout=0.2)
    with pytest.raises(ValueError, match=r"adversarial must be 0.0 with sparse_inputs, got 1.5"):
        dataclasses.replace(config, adversarial=1.5)
    with pytest.raises(ValueError, match="sparse_inputs must be False for convolutions"):
        dataclasses.replace(IMAGES, sparse_inputs=True).model((8, 8), 10)


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


class KilledError(Exception):
    pass


@pytest.mark.parametrize(
    "config",
    [
        MODERN,
        dataclasses.replace(MODERN, normalization="layer", optimizer="adam", last_epochs=2),
        dataclasses.replace(IMAGES, average=0.8),
    ],
    ids=["batch", "layer", "images"],
)
def test_modern_training_learns_and_goes_on_with_the_same_bits(config, tmp_path):
    expected = config.run(0, Job(tmp_path / "undisturbed"))
    assert expected["metrics"]["test"]["error"] < 0.3
    for epoch in (1, 2):

        def kill(progress, epoch=epoch):
            if progress.done == epoch:
                raise KilledError

        with pytest.raises(KilledError):
            config.run(0, Job(tmp_path / "again", show=kill))
    assert config.run(0, Job(tmp_path / "again")) == expected


@pytest.mark.parametrize("last_epochs", [0, 1])
def test_the_averaged_weights_are_what_is_validated_tested_and_kept(last_epochs, tmp_path):
    config = dataclasses.replace(
        MODERN, average=0.5, epochs=1, batch=1000, last_epochs=last_epochs, last_lr=0.01
    )
    run, steps = _Run(config, 0, Job(tmp_path)), []
    step = run.optimizer.step
    run.optimizer.step = lambda: (step(), steps.append(copy.deepcopy(run.model.state_dict())))
    outcome = run.outcome()
    first, second = steps[-2:]  # two batches to an epoch
    kept = net(config, tmp_path)
    for name, tensor in kept.state_dict().items():
        if tensor.is_floating_point() and not name.endswith("rho"):
            torch.testing.assert_close(tensor, (first[name] + second[name]) / 2)
            assert not torch.equal(tensor, second[name]) or "bias" in name or "center" in name
    found = outcome["last_stage"] if last_epochs else outcome["metrics"]
    assert found["test"]["error"] == error(kept, data.load("digits").test)
    assert outcome["curve"][-1]["valid_error"] == error(kept, data.load("digits").valid)


def test_labels_are_smoothed_in_training_alone(tmp_path):
    plain, smooth = (
        dataclasses.replace(SMALL, epochs=1, lr=0.0, label_smoothing=s).run(
            0, Job(tmp_path / str(s))
        )
        for s in (0.0, 0.5)
    )
    assert plain["metrics"] == smooth["metrics"]
    assert plain["curve"][0]["loss"] != smooth["curve"][0]["loss"]


def test_half_of_an_adversarial_loss_is_that_of_inputs_moved_uphill(tmp_path):
    distance = 0.5
    run = _Run(dataclasses.replace(SMALL, adversarial=distance), 0, Job(tmp_path))
    data = run.data.train
    x, y, model = data.features[:50].clone(), data.targets[:50], copy.deepcopy(run.model)
    value = run.backward(x, y, batch=50)
    plain = cross_entropy(model(x), y)
    (uphill,) = torch.autograd.grad(plain, x, retain_graph=True)
    moved = x.detach() + distance * uphill / uphill.norm(dim=1, keepdim=True)
    other = cross_entropy(model(moved), y)
    assert other > plain
    assert value == pytest.approx((plain + other).item() / 2, rel=1e-5)
    ((plain + other) / 2).backward()
    for ours, theirs in zip(run.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_adversarial_inputs_leave_no_trace_in_the_statistics_of_a_normalisation(tmp_path):
    found = []
    for distance in (0.0, 5.0):
        config = dataclasses.replace(MODERN, dropout=0.0, adversarial=distance)
        run = _Run(config, 0, Job(tmp_path / str(distance)))
        x, y = run.data.train.features[:50].clone(), run.data.train.targets[:50]
        run.model.train()
        run.backward(x, y, 50)
        found.append({k: v for k, v in run.model.state_dict().items() if ".running_" in k})
    plain, both = found
    assert plain
    assert all(torch.equal(plain[name], both[name]) for name in plain)


def test_where_the_loss_is_flat_an_input_stays_where_it_is(tmp_path):
    run = _Run(dataclasses.replace(SMALL, adversarial=1.0), 0, Job(tmp_path))
    for p in run.model[-1].parameters():
        torch.nn.init.zeros_(p)
    assert run.backward(torch.rand(3, 64), torch.arange(3), 3) == pytest.approx(math.log(10))
    assert all(p.grad.isfinite().all() for p in run.model.parameters())


def test_adam_keeps_the_groups_apart(tmp_path):
    run = _Run(MODERN, 0, Job(tmp_path))
    assert isinstance(run.optimizer, torch.optim.AdamW)
    run.set_rates(0.01, 0)
    groups = {group["name"]: group for group in run.optimizer.param_groups}
    rates = {name: (group["lr"], group["weight_decay"]) for name, group in groups.items()}
    assert rates == {
        "weights": (0.01, 0.01),
        "biases": (0.01, 0.0),
        "orders": (0.05, 0.0),
        "centers": (0.01, 0.0),
    }
    assert all(p.ndim > 1 for p in groups["weights"]["params"])  # no gains of a normalisation
    with pytest.raises(ValueError, match=r"max_norm must be None unless optimizer is sgd, got 1.5"):
        dataclasses.replace(MODERN, max_norm=1.5)


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
