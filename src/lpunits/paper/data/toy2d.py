"""The 2-D sets of the paper's Section 4: two and three Gaussian classes, and closed curves.

The paper shows them but does not define them. The Gaussians are ours, chosen so that what the paper
shows can be seen: two classes that a line can (almost) separate, and three of which an Lp unit can
enclose any. The curve bounds a superellipse whose order changes with the direction. The teacher,
a second curve, is one that two Lp units can draw exactly.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from torch import Tensor

from lpunits.paper.data import randomness
from lpunits.paper.data.dataset import Dataset, Info, Split, split
from lpunits.paper.data.sources import Arrays, arrays_sha256

Points = npt.NDArray[np.float64]

# Per class: the mean, and the matrix that standard normal points are multiplied with.
TWO = (((-1.5, -0.5), ((0.7, 0.3), (0.0, 0.4))), ((1.5, 0.5), ((0.4, 0.0), (-0.3, 0.7))))
THREE = (
    ((0.0, 2.0), ((0.7, 0.0), (0.0, 0.4))),
    ((-1.7, -1.0), ((0.4, 0.0), (0.3, 0.6))),
    ((1.7, -1.0), ((0.4, 0.0), (-0.3, 0.6))),
)


def curve_level(points: Points) -> Points:
    r"""The level of points of the plane: below 1 inside the curve, above 1 outside.

    .. math:: (|x|^p + |y|^p)^{1/p}, \qquad p(\theta) = 1.6 + 2.4 (1 - \cos(\theta - \pi/4)) / 2

    where :math:`\theta` is the direction of the point, so the order goes from 1.6 to 4 and back.

    >>> curve_level(np.array([[0.5, 0.0], [0.0, -2.0]]))
    array([0.5, 2. ])
    """
    x, y = points[:, 0], points[:, 1]
    p = 1.6 + 2.4 * (1 - np.cos(np.arctan2(y, x) - np.pi / 4)) / 2
    return np.asarray((abs(x) ** p + abs(y) ** p) ** (1 / p))


# The teacher's units: the order, the filters, the centres.
TEACHER = (
    (1.05, ((0.8, 0.5), (-0.5, 0.8)), (0.15, -0.1)),
    (12.0, ((1.1, 0.2), (-0.1, 0.9)), (-0.2, 0.15)),
)


def teacher_level(points: Points) -> Points:
    r"""The mean of two Lp units of two filters, with the orders 1.05 and 12, divided by 0.7.

    The curve where it is 1 is smooth and convex, and nearly has corners where those of the first
    unit, a diamond, meet the sides of the second, a box.

    >>> teacher_level(np.array([[0.0, 0.0], [2.0, 0.0]])).round(3)
    array([0.225, 2.459])
    """
    total = np.zeros(len(points))
    for p, filters, centers in TEACHER:
        z = abs(points @ np.array(filters).T - centers)
        total += np.mean(z**p, axis=1) ** (1 / p)
    return total / 2 / 0.7


def _inside(
    level: Callable[[Points], Points], count: int, *seed: int
) -> tuple[Points, npt.NDArray[np.int64]]:
    """Points uniform on [-1.5, 1.5]^2; those with a level within .005 of the curve are dropped."""
    stream = randomness.words(*seed)
    points = np.empty((0, 2))
    while len(points) < count:
        drawn = 3 * randomness.uniform(stream, 1024, 2) - 1.5
        points = np.concatenate([points, drawn[abs(level(drawn) - 1) >= 0.005]])
    points = points[:count]
    return points, (level(points) < 1).astype(np.int64)


def _gaussians(
    classes: tuple[tuple[tuple[float, ...], tuple[tuple[float, ...], ...]], ...],
    count: int,
    *seed: int,
) -> tuple[Points, npt.NDArray[np.int64]]:
    """Points of each class in turn, so that the classes are as even as can be."""
    labels = np.arange(count) % len(classes)
    means, shapes = np.array([m for m, _ in classes]), np.array([s for _, s in classes])
    z = randomness.normal(randomness.words(*seed), count, 2)
    return means[labels] + np.einsum("ni,nij->nj", z, shapes[labels]), labels


def _load(name: str, points: int, seed: int) -> Dataset[Tensor]:
    if isinstance(points, bool) or not isinstance(points, int) or points < 1:
        raise ValueError(f"points must be a number of at least 1, got {points!r}")
    arrays: Arrays = {}
    parts: list[Split[Tensor]] = []
    for k in range(3):
        values, labels = DRAW[name](points, seed, k)
        features = values.astype(np.float32)
        arrays |= {f"features{k}": features, f"targets{k}": labels}
        parts.append(split(features, labels))
    return INFOS[name].dataset(
        parts[0],
        parts[1],
        parts[2],
        classes=CLASSES[name],
        shape=(2,),
        checksum=arrays_sha256(arrays),
    )


def load_two_gaussians(*, points: int = 1000, seed: int = 0) -> Dataset[Tensor]:
    """As many float32 points in each split, which have different streams of one seed."""
    return _load("two-gaussians", points, seed)


def load_three_gaussians(*, points: int = 1500, seed: int = 0) -> Dataset[Tensor]:
    """As many float32 points in each split, which have different streams of one seed."""
    return _load("three-gaussians", points, seed)


def load_teacher(*, points: int = 5000, seed: int = 0) -> Dataset[Tensor]:
    """As many float32 points in each split, which have different streams of one seed."""
    return _load("teacher", points, seed)


def load_curve(*, points: int = 5000, seed: int = 0) -> Dataset[Tensor]:
    """As many float32 points in each split, which have different streams of one seed."""
    return _load("curve", points, seed)


DRAW: dict[str, Callable[..., tuple[Points, npt.NDArray[np.int64]]]] = {
    "two-gaussians": partial(_gaussians, TWO),
    "three-gaussians": partial(_gaussians, THREE),
    "curve": partial(_inside, curve_level),
    "teacher": partial(_inside, teacher_level),
}
CLASSES = {
    "two-gaussians": ("first", "second"),
    "three-gaussians": ("first", "second", "third"),
    "curve": ("outside", "inside"),
    "teacher": ("outside", "inside"),
}
_info = partial(Info, size="generated", licence="no rights claimed", source="lpunits")
TWO_GAUSSIANS = _info(
    name="two-gaussians",
    about="points of the plane, two Gaussian classes: 1,000 / 1,000 / 1,000",
    load=load_two_gaussians,
)
THREE_GAUSSIANS = _info(
    name="three-gaussians",
    about="points of the plane, three Gaussian classes: 1,500 / 1,500 / 1,500",
    load=load_three_gaussians,
)
CURVE = _info(
    name="curve",
    about="points of the plane inside and outside a closed curve: 5,000 / 5,000 / 5,000",
    load=load_curve,
)
TEACHER_SET = _info(
    name="teacher",
    about="points of the plane inside and outside a sum of two Lp units: 5,000 / 5,000 / 5,000",
    load=load_teacher,
)
INFOS = {info.name: info for info in (TWO_GAUSSIANS, THREE_GAUSSIANS, CURVE, TEACHER_SET)}
