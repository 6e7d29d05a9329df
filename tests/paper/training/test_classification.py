"""Classification: schedules, limits, batches and losses."""

import copy
import dataclasses
import math

import pytest
import torch
from configs import MODERN, SMALL
from torch.nn.functional import cross_entropy

from lpunits import MaxoutLinear
from lpunits.paper.training.classification import Classification, divergence
from lpunits.paper.training.job import Job
from lpunits.paper.training.loop import Loop


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
    run = Loop(Classification(config), 0, Job(tmp_path))
    run.set_rates(1)
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


def test_orders_may_start_spread_around_their_mean(tmp_path):
    config = dataclasses.replace(SMALL, hidden=(400,), order=3.0, order_spread=1.5)
    (start,) = Loop(Classification(config), 0, Job(tmp_path)).initial_orders.values()
    assert 1.5 <= start.min() < 1.6
    assert 4.4 < start.max() <= 4.5
    assert start.mean() == pytest.approx(3, abs=0.15)
    assert "p from 3 ± 1.5" in config.label
    with pytest.raises(ValueError, match=r"order_spread must be from 0 to below order - 1 = 2, go"):
        dataclasses.replace(config, order_spread=2.0)


def test_the_biases_of_maxout_are_no_filters(tmp_path):
    config = dataclasses.replace(SMALL, activation="maxout", max_norm=1.0)
    model = config.model((8, 8), 10)
    for layer in model:
        if isinstance(layer, MaxoutLinear):
            torch.nn.init.constant_(layer.bias, 3.0)
    optimizer = Classification(config).optimizer(model)
    model(torch.zeros(5, 64)).sum().backward()
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    assert all((m.bias == 3).all() for m in model if isinstance(m, MaxoutLinear))


def test_batches_are_a_permutation_of_all_examples(tmp_path):
    run = Loop(Classification(dataclasses.replace(SMALL, batch=128)), 0, Job(tmp_path))
    for splits in ([run.data.train], [run.data.train, run.data.valid]):
        count = sum(map(len, splits))
        order = torch.randperm(count, generator=run.generator)
        batches = list(run.task.batches(splits, order))
        assert {len(y) for _, y, _ in batches[:-1]} == {128}
        assert [len(y) for _, y, _ in batches] == [size for *_, size in batches]
        found = torch.cat([torch.cat([x, y[:, None]], 1) for x, y, _ in batches])
        wanted = torch.cat([torch.cat([s.features, s.targets[:, None]], 1) for s in splits])
        assert torch.equal(found.unique(dim=0), wanted.unique(dim=0))
        assert len(found) == count


def test_inputs_are_centred_and_bytes_become_floats(tmp_path):
    sizes = (("train", 50), ("valid", 20), ("test", 20))
    config = dataclasses.replace(SMALL, data="pentomino", data_options=sizes, center_inputs=True)
    run = Loop(Classification(config), 0, Job(tmp_path))
    x = run.task.prepared(run.data.train.features)
    assert x.dtype == torch.float32
    assert x.mean(0).abs().max() < 1e-6
    assert config.run(0, Job(tmp_path))["examples"]["train"] == 50


