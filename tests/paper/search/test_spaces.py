"""Spaces: every value that is drawn makes a valid config, and what is fixed is not drawn."""

import optuna
import pytest

from lpunits.paper.search import spaces
from lpunits.paper.training.trial import SCALES

optuna.logging.set_verbosity(optuna.logging.WARNING)


def drawn(space, seed):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed))
    trial = study.ask()
    return {name: r.suggest(trial, name) for name, r in space.ranges.items()}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", spaces.SPACES)
def test_every_draw_is_a_config(name, scale):
    space = spaces.get(name, scale)
    for seed in range(5):
        values = drawn(space, seed)
        config = space.config(values)
        assert config != space.base
        assert all(getattr(config, n) == v for n, v in values.items() if hasattr(config, n))
        assert config.test
        assert not config.untested().test


def test_a_search_is_known_by_its_ranges_and_its_base():
    found = {
        spaces.fingerprint(spaces.get("mnist", "quick", settings))
        for settings in ([], ["lr=0.25"], ["lr=0.26"], ["epochs=7"], [])
    }
    assert len(found) == 4


def test_the_number_of_layers_stays():
    space = spaces.get("covertype", "paper")
    assert space.config({"units": 150}).hidden == (150, 150, 150)


@pytest.mark.parametrize(
    ("name", "settings", "gone"),
    [
        ("mnist", ["lr=0.1"], {"lr"}),
        ("mnist", ["hidden=(8, 8)"], {"units"}),
        ("mnist", ["learn_order=False"], {"order_scale"}),
        ("mnist", ["activation=l2"], {"order", "order_scale"}),
        ("mnist", ["activation=maxout"], {"order", "order_scale", "center_scale"}),
        ("mnist", ["activation=relu"], {"order", "order_scale", "center_scale"}),
        ("jsb", ["model=gru"], {"order", "order_scale", "dropout"}),
        ("jsb", ["model=sigmoid", "clip=2"], {"order", "order_scale"}),
    ],
)
def test_what_is_fixed_or_has_no_effect_is_not_searched(name, settings, gone):
    before, after = (spaces.get(name, "quick", s).ranges for s in ((), settings))
    assert set(before) - set(after) == gone


def test_a_fixed_value_is_in_every_trial():
    assert spaces.get("mnist", "quick", ["lr=0.25"]).config({"momentum": 0.4}).lr == 0.25


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("minst", [], "there is no search for 'minst': did you mean 'mnist'?"),
        ("mnist", ["rate=1"], "--set: no trial has a field 'rate'"),
    ],
)
def test_mistakes(name, settings, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        spaces.get(name, "quick", settings)
