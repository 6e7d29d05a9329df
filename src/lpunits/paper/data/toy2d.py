"""The 2-D sets of the paper's Section 4: two and three Gaussian classes, and closed curves.

The paper shows them but does not define them, so these are ours. A line can almost separate the two
Gaussian classes, and one Lp unit can enclose any one of the three. The curve is a superellipse
whose order changes with the direction. The teacher is a second curve, which two Lp units can
represent exactly.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from torch import Tensor

from lpunits.arguments import check_sizes
from lpunits.paper.data import randomness
from lpunits.paper.data.dataset import Dataset, Info, split
from lpunits.paper.data.sources import Arrays, arrays_sha256

Points = npt.NDArray[np.float64]
Draw = Callable[..., tuple[Points, npt.NDArray[np.int64]]]  # (count, *seed) -> points, labels

# Per class: the mean, and the matrix that multiplies standard normal points.
TWO = (((-1.5, -0.5), ((0.7, 0.3), (0.0, 0.4))), ((1.5, 0.5), ((0.4, 0.0), (-0.3, 0.7))))
THREE = (
    ((0.0, 2.0), ((0.7, 0.0), (0.0, 0.4))),
    ((-1.7, -1.0), ((0.4, 0.0), (0.3, 0.6))),
    ((1.7, -1.0), ((0.4, 0.0), (-0.3, 0.6))),
)


def curve_level(points: Points) -> Points:
    r"""The level of points in the plane: below 1 inside the curve, above 1 outside.

    .. math:: (|x|^p + |y|^p)^{1/p}, \qquad p(\theta) = 1.6 + 2.4 (1 - \cos(\theta - \pi/4)) / 2

    where :math:`\theta` is the direction of the point, so the order varies between 1.6 and 4.

    >>> curve_level(np.array([[0.5, 0.0], [0.0, -2.0]]))
    array([0.5, 2. ])
    """
    x, y = points[:, 0], points[:, 1]
    p = 1.6 + 2.4 * (1 - np.cos(np.arctan2(y, x) - np.pi / 4)) / 2
    return np.asarray((abs(x) ** p + abs(y) ** p) ** (1 / p))


# The order, filters and centres of each of the teacher's units.
TEACHER = (
    (1.05, ((0.8, 0.5), (-0.5, 0.8)), (0.15, -0.1)),
    (12.0, ((1.1, 0.2), (-0.1, 0.9)), (-0.2, 0.15)),
)


def teacher_level(points: Points) -> Points:
    r"""The mean of two Lp units of two filters, with the orders 1.05 and 12, divided by 0.7.

    The curve of level 1 is smooth and convex. It nearly has corners, since the first unit is nearly
    a diamond and the second nearly a box.

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
    """Uniform points on [-1.5, 1.5]^2, without those whose level is within .005 of 1."""
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
    """Points of each class in turn, so that the classes have equal sizes."""
    labels = np.arange(count) % len(classes)
    means, shapes = np.array([m for m, _ in classes]), np.array([s for _, s in classes])
    z = randomness.normal(randomness.words(*seed), count, 2)
    return means[labels] + np.einsum("ni,nij->nj", z, shapes[labels]), labels


def _info(name: str, about: str, size: int, classes: tuple[str, ...], draw: Draw) -> Info:
    def load(*, points: int = size, seed: int = 0) -> Dataset[Tensor]:
        """As many float32 points in each split, from independent random streams of one seed."""
        check_sizes(points=points)
        arrays: Arrays = {}
        for k in range(3):
            values, arrays[f"targets{k}"] = draw(points, seed, k)
            arrays[f"features{k}"] = values.astype(np.float32)
        return info.dataset(
            *(split(arrays[f"features{k}"], arrays[f"targets{k}"]) for k in range(3)),
            classes=classes,
            shape=(2,),
            checksum=arrays_sha256(arrays),
        )

    about = f"points of the plane, {about}: {size:,} / {size:,} / {size:,}"
    info = Info(name, about, "generated", "no rights claimed", "lpunits", load)
    return info


SIDES = ("outside", "inside")
TWO_GAUSSIANS = _info(
    "two-gaussians", "two Gaussian classes", 1000, ("first", "second"), partial(_gaussians, TWO)
)
THREE_GAUSSIANS = _info(
    "three-gaussians",
    "three Gaussian classes",
    1500,
    ("first", "second", "third"),
    partial(_gaussians, THREE),
)
CURVE = _info(
    "curve", "inside and outside a closed curve", 5000, SIDES, partial(_inside, curve_level)
)
TEACHER_SET = _info(
    "teacher",
    "inside and outside a sum of two Lp units",
    5000,
    SIDES,
    partial(_inside, teacher_level),
)
