"""--set: values of the right type, or one clear sentence."""

import math

import pytest
from configs import Sum

from lpunits.paper.training.networks import FeedForward
from lpunits.paper.training.settings import with_settings
from lpunits.paper.training.trial import Trial

TRIALS = [Trial(Sum(), 0), Trial(FeedForward("digits"), 1)]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("epochs=3", 3),
        ("lr=0.5", 0.5),
        ("lr=1", 1.0),
        ("hidden=(3, 4)", (3, 4)),
        ("hidden=5,", (5,)),
        ("activation=relu", "relu"),
        ("max_norm=None", None),
        ("max_norm=2", 2.0),
        ("hidden=3, 4", (3, 4)),
        ("hidden=6", (6,)),
        ("epochs=3 ", 3),
        ("data_options=points,None", (("points", None),)),
        ("order=inf", math.inf),
        ("learn_order=False", False),
        ("learn_order=false", False),
        ("data=curve", "curve"),
        ("data_options=(('points', 10),)", (("points", 10),)),
    ],
)
def test_a_field_is_changed_where_there_is_one(setting, value):
    first, second = with_settings(TRIALS, [setting])
    assert first == TRIALS[0]
    found = getattr(second.config, setting.partition("=")[0])
    assert found == value
    assert type(found) is type(value)
    assert second.seed == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("epochs", "--set must be field=value, got 'epochs'"),
        ("epoch=3", "--set: no trial has a field 'epoch': did you mean 'epochs'?"),
        ("epochs=many", "--set epochs must be int, got 'many'"),
        ("epochs=2.5", "--set epochs must be int, got '2.5'"),
        ("epochs=True", "--set epochs must be int, got 'True'"),
        ("lr=high", "--set lr must be float, got 'high'"),
        ("hidden=5,many", "--set hidden must be tuple[int, ...], got '5,many'"),
        ("hidden=5,2.5", "--set hidden must be tuple[int, ...], got '5,2.5'"),
        ("hidden=", "--set hidden must be tuple[int, ...], got ''"),
        ("patience=2.5", "--set patience must be int | None, got '2.5'"),
        ("learn_order=maybe", "--set learn_order must be bool, got 'maybe'"),
        ("data_options=points", "--set data_options must be tuple[tuple[str, "),
        ("max_norm=a", "--set max_norm must be float | None, got 'a'"),
        ("epochs=0", "epochs must be a finite number of at least 1, got 0"),
        ("activation=gelu", "activation must be one of"),
        ("data=minst", "unknown dataset 'minst': did you mean 'mnist'?"),
    ],
)
def test_what_does_not_fit_is_answered_by_one_sentence(setting, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        with_settings(TRIALS, [setting])
    assert str(caught.value).startswith(message)


def test_several_at_once():
    config = with_settings(TRIALS, ["epochs=3", "lr=0.5"])[1].config
    assert (config.epochs, config.lr) == (3, 0.5)
