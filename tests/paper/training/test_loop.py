"""The training loop: it learns, stops, chooses on validation alone, averages and resumes."""

import copy
import dataclasses
import math

import pytest
import torch
from configs import IMAGES, MODERN, SMALL
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

from lpunits import sealed
from lpunits.paper.data import load
from lpunits.paper.training.classification import Classification
from lpunits.paper.training.job import Job
from lpunits.paper.training.loop import Loop, NotFiniteError


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
    data = load("digits")
    model = net(config, tmp_path)
    for name, split in (("train", data.train), ("valid", data.valid), ("test", data.test)):
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
    model, test = net(config, tmp_path), load("digits").test
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
    run = Loop(Classification(SMALL), 0, Job(tmp_path))
    with torch.no_grad():
        run.model[0].weight.fill_(math.nan)
    with pytest.raises(NotFiniteError, match="the loss of evaluation was nan after epoch 0"):
        run.evaluate(run.data.valid)


def test_sparse_inputs_resume_with_the_same_bits_and_refuse_what_fills_them(tmp_path):
    sizes = (("train", 200), ("valid", 50), ("test", 50))
    config = dataclasses.replace(
        SMALL, data="pentomino", data_options=sizes, sparse_inputs=True, epochs=2
    )
    Loop(Classification(config), 0, Job(tmp_path / "stopped")).first_stage_epoch()
    assert config.run(0, Job(tmp_path / "stopped")) == config.run(0, Job(tmp_path / "whole"))
    with pytest.raises(ValueError, match="center_inputs must be False with sparse_inputs"):
        dataclasses.replace(config, center_inputs=True)
    with pytest.raises(ValueError, match=r"input_dropout must be 0.0 with sparse_inputs, got 0.2"):
        dataclasses.replace(config, input_dropout=0.2)
    with pytest.raises(ValueError, match=r"adversarial must be 0.0 with sparse_inputs, got 1.5"):
        dataclasses.replace(config, adversarial=1.5)
    with pytest.raises(ValueError, match="sparse_inputs must be False for convolutions"):
        dataclasses.replace(IMAGES, sparse_inputs=True).model((8, 8), 10)


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
    run, steps = Loop(Classification(config), 0, Job(tmp_path)), []
    step = run.optimizer.step
    run.optimizer.step = lambda: (step(), steps.append(copy.deepcopy(run.model.state_dict())))
    outcome = run.run()
    first, second = steps[-2:]  # two batches to an epoch
    kept = net(config, tmp_path)
    for name, tensor in kept.state_dict().items():
        if tensor.is_floating_point() and not name.endswith("rho"):
            torch.testing.assert_close(tensor, (first[name] + second[name]) / 2)
            assert not torch.equal(tensor, second[name]) or "bias" in name or "center" in name
    found = outcome["last_stage"] if last_epochs else outcome["metrics"]
    assert found["test"]["error"] == error(kept, load("digits").test)
    assert outcome["curve"][-1]["valid_error"] == error(kept, load("digits").valid)


def flipped(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def changed(**values):
    """A checkpoint that was changed by someone who can compute its checksum."""

    def change(path):
        tensors, facts = sealed.read(path)
        for name, value in values.items():
            if name in facts["state"]:
                facts["state"][name] = value
            else:
                tensors[name.replace("_", "/")] = torch.zeros(value)
        sealed.write(path, tensors, facts)

    return change


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flipped, "damaged: its checksum is wrong"),
        (cut, "damaged: its checksum is wrong"),
        (changed(epoch=-5), "no run can be at epoch -5 of stage 'first' in this way"),
        (changed(epoch=1.0), "no run can be at epoch 1.0 of stage 'first' in this way"),
        (changed(epoch=99), "no run can be at epoch 99 of stage 'first' in this way"),
        (changed(epoch=1), "no run can be at epoch 1 of stage 'first' in this way"),
        (changed(stage="middle"), "no run can be at epoch 2 of stage 'middle' in this way"),
        (changed(stage="last"), "no run can be at epoch 2 of stage 'last' in this way"),
        (changed(stage=["first"]), "unhashable type"),
        (changed(choice=None), "'NoneType' object"),
        (changed(choice={}), "error"),
        (changed(curve=[1, 2]), "'int' object"),
        (changed(seconds=-1.0), "it has run for -1.0 seconds"),
        (changed(best_0=3), "0"),
        (changed(**{"best_0.weight": (3, 3)}), r"0.weight has the shape (3, 3)"),
        (changed(**{"model_0.weight": (3, 3)}), "size mismatch for 0.weight"),
    ],
)
def test_a_damaged_checkpoint_is_kept_beside_and_the_trial_starts_over(damage, reason, tmp_path):
    small = {"data": "curve", "data_options": (("points", 200),), "hidden": (4,)}
    config = dataclasses.replace(SMALL, **small, epochs=4, last_epochs=2)
    whole = config.run(0, Job(tmp_path / "whole"))
    loop = Loop(Classification(config), 0, Job(tmp_path / "stopped"))
    loop.first_stage_epoch(), loop.first_stage_epoch()
    damage(loop.job.checkpoint)
    bad, notes = loop.job.checkpoint.read_bytes(), []
    job = Job(tmp_path / "stopped", show=lambda progress: notes.append(progress.note))
    assert config.run(0, job) == whole
    assert notes[0].startswith(f"{job.checkpoint}: ")
    assert reason in notes[0]
    assert notes[0].endswith("; it is kept as checkpoint.damaged, and the trial starts over")
    assert not any(notes[1:])
    job.close()
    left = {path.name: path.read_bytes() for path in job.folder.iterdir()}
    assert left == {"checkpoint.damaged": bad, "model.safetensors": left["model.safetensors"]}
    assert left["model.safetensors"] == (tmp_path / "whole" / "model.safetensors").read_bytes()
