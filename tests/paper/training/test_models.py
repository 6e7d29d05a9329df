"""Trained networks come back as they were kept; those of the package reach their numbers."""

import importlib.util
import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lpunits import LpLinear, sealed
from lpunits.paper import load_model, pretrained
from lpunits.paper.data import info, load
from lpunits.paper.training.classification import Classification
from lpunits.paper.training.job import Job
from lpunits.paper.training.models import PRETRAINED, config_of
from lpunits.paper.training.music import Music, Prediction
from lpunits.paper.training.networks import Convolutional, FeedForward
from lpunits.paper.training.trial import Trial

SCRIPT = Path(__file__).parents[3] / "results" / "pretrained.py"
NAMES = sorted(path.stem for path in PRETRAINED.glob("*.safetensors"))
BRIEF = {"epochs": 1, "batch": 400}
CONFIGS = [
    FeedForward("digits", hidden=(8, 6), filters=3, order=2.0, normalization="batch", **BRIEF),
    FeedForward("digits", hidden=(8,), activation="relu", filters=1, **BRIEF),
    Convolutional("digits", channels=(4, 6), order=math.inf, learn_order=False, **BRIEF),
    Music("chords", hidden=8, units=6, output_units=6, batch=40, epochs=1, shortcut=True),
    Music("chords", model="gru", hidden=8, units=6, output_units=6, batch=40, epochs=1),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.label)
def test_a_trial_leaves_its_network(config, tmp_path):
    values = Trial(config, 3).values
    identity = {"kind": type(config).__name__, "config": values, "seed": 3}
    outcome = config.run(3, Job(tmp_path, identity=identity))
    net, about = load_model(tmp_path / "model.safetensors")
    assert about.items() >= identity.items()
    assert not net.training
    assert all(p.device.type == "cpu" and p.requires_grad for p in net.parameters())
    with torch.no_grad():
        if isinstance(config, Music):
            again = Prediction(config).evaluate(net, load("chords").test)["nll"]
            assert again == pytest.approx(outcome["nll"]["test"], rel=1e-6)
        else:
            again = Classification(config).evaluate(net, load("digits").test)
            assert again == pytest.approx(outcome["metrics"]["test"], rel=1e-6)


def kept(path, kind="FeedForward", config=CONFIGS[0], **changes):
    """A model file of the first config, with a right checksum over wrong facts."""
    net = CONFIGS[0].model((8, 8), 10)
    facts = {"kind": kind, "config": Trial(config, 0).values | changes}
    sealed.write(path, net.state_dict(), facts | {"shape": [8, 8], "classes": [*"0123456789"]})
    return path


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "Dataset"},
        {"hidden": 8},
        {"hidden": "many"},
        {"hidden": [8, 10**12]},  # refused before memory is asked for
        {"layers": 3},
        {"activation": "eval"},
        {"data": "../secret"},
        {"kind": "Music"},
    ],
    ids=str,
)
def test_a_file_of_something_else_is_refused(wrong, tmp_path):
    path = kept(tmp_path / "model.safetensors", **wrong)
    with pytest.raises(ValueError, match="not a model of this version of lpunits") as caught:
        load_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_hold_no_model(tmp_path):
    names = ("listed", "bare", "foreign", "text", "none")
    listed, bare, foreign, text, none = (tmp_path / f"{name}.safetensors" for name in names)
    sealed.write(listed, {}, {"kind": "Music", "config": [1]})
    sealed.write(bare, {}, {})
    save_file({"a": torch.zeros(1)}, foreign)
    text.write_text("no tensors here")
    for path, sentence in (
        (listed, "not a model of this version"),
        (bare, "not a model of this version"),
        (foreign, "not a file that lpunits has written"),
        (text, "not a file that lpunits has written"),
        (none, "there is no such file"),
        (tmp_path, "cannot be read"),
    ):
        with pytest.raises(ValueError, match=sentence) as caught:
            load_model(path)
        assert "\n" not in str(caught.value)


def test_the_name_of_a_network():
    with pytest.raises(ValueError, match=r"name must be one of .*, got 'imagenet'"):
        pretrained("imagenet")


@pytest.mark.parametrize("name", NAMES)
def test_a_pretrained_network_reaches_its_number(name):
    if not info(name).present:
        pytest.skip(f"needs the data of {name}")
    net, about = pretrained(name)
    config = config_of(about)
    task = (Prediction if isinstance(config, Music) else Classification)(config)
    assert about["data_sha256"] == task.data.checksum
    with torch.no_grad():
        found = task.evaluate(net, task.data.test)
    ((metric, expected),) = about["score"].items()
    # The last bits of a sum depend on the processor, and may move an example over a boundary.
    assert found[metric.removeprefix("test ")] == pytest.approx(expected, rel=5e-3)


def test_the_package_stays_small():
    assert NAMES
    for path in PRETRAINED.iterdir():
        assert path.stat().st_size < 5e6, path


@pytest.fixture
def script():
    if not SCRIPT.exists():
        pytest.skip("needs the repository's results")
    spec = importlib.util.spec_from_file_location("write_pretrained", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("config", CONFIGS[:3], ids=lambda c: c.label)
def test_only_plain_networks_lose_units(script, config):
    assert not script.is_plain(config.model((8, 8), 10))


@torch.no_grad()
def test_idle_units_are_left_out(script, tmp_path):
    config = FeedForward("digits", hidden=(9, 7), filters=3, order=2.0, bias=True, dropout=0.5)
    net = config.model((8, 8), 10).eval()
    assert script.is_plain(net)
    first, second = (layer for layer in net if isinstance(layer, LpLinear))
    for layer in (first, second):
        layer.center.normal_()
        layer.bias.normal_()
    first.weight[:, [0, 4]] *= 1e-7
    second.weight[:, 6] = 0
    x = torch.rand(20, 64)
    before = net(x)
    assert script.drop_idle(net, x) == [7, 6]
    torch.testing.assert_close(net(x), before)
    about = {"kind": "FeedForward", "config": Trial(config, 0).values | {"hidden": [7, 6]}}
    path = tmp_path / "model.safetensors"
    sealed.write(path, net.state_dict(), about | {"shape": [8, 8], "classes": [*"0123456789"]})
    torch.testing.assert_close(load_model(path).net(x), before)


def test_the_script_measures_what_it_keeps(script, tmp_path, monkeypatch):
    config = FeedForward("digits", hidden=(12,), filters=2, epochs=3, batch=100, weight_decay=1e-4)
    trial = Trial(config, 1)
    identity = {"kind": "FeedForward", "config": trial.values, "seed": 1}
    folder = tmp_path / "trials" / "some"
    outcome = config.run(1, Job(folder, identity=identity))
    record = identity | {"key": "some", "label": "digits", "versions": {}, "commit": "abc"}
    (tmp_path / "some.json").write_text(json.dumps(record | {"outcome": outcome}))
    monkeypatch.setattr(script, "PRETRAINED", tmp_path)
    monkeypatch.setattr(script, "CHANGE", 0.05)  # an image of a small test set
    script.main(tmp_path, tmp_path / "trials")
    net, about = load_model(tmp_path / "digits.safetensors")
    found = Classification(config).evaluate(net, load("digits").test)["error"]
    assert about["score"] == {"test error": found}
    assert about["label"] == "digits"
    monkeypatch.setattr(script, "CHANGE", 0.0)
    with pytest.raises(AssertionError, match="digits"):
        script.main(tmp_path, tmp_path / "trials")
