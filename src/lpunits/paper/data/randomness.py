"""Random numbers that are the same on every platform and with every version of numpy.

numpy guarantees that the raw 64-bit words of PCG64 never change, but not its distributions. So the
distributions that the datasets need are computed from the raw words here.
"""

import numpy as np
import numpy.typing as npt


def words(seed: int, *stream: int) -> np.random.PCG64:
    """The uniform 64-bit words of a seed; numbered streams of one seed are independent.

    >>> words(0).random_raw(2)
    array([11749869230777074271,  4976686463289251617], dtype=uint64)
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be an integer of at least 0, got {seed!r}")
    return np.random.PCG64(np.random.SeedSequence(seed, spawn_key=stream))


def permutation(count: int, seed: int) -> npt.NDArray[np.int64]:
    """The numbers from 0 to ``count - 1`` in random order, by sorting ``count`` random words."""
    return np.argsort(words(seed).random_raw(count), kind="stable").astype(np.int64)


def uniform(stream: np.random.PCG64, *shape: int) -> npt.NDArray[np.float64]:
    """Uniform in [0, 1): the upper 53 bits of each word."""
    raw = stream.random_raw(int(np.prod(shape)))
    return np.asarray((raw >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)


def normal(stream: np.random.PCG64, *shape: int) -> npt.NDArray[np.float64]:
    """Standard normal numbers from two words each, by the Box-Muller method."""
    u = uniform(stream, *shape, 2)
    return np.asarray(np.sqrt(-2 * np.log(1 - u[..., 0])) * np.cos(2 * np.pi * u[..., 1]))
