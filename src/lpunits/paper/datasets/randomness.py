"""Seeded randomness that is the same for ever and on every platform.

numpy promises that the raw 64-bit words of PCG64 never change, but not what its distributions make
of them. So the few draws that the datasets need are made from the raw words here.
"""

import numpy as np
import numpy.typing as npt


def words(*seed: int) -> np.random.PCG64:
    """The stream of uniform 64-bit words that belongs to the seed: a number, or several in order.

    >>> words(0, 1).random_raw(2)
    array([...], dtype=uint64)
    """
    for number in seed:
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ValueError(f"seed must be an integer of at least 0, got {number!r}")
    return np.random.PCG64(np.random.SeedSequence(seed))


def permutation(count: int, *seed: int) -> npt.NDArray[np.int64]:
    """The numbers from 0 to ``count - 1`` in random order: the order of as many random words."""
    return np.argsort(words(*seed).random_raw(count), kind="stable").astype(np.int64)


def uniform(stream: np.random.PCG64, *shape: int) -> npt.NDArray[np.float64]:
    """Uniform in [0, 1): the upper 53 bits of each word."""
    raw = stream.random_raw(int(np.prod(shape)))
    return np.asarray((raw >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)


def normal(stream: np.random.PCG64, *shape: int) -> npt.NDArray[np.float64]:
    """Standard normal, by Box and Muller."""
    radius = np.sqrt(-2 * np.log(1 - uniform(stream, *shape)))
    return np.asarray(radius * np.cos(2 * np.pi * uniform(stream, *shape)))
