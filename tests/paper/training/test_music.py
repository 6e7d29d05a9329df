"""The metric, and training by truncated backpropagation."""

import dataclasses
import json
import math
import os
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from lpunits import DOTRNN
from lpunits.paper.data import load
from lpunits.paper.search.runner import attempt
from lpunits.paper.training.job import Job
from lpunits.paper.training.likelihood import check_rolls, music_nll
from lpunits.paper.training.models import load_model
from lpunits.paper.training.music import Music, transposed, windows
from lpunits.paper.training.trial import Trial

SMALL = Music("chords", hidden=12, units=10, output_units=10, epochs=3, batch=40, lr=0.01)
MODELS = ("lp", "l2", "maxout", "relu", "sigmoid", "tanh", "rnn", "gru", "lstm")
# Nats per step of the test set, of notes as frequent as in the training set.
MARGINALS = {"nottingham": 10.25, "jsb": 11.06, "musedata": 11.51}


def rolls(*lengths):
    return [(torch.rand(n, 88) < 0.05).float() for n in lengths]


class TestMetric:
    @pytest.mark.parametrize("name", MARGINALS)
    def test_note_marginals_on_real_music(self, name):
        folder = Path(os.environ.get("LPUNITS_DATA", "")) / "music"
        files = {"nottingham": "Nottingham", "jsb": "JSB_Chorales", "musedata": "MuseData"}
        if not (folder / f"{files[name]}.mat").is_file():
            pytest.skip("needs the real data files")
        data = load(name)
        frequency = torch.cat(data.train.features).double().mean(0).clamp(1e-6, 1 - 1e-6)
        logits = frequency.logit().float()
        found = music_nll(lambda x: logits.expand_as(x), data.test.features)
        assert found.pooled == pytest.approx(MARGINALS[name], abs=0.01)
        if name == "musedata":  # the choice of the mean matters
            assert abs(found.per_piece - found.pooled) > 0.1

    def test_it_is_the_mean_over_steps_of_what_each_frame_costs(self):
        net = DOTRNN(88, 6, 88, 5, 2, 5, 2)
        pieces = rolls(7, 1, 30, 4)
        total, means = 0.0, []
        for piece in pieces:
            state, costs = None, []
            frame = torch.zeros(88)
            for following in piece:
                logits, state = net.step(frame, state)
                costs.append(binary_cross_entropy_with_logits(logits, following, reduction="sum"))
                frame = following
            total += sum(costs).item()
            means.append(sum(costs).item() / len(piece))
        for frames in (1, 10, 100):
            found = music_nll(net, pieces, frames=frames)
            assert found.pooled == pytest.approx(total / 42, rel=1e-5)
            assert found.per_piece == pytest.approx(sum(means) / 4, rel=1e-5)

    def test_it_leaves_the_mode_of_the_model_alone(self):
        net = nn.Sequential(nn.Dropout(0.5), nn.Linear(88, 88))
        pieces = rolls(5)
        assert net.train() is net
        assert music_nll(net, pieces) == music_nll(net, pieces)
        assert net.training
        music_nll(net.eval(), pieces)
        assert not net.training

    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            ([], "sequences must be at least one piano roll, got none"),
            ([torch.zeros(0, 88)], "shape (steps, 88), got (0, 88) for piece 0"),
            ([*rolls(3), torch.zeros(3, 87)], "shape (steps, 88), got (3, 87) for piece 1"),
            ([torch.full((1, 88), 2.0)], "sequences must hold 0 and 1 only, got 2.0 in piece 0"),
            ([torch.full((1, 88), math.nan)], "sequences must hold 0 and 1 only, got nan"),
        ],
    )
    def test_what_is_no_piano_roll_is_refused(self, given, sentence):
        for check in (check_rolls, lambda x: music_nll(torch.zeros_like, x)):
            with pytest.raises(ValueError, match="sequences must") as caught:
                check(given)
            assert sentence in str(caught.value)


def test_windows_cover_every_frame_once_and_targets_follow_inputs():
    pieces = rolls(10, 7, 3)
    seen = [[] for _ in pieces]
    before = [[] for _ in pieces]
    for inputs, targets in windows(pieces, 4):
        for i, (x, y) in enumerate(zip(inputs, targets, strict=True)):
            before[i].append(x)
            seen[i].append(y)
    for i, piece in enumerate(pieces):
        assert torch.equal(torch.cat(seen[i]), piece)
        known = torch.cat(before[i])
        assert not known[0].any()
        assert torch.equal(known[1:], piece[:-1])


