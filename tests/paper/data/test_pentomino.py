import numpy as np
import pytest
import torch

from lpunits.paper.data import load, pentomino
from lpunits.paper.data.pentomino import (
    GLYPHS,
    RADICES,
    SCENES,
    SPRITES,
    WORD_LIMIT,
    collides,
    decode,
    generate,
    unpack,
)
from lpunits.paper.data.randomness import words
from lpunits.paper.data.sources import sha256

GOLDEN = (
    "8884a6926ccdf29ee73aff0e139a345c8d57b6b8dfb28ce0327bf987da6a5115",
    "14f9d6607f388a5192ed1807e6f0689ec9f9a42ebd4f50aa685f9f58a24204a8",
)


def grid(sprite: str) -> list[str]:
    return sprite.split("/")


def clockwise(rows: list[str]) -> list[str]:
    """A quarter turn: the first column, read upwards, becomes the first row."""
    return ["".join(row[x] for row in reversed(rows)) for x in range(len(rows[0]))]


def slow_scene(number: int) -> tuple[set[tuple[int, int]], int, bool]:
    """The pixels (y, x), the label, and whether it collides: the definition, word for word."""
    digits = []
    for radix in RADICES:
        number, digit = divmod(number, radix)
        digits.append(digit)
    different, b, other = digits[:3]
    a = [c for c in range(10) if c != b][other]
    pixels: set[tuple[int, int]] = set()
    masked: set[tuple[int, int]] = set()
    collision = False
    for i, kind in enumerate([a if different else b, b, b]):
        rows = grid(SPRITES[kind])
        for _ in range(digits[3 + i]):
            rows = clockwise(rows)
        scale = digits[6 + i] + 1
        top, left = 8 * (digits[9 + i] // 8), 8 * (digits[9 + i] % 8)
        cells = {(y, x) for y, row in enumerate(rows) for x, c in enumerate(row) if c == "x"}
        grown = {(y + dy, x + dx) for y, x in cells for dy in (-1, 0, 1) for dx in (-1, 0, 1)}

        def scaled(cells: set[tuple[int, int]]) -> set[tuple[int, int]]:
            steps = range(scale)  # noqa: B023
            return {
                (top + scale * y + v, left + scale * x + h)  # noqa: B023
                for y, x in cells
                for v in steps
                for h in steps
            }

        mask = scaled(grown)
        collision = collision or bool(mask & masked)
        masked |= mask
        pixels |= scaled(cells)
    return pixels, different, collision


def test_the_classes() -> None:
    for sprite, mirrored in zip(SPRITES[:5], SPRITES[5:], strict=True):
        assert [row[::-1] for row in grid(sprite)] == grid(mirrored)
    turned = []
    for sprite in SPRITES:
        rows, turns = grid(sprite), set()
        assert sum(row.count("x") for row in rows) == 5
        for _ in range(4):
            turns.add("/".join(rows))
            rows = clockwise(rows)
        assert "/".join(rows) == sprite
        assert len(turns) == 4
        turned.append(turns)
    # No turn makes one class another: a reflection is no rotation.
    assert len(set.union(*turned)) == 40


def test_glyphs_fit_their_block() -> None:
    pixels = np.unpackbits(GLYPHS, axis=1).sum(1)
    assert pixels.tolist() == [5, 20] * 40
    assert len(np.unique(GLYPHS, axis=0)) == 80
    corner = GLYPHS.reshape(80, 8)
    assert (corner[:, 0] > 0).all()  # it starts in the first row
    assert (np.bitwise_or.reduce(corner, axis=1) & 0x80).all()  # and in the first column


def test_images_labels_and_collisions_are_those_of_the_definition() -> None:
    raw = words(5).random_raw(700)
    raw[:2] = [0, SCENES - 1]
    different, looks, blocks = decode(raw)
    hits = collides(looks, blocks)
    for number, label, hit in zip(raw.tolist(), different, hits, strict=True):
        _, expected, collision = slow_scene(number % SCENES)
        assert (label, hit) == (expected, collision)
    images, labels = generate(300, 5)
    kept = [n for n in words(5).random_raw(700).tolist() if not slow_scene(n % SCENES)[2]]
    for number, image, label in zip(kept, unpack(images), labels, strict=False):
        pixels, expected, _ = slow_scene(number % SCENES)
        assert {(i // 64, i % 64) for i in np.flatnonzero(image).tolist()} == pixels
        assert label == expected


def test_crowded_scenes_collide_as_defined() -> None:
    """Every pair of looks, on the same and on neighbouring blocks, against the definition."""
    rng = np.random.default_rng(0)
    for _ in range(1500):
        digits = [int(rng.integers(radix)) for radix in RADICES]
        digits[9:] = [0, int(rng.choice([0, 1, 2, 8, 9, 10, 16])), 63]
        number = 0
        for radix, digit in zip(reversed(RADICES), reversed(digits), strict=True):
            number = number * radix + digit
        _, looks, blocks = decode(np.array([number], np.uint64))
        assert collides(looks, blocks)[0] == slow_scene(number)[2]


def test_golden() -> None:
    """The images of a seed never change, on no platform and with no version of numpy."""
    images, labels = generate(1000, 0, 0)
    found = sha256(images.tobytes()), sha256(labels.tobytes())
    assert found == GOLDEN


def test_a_smaller_set_is_the_beginning_of_a_larger_one() -> None:
    images, labels = generate(40_000, 3)
    for count in (1, 16_384, 20_000):
        fewer, labels_of_fewer = generate(count, 3)
        np.testing.assert_array_equal(fewer, images[:count])
        np.testing.assert_array_equal(labels_of_fewer, labels[:count])


def test_statistics() -> None:
    count = 200_000
    raw = words(1).random_raw(count)
    assert 2**64 - WORD_LIMIT < SCENES
    different, looks, blocks = decode(raw)
    rejected = collides(looks, blocks)
    assert 0.09 < rejected.mean() < 0.105
    for values, radix in (
        (different, 2),
        *((looks[:, i] // 8, 10) for i in range(3)),
        *((looks[:, i] // 2 % 4, 4) for i in range(3)),
        *((looks[:, i] % 2, 2) for i in range(3)),
        *((blocks[:, i], 64) for i in range(3)),
    ):
        shares = np.bincount(values, minlength=radix) / count
        assert abs(shares - 1 / radix).max() < 5 * np.sqrt(1 / radix / count)
    classes = looks // 8
    assert (classes[:, 1] == classes[:, 2]).all()
    np.testing.assert_array_equal(classes[:, 0] != classes[:, 1], different)
    pairs = np.bincount((10 * classes[:, 0] + classes[:, 1])[different == 1], minlength=100)
    assert (pairs.reshape(10, 10).diagonal() == 0).all()
    assert np.count_nonzero(pairs) == 90


def test_load() -> None:
    found = load("pentomino", train=3000, valid=500, test=700)
    splits = found.train, found.valid, found.test
    assert [tuple(s.features.shape) for s in splits] == [(3000, 4096), (500, 4096), (700, 4096)]
    assert found.train.features.dtype == torch.uint8
    assert found.train.targets.dtype == torch.int64
    assert found.train.features.max() == 1
    sizes = found.train.features.sum(1, dtype=torch.int64)
    assert set(sizes.tolist()) == {15, 30, 45, 60}  # three sprites of 5 or 20 pixels each
    assert found.train.targets.float().mean().item() == pytest.approx(0.5, abs=0.05)
    assert not torch.equal(found.train.features[:500], found.valid.features)
    reloaded = load("pentomino", train=3000, valid=500, test=700)  # from the cache
    assert reloaded.checksum == found.checksum
    assert torch.equal(reloaded.test.features, found.test.features)
    other = load("pentomino", train=3000, valid=500, test=700, seed=1)
    assert not torch.equal(other.train.features, found.train.features)


def test_defaults_are_the_published_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def stop(name: str, key: str, build: object) -> None:
        asked.append(key)
        raise KeyboardInterrupt

    monkeypatch.setattr(pentomino, "cached", stop)
    with pytest.raises(KeyboardInterrupt):
        load("pentomino")
    assert asked == ["1 (80000, 10000, 20000) 0"]


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "many"])
def test_wrong_sizes(count: object) -> None:
    with pytest.raises((TypeError, ValueError), match="valid must be a positive integer, got"):
        load("pentomino", valid=count)
    with pytest.raises(ValueError, match="seed must be an integer of at least 0, got"):
        load("pentomino", train=1, valid=1, test=1, seed=-1)
