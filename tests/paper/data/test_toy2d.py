import math

import numpy as np
import pytest
import torch

from lpunits import LpLinear
from lpunits.paper.data import load
from lpunits.paper.data.toy2d import TEACHER, curve_level, teacher_level

SETS = {
    "two-gaussians": (1000, 2),
    "three-gaussians": (1500, 3),
    "curve": (5000, 2),
    "teacher": (5000, 2),
}
GOLDEN = [[1.328813, -0.550989], [0.667028, -1.123191]]


@pytest.mark.parametrize("name", SETS)
def test_sizes_types_and_seeds(name: str) -> None:
    points, classes = SETS[name]
    found = load(name)
    for split in (found.train, found.valid, found.test):
        assert split.features.shape == (points, 2)
        assert split.features.dtype == torch.float32
        assert split.targets.dtype == torch.int64
        assert set(split.targets.tolist()) == set(range(classes))
    assert len(found.classes) == classes
    assert not torch.equal(found.train.features, found.valid.features)
    assert not torch.equal(found.valid.features, found.test.features)
    assert torch.equal(load(name).train.features, found.train.features)
    assert not torch.equal(load(name, seed=1).train.features, found.train.features)
    assert torch.equal(load(name, points=60).train.features, found.train.features[:60])


def test_the_curve_is_the_defined_one() -> None:
    found = load("curve")
    x, y = found.train.features.double().T.tolist()
    for a, b, inside in zip(x, y, found.train.targets.tolist(), strict=True):
        p = 1.6 + 2.4 * (1 - math.cos(math.atan2(b, a) - math.pi / 4)) / 2
        level = (abs(a) ** p + abs(b) ** p) ** (1 / p)
        assert (level < 1) == bool(inside)
        assert abs(level - 1) > 0.00499
        assert max(abs(a), abs(b)) <= 1.5


def test_the_curve_is_uniform() -> None:
    features = load("curve", points=20_000).train.features.numpy()
    counts, _, _ = np.histogram2d(*features.T, bins=6, range=[[-1.5, 1.5]] * 2)
    assert abs(counts / 20_000 - 1 / 36).max() < 5 * math.sqrt(1 / 36 / 20_000)


def test_the_teacher_is_two_lp_units() -> None:
    units = LpLinear(2, 2, 2, order=[p for p, _, _ in TEACHER], bias=False, dtype=torch.float64)
    with torch.no_grad():
        units.weight.copy_(torch.tensor([filters for _, filters, _ in TEACHER]).transpose(0, 1))
        units.center.copy_(torch.tensor([centers for _, _, centers in TEACHER]).T)
    found = load("teacher").train
    level = units(found.features.double()).detach().sum(1) / 1.4
    np.testing.assert_allclose(teacher_level(found.features.double().numpy()), level, rtol=1e-6)
    assert torch.equal((level < 1).long(), found.targets)
    assert (level - 1).abs().min() > 0.00499
    edge = np.linspace(-1.5, 1.5, 100)
    frame = [np.stack(xy, 1) for side in (-1.5, 1.5) for xy in ((edge, 0 * edge + side),)]
    frame += [points[:, ::-1] for points in frame]
    assert teacher_level(np.concatenate(frame)).min() > 1  # the curve is closed


def test_level() -> None:
    # On the axes it is the distance from the centre, whatever the order; it grows in proportion.
    points = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.0, 0.0]])
    np.testing.assert_allclose(curve_level(points), [1, 1, 1, 1, 0])
    some = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    np.testing.assert_allclose(curve_level(3 * some), 3 * curve_level(some))
    diagonal = np.array([[1.0, 1.0], [-1.0, -1.0]])
    np.testing.assert_allclose(curve_level(diagonal), [2 ** (1 / 1.6), 2 ** (1 / 4)])


@pytest.mark.parametrize("name", ["two-gaussians", "three-gaussians"])
def test_the_gaussians_can_be_separated(name: str) -> None:
    """The nearest mean is right for nearly all: the figures show classes that can be separated."""
    found = load(name)
    x, y = found.train.features, found.train.targets
    means = torch.stack([x[y == k].mean(0) for k in range(len(found.classes))])
    assert torch.bincount(y).float().std() <= 1
    wrong = torch.cdist(found.test.features, means).argmin(1) != found.test.targets
    assert wrong.float().mean() < 0.02


def test_golden() -> None:
    """Draws are made from raw words, so they are the same everywhere up to the last bit of cos."""
    points = load("curve", points=2).train.features
    torch.testing.assert_close(points, torch.tensor(GOLDEN), atol=1e-6, rtol=0)


@pytest.mark.parametrize("points", [0, -1, 2.0, True])
def test_wrong_points(points: object) -> None:
    with pytest.raises((TypeError, ValueError), match="points must be a positive integer, got"):
        load("curve", points=points)