def test_transposed_pieces_stay_on_the_keyboard():
    generator = torch.Generator().manual_seed(0)
    piece = torch.zeros(2, 88)
    piece[0, 3], piece[1, 86] = 1, 1
    shifts = set()
    for _ in range(60):
        moved = transposed(piece, 6, generator)
        assert moved.sum() == 2
        low, high = moved[0].argmax().item(), moved[1].argmax().item()
        assert high - low == 83
        shifts.add(low - 3)
    assert shifts == {-3, -2, -1, 0, 1}
    assert not transposed(torch.zeros(2, 88), 6, generator).any()


def marginals():
    data = load("chords")
    often = torch.cat(data.train.features).mean(0).clamp(1e-6, 1 - 1e-6).logit()
    return music_nll(lambda x: often.expand_as(x), data.valid.features).pooled


@pytest.mark.parametrize("model", MODELS)
def test_every_network_learns_more_than_how_often_notes_sound(model, tmp_path):
    config = dataclasses.replace(SMALL, model=model, epochs=6, dropout=0.0, batch=20, lr=0.02)
    outcome = config.run(0, Job(tmp_path))
    assert outcome["nll"]["valid"] < marginals() - 0.3
    kept = music_nll(load_kept(config, tmp_path), load("chords").test.features)
    assert kept.pooled == pytest.approx(outcome["nll"]["test"], rel=1e-6)
    assert kept.per_piece == pytest.approx(outcome["nll_per_piece"]["test"], rel=1e-6)
    best = min(row["valid_nll"] for row in outcome["curve"])
    assert outcome["nll"]["valid"] == pytest.approx(best, abs=1e-3)
    assert outcome["curve"][outcome["epoch"] - 1]["valid_nll"] == best
    if model == "lp":
        (layer,) = outcome["orders"]
        assert layer["initial"] != layer["final"]
        assert len(layer["final"]) == 10
        assert {len(row) for row in outcome["excerpt"]["probability"]} == {176}


def load_kept(config, folder):
    from safetensors.torch import load_file

    net = config.net()
    net.load_state_dict(load_file(folder / "model.safetensors"))
    return net


def test_all_networks_have_about_as_many_weights():
    sizes = {
        m: sum(p.numel() for p in Music("jsb", model=m).net().parameters())
        for m in ("lp", "sigmoid", "maxout", "tanh", "rnn", "gru", "lstm")
    }
    assert max(sizes.values()) < 1.01 * min(sizes.values())


@pytest.mark.parametrize(
    "changes",
    [
        {"window": 7, "optimizer": "sgd"},
        {"decay": "cosine", "average": 0.5},
    ],
    ids=str,
)
def test_a_run_that_stops_after_any_epoch_goes_on_with_the_same_bits(tmp_path, changes):
    config = dataclasses.replace(SMALL, epochs=3, patience=1, transpose=2, **changes)
    whole = config.run(0, Job(tmp_path / "whole"))

    class KilledError(Exception):
        pass

    class Fragile(Job):
        """Dies after each checkpoint that it writes."""

        def save(self, parts, facts):
            super().save(parts, facts)
            raise KilledError

    kills = 0
    while True:
        torch.manual_seed(kills)  # whatever the process did before must not matter
        try:
            outcome = config.run(0, Fragile(tmp_path / "parts"))
            break
        except KilledError:
            kills += 1
    assert kills == len(whole["curve"]) + 1  # and one after the choice of the weights
    assert outcome == whole
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert models[0] == models[1]


def test_the_rate_is_halved_when_validation_stops_improving(tmp_path):
    # With a rate of 0 nothing ever improves after the first epoch.
    config = dataclasses.replace(SMALL, lr=0.0, epochs=50, patience=2, halvings=2)
    outcome = config.run(0, Job(tmp_path))
    assert len(outcome["curve"]) == 1 + 3 * 2
    assert outcome["epoch"] == 1


