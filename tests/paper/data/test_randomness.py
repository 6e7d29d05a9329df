import numpy as np
import pytest

from lpunits.paper.data.randomness import normal, permutation, uniform, words


def test_words_are_those_that_numpy_promises() -> None:
    """PCG64's raw words for a SeedSequence are fixed by numpy's policy (NEP 19)."""
    assert words(0).random_raw(2).tolist() == [11749869230777074271, 4976686463289251617]
    streams = [words(0), words(0, 0), words(0, 1), words(1), words(1, 0), words(2**32, 0)]
    assert len({stream.random_raw() for stream in streams}) == 6


def test_permutation() -> None:
    order = permutation(1000, 3)
    assert sorted(order.tolist()) == list(range(1000))
    np.testing.assert_array_equal(order, permutation(1000, 3))
    assert (order != permutation(1000, 4)).any()


def test_uniform_and_normal() -> None:
    u = uniform(words(0), 1000, 100)
    assert u.shape == (1000, 100)
    assert (u.min() >= 0, u.max() < 1) == (True, True)
    assert np.quantile(u, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.005)
    z = normal(words(0), 1000, 100)
    assert (z.mean(), z.std()) == (pytest.approx(0, abs=0.02), pytest.approx(1, abs=0.02))
    assert np.quantile(z, [0.1587, 0.9772]) == pytest.approx([-1, 2], abs=0.03)
    assert np.isfinite(z).all()
    # A shorter sequence is the beginning of a longer one.
    np.testing.assert_array_equal(normal(words(0), 5, 100), z[:5])


@pytest.mark.parametrize("seed", [-1, 1.0, True, "0", None])
def test_wrong_seeds(seed: object) -> None:
    with pytest.raises(ValueError, match="seed must be an integer of at least 0, got"):
        words(seed)  # type: ignore[arg-type]
