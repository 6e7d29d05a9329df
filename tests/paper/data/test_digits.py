import pytest
import torch

from lpunits.paper.data import load


def test_splits() -> None:
    found = load("digits")
    splits = found.train, found.valid, found.test
    assert [tuple(s.features.shape) for s in splits] == [(1197, 64), (300, 64), (300, 64)]
    for split in splits:
        assert split.features.dtype == torch.float32
        assert (split.features.min(), split.features.max()) == (0, 1)
    counts = sum(torch.bincount(s.targets, minlength=10) for s in splits)
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    rows = torch.cat([s.features for s in splits])
    assert len(rows.unique(dim=0)) == len(rows)  # no image is in two splits


def test_seed() -> None:
    assert torch.equal(load("digits").train.targets, load("digits", seed=0).train.targets)
    assert not torch.equal(load("digits").train.targets, load("digits", seed=1).train.targets)
    assert load("digits").checksum == load("digits", seed=1).checksum
    with pytest.raises(ValueError, match="seed must be an integer"):
        load("digits", seed="one")