def test_the_mean_of_the_weights_is_what_is_kept(tmp_path):
    # One update with a rate and then, by the cosine, one with half of it.
    config = dataclasses.replace(SMALL, optimizer="sgd", momentum=0.0, clip=0.0, dropout=0.0)
    config = dataclasses.replace(config, batch=1000, epochs=2, decay="cosine", lr=0.1)
    kept = {}
    for name, changes in {
        "one": {"epochs": 1},
        "two": {},
        "mean": {"average": 0.75},
    }.items():
        changed = dataclasses.replace(config, **changes)
        changed.run(0, Job(tmp_path / name))
        kept[name] = load_kept(changed, tmp_path / name).rnn.get_parameter("input.weight")
    torch.manual_seed(0)
    start = config.net().rnn.get_parameter("input.weight")
    after_one = 0.75 * start + 0.25 * kept["one"]
    torch.testing.assert_close(kept["mean"], 0.75 * after_one + 0.25 * kept["two"])
    assert not torch.equal(kept["mean"], start)


def test_weights_decay_apart_from_the_steps_of_adam_and_orders_do_not(tmp_path):
    # One update, which by AdamW decay only adds to.
    config = dataclasses.replace(SMALL, batch=1000, epochs=1)
    torch.manual_seed(0)
    start = config.net().rnn
    with_decay = dataclasses.replace(config, weight_decay=0.4)
    for name, changed in (("without", config), ("with", with_decay)):
        changed.run(0, Job(tmp_path / name))
    without, decayed = (load_kept(config, tmp_path / name).rnn for name in ("without", "with"))
    for name, weight in start.named_parameters():
        lost = 0.4 * config.lr * weight if name.endswith("weight") else 0 * weight
        found = without.get_parameter(name) - decayed.get_parameter(name)
        torch.testing.assert_close(found, lost, rtol=1e-3, atol=1e-6)


def test_a_loss_that_is_not_finite_ends_in_a_record_that_says_so(tmp_path):
    config = dataclasses.replace(SMALL, optimizer="sgd", lr=1e30, clip=0.0, model="relu")
    record = attempt(Trial(config, 0), Job(tmp_path))
    assert record["status"] == "diverged"
    assert re.fullmatch(r"the loss was (nan|inf) in epoch 1, batch \d+ of .*", record["error"])
    json.dumps(record, allow_nan=False)


def test_the_gradient_norm_is_kept_below_the_threshold(tmp_path):
    start = dataclasses.replace(SMALL, optimizer="sgd", momentum=0.0, epochs=1, batch=120)
    moved = {}
    for clip in (0.0, 1e-6):
        config = dataclasses.replace(start, clip=clip)
        config.run(0, Job(tmp_path / str(clip)))
        torch.manual_seed(0)
        fresh = config.net()
        after = load_kept(config, tmp_path / str(clip))
        pairs = zip(fresh.rnn.parameters(), after.rnn.parameters(), strict=True)
        moved[clip] = max((a - b).abs().max().item() for a, b in pairs)
    assert moved[1e-6] < 1e-7 < moved[0.0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"model": "cnn"},
            "model must be one of lp, l2, maxout, relu, sigmoid, tanh, rnn, gru, lstm",
        ),
        ({"optimizer": "rmsprop"}, "optimizer must be one of adam, sgd, got 'rmsprop'"),
        ({"dropout_per": "piece"}, "dropout_per must be one of step, sequence, got 'piece'"),
        ({"decay": "linear"}, "decay must be one of halving, cosine, got 'linear'"),
        ({"average": 1.0}, "average must be a number from 0 to below 1, got 1.0"),
        ({"batch": 0}, "batch must be a finite number of at least 1, got 0"),
        ({"transpose": 100}, "transpose must be from 0 to 87, got 100"),
        ({"data": "jazz"}, "unknown dataset 'jazz'"),
    ],
)
def test_a_wrong_config_is_refused(changes, sentence):
    with pytest.raises(ValueError, match=r"must be|unknown") as caught:
        dataclasses.replace(SMALL, **changes)
    assert sentence in str(caught.value)


def test_a_kept_model_says_what_it_is(tmp_path):
    trial = Trial(dataclasses.replace(SMALL, epochs=1), 3)
    facts = {"kind": "Music", "config": trial.values, "seed": 3}
    trial.config.run(3, Job(tmp_path, identity=facts))
    net, about = load_model(tmp_path / "model.safetensors")
    assert isinstance(net, DOTRNN)
    assert not net.training
    assert facts.items() <= about.items()
