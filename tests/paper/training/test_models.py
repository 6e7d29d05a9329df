"""Trained networks come back as they were kept; those of the package reach their numbers."""

import math

import pytest
import torch
from safetensors.torch import save_file

from lpunits import sealed
from lpunits.paper import load_model, pretrained
from lpunits.paper.data import info, load
from lpunits.paper.training.classification import Classification
from lpunits.paper.training.job import Job
from lpunits.paper.training.models import PRETRAINED, config_of
from lpunits.paper.training.music import Music, Prediction
from lpunits.paper.training.networks import Convolutional, FeedForward
from lpunits.paper.training.trial import Trial

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
    assert all(path.stat().st_size < 5e6 for path in PRETRAINED.iterdir())