@pytest.mark.parametrize("activation", ["lp", "maxout", "relu"])
def test_sparse_inputs_train_the_same_net(activation, tmp_path):
    sizes = (("train", 200), ("valid", 50), ("test", 50))
    config = dataclasses.replace(SMALL, data="pentomino", data_options=sizes, activation=activation)
    dense = Loop(Classification(config), 0, Job(tmp_path / "dense"))
    sparse = Loop(
        Classification(dataclasses.replace(config, sparse_inputs=True)), 0, Job(tmp_path / "sparse")
    )
    assert sparse.task.prepared(sparse.data.train.features).is_sparse
    losses = [run.epoch([run.data.train]) for run in (dense, sparse)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for a, b in zip(dense.model.parameters(), sparse.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


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
    run = Loop(Classification(dataclasses.replace(SMALL, adversarial=distance)), 0, Job(tmp_path))
    data = run.data.train
    x, y, model = data.features[:50].clone(), data.targets[:50], copy.deepcopy(run.model)
    value = run.task.backward(run.model, x, y, batch=50)
    plain = cross_entropy(model(x), y)
    (uphill,) = torch.autograd.grad(plain, x, retain_graph=True)
    moved = x.detach() + distance * uphill / uphill.norm(dim=1, keepdim=True)
    other = cross_entropy(model(moved), y)
    assert other > plain
    assert value == pytest.approx((plain + other).item() / 2, rel=1e-5)
    ((plain + other) / 2).backward()
    for ours, theirs in zip(run.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_a_virtual_adversarial_loss_has_the_divergence_where_the_prediction_changes_most(tmp_path):
    distance = 0.5
    run = Loop(Classification(dataclasses.replace(SMALL, virtual=distance)), 0, Job(tmp_path))
    data = run.data.train
    x, y, model = data.features[:50].clone(), data.targets[:50], copy.deepcopy(run.model)
    torch.manual_seed(1)
    value = run.task.backward(run.model, x, y, batch=50)
    scores = model(x)
    plain = cross_entropy(scores, y)
    assert value > plain
    torch.manual_seed(1)
    moved = 50 * (value - plain.item())
    assert divergence(model, x, scores.detach(), distance).item() == pytest.approx(moved, rel=1e-3)
    target = scores.detach().softmax(1)
    for _ in range(5):
        step = distance * torch.nn.functional.normalize(torch.randn_like(x), dim=1)
        random = (target * (target.log() - model(x + step).log_softmax(1))).sum().item()
        assert random < moved / 2
    torch.manual_seed(1)
    (plain + divergence(model, x, scores.detach(), distance) / 50).backward()
    for ours, theirs in zip(run.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_the_two_adversarial_losses_exclude_each_other():
    with pytest.raises(ValueError, match=r"virtual must be 0 with adversarial examples, got 2.0"):
        dataclasses.replace(SMALL, adversarial=1.0, virtual=2.0)


def test_products_may_be_rounded_in_training_alone(tmp_path):
    before = torch.get_float32_matmul_precision()
    exact, rounded = (
        dataclasses.replace(SMALL, epochs=1, lr=lr, matmul="medium") for lr in (0.0, SMALL.lr)
    )
    seen = []
    loop = Loop(Classification(rounded), 0, Job(tmp_path / "rounded"))
    loop.model[0].register_forward_hook(
        lambda *_: seen.append((loop.model.training, torch.get_float32_matmul_precision()))
    )
    loop.run()
    assert set(seen) == {(True, "medium"), (False, before)}
    assert torch.get_float32_matmul_precision() == before
    plain = dataclasses.replace(exact, matmul="highest").run(0, Job(tmp_path / "plain"))
    assert exact.run(0, Job(tmp_path / "exact"))["metrics"] == plain["metrics"]


def test_the_weights_of_the_output_can_be_the_only_ones_that_decay(tmp_path):
    config = dataclasses.replace(SMALL, weight_decay=0.1, decayed="output")
    loop = Loop(Classification(config), 0, Job(tmp_path))
    decayed = [p for g in loop.optimizer.param_groups if g["weight_decay"] for p in g["params"]]
    assert [id(p) for p in decayed] == [id(loop.model[-1].weight)]
    every = {id(p) for group in loop.optimizer.param_groups for p in group["params"]}
    assert every == {id(p) for p in loop.model.parameters() if p.requires_grad}


@pytest.mark.parametrize("kind", ["adversarial", "virtual"])
def test_moved_inputs_leave_no_trace_in_the_statistics_of_a_normalisation(tmp_path, kind):
    found = []
    for distance in (0.0, 5.0):
        config = dataclasses.replace(MODERN, dropout=0.0, **{kind: distance})
        run = Loop(Classification(config), 0, Job(tmp_path / str(distance)))
        x, y = run.data.train.features[:50].clone(), run.data.train.targets[:50]
        run.model.train()
        run.task.backward(run.model, x, y, 50)
        found.append({k: v for k, v in run.model.state_dict().items() if ".running_" in k})
    plain, both = found
    assert plain
    assert all(torch.equal(plain[name], both[name]) for name in plain)


@pytest.mark.parametrize("kind", ["adversarial", "virtual"])
def test_where_the_loss_is_flat_an_input_stays_where_it_is(tmp_path, kind):
    run = Loop(Classification(dataclasses.replace(SMALL, **{kind: 1.0})), 0, Job(tmp_path))
    for p in run.model[-1].parameters():
        torch.nn.init.zeros_(p)
    assert run.task.backward(run.model, torch.rand(3, 64), torch.arange(3), 3) == pytest.approx(
        math.log(10)
    )
    assert all(p.grad.isfinite().all() for p in run.model.parameters())


def test_adam_keeps_the_groups_apart(tmp_path):
    run = Loop(Classification(MODERN), 0, Job(tmp_path))
    assert isinstance(run.optimizer, torch.optim.AdamW)
    run.set_rates(0)
    groups = {group["name"]: group for group in run.optimizer.param_groups}
    rates = {name: (group["lr"], group["weight_decay"]) for name, group in groups.items()}
    assert rates == {
        "weights": (0.02, 0.01),
        "biases": (0.02, 0.0),
        "orders": (0.1, 0.0),
        "centers": (0.02, 0.0),
    }
    assert all(p.ndim > 1 for p in groups["weights"]["params"])  # no gains of a normalisation
    with pytest.raises(ValueError, match=r"max_norm must be None unless optimizer is sgd, got 1.5"):
        dataclasses.replace(MODERN, max_norm=1.5)
