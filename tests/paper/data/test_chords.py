import hashlib

import pytest
import torch

from lpunits.paper.data import load
from lpunits.paper.data.chords import NEXT


def test_the_same_seed_gives_the_same_music_for_ever() -> None:
    found = load("chords")
    assert tuple(map(len, (found.train, found.valid, found.test))) == (120, 40, 40)
    assert found.checksum == load("chords").checksum
    assert found.checksum != load("chords", seed=1).checksum
    digest = hashlib.sha256(found.checksum.encode()).hexdigest()[:8]
    assert digest == "3d5033a9"


def test_it_is_music_of_a_few_voices_on_the_keyboard() -> None:
    found = load("chords", train=50, valid=1, test=1)
    assert found.train.features is found.train.targets
    for roll in found.train.features:
        assert roll.shape[1] == 88
        assert 32 <= len(roll) <= 67
        assert set(roll.unique().tolist()) == {0.0, 1.0}
        assert 3 <= roll.sum(1).min() <= roll.sum(1).max() <= 5
        # Chords last at least two steps, so at least half of the notes go on.
        assert (roll[1:] * roll[:-1]).sum() > 0.5 * roll[1:].sum()
    assert len({roll.shape[0] for roll in found.train.features}) > 3
    assert all(goal in NEXT for goals in NEXT.values() for goal in goals)


def test_options_are_checked() -> None:
    with pytest.raises((TypeError, ValueError), match="train must be a positive integer, got 0"):
        load("chords", train=0)
    with pytest.raises(ValueError, match="seed must be an integer"):
        load("chords", seed=-1)
    assert torch.equal(load("chords", train=2).train.features[0], load("chords").train.features[0])
