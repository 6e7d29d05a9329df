"""Pentomino: are the three sprites of a 64 x 64 image all of one class, or is one different?

The task of Gulcehre and Bengio (2013), generated. An image has 8 x 8 blocks of 8 x 8 pixels and
exactly three sprites. Each has its own rotation and scale, and starts at the corner of a block. Two
sprites collide if their masks overlap, where a mask is the sprite dilated by one pixel before it is
scaled. Then the whole scene is drawn again, label included.

A scene is a number below :data:`SCENES`. Its digits, the lowest first, are the random choices: the
same/different flag, the class b, which of the nine other classes a is, three rotations, three
scales, three blocks. So one word of 64 random bits gives one scene, and a seed gives the same
images on every platform.

A sprite fits into its block of 8 x 8 pixels, which are 8 bytes of the packed image.
"""

from math import prod

import numpy as np
import numpy.typing as npt
from scipy.ndimage import binary_dilation
from torch import Tensor

from lpunits.arguments import check_sizes
from lpunits.paper.data import randomness
from lpunits.paper.data.dataset import Dataset, Info, split
from lpunits.paper.data.sources import arrays_sha256, cached

Bytes = npt.NDArray[np.uint8]

SPRITES = (
    "x./x./x./xx",
    ".x/.x/xx/x.",
    "xx/xx/x.",
    ".xx/xx./.x.",
    ".x/xx/.x/.x",
    # The mirror images of the five above are classes of their own.
    ".x/.x/.x/xx",
    "x./x./xx/.x",
    "xx/xx/.x",
    "xx./.xx/.x.",
    "x./xx/x./x.",
)
RADICES = (2, 10, 9, *(4, 4, 4), *(2, 2, 2), *(64, 64, 64))
SCENES = prod(RADICES)
# Larger words are not used, so that every scene is equally likely.
WORD_LIMIT = 2**64 - 2**64 % SCENES


def load(
    *, train: int = 80_000, valid: int = 10_000, test: int = 20_000, seed: int = 0
) -> Dataset[Tensor]:
    """The published task: uint8 rows of 4096 pixels, 0 or 1; label 1 if one sprite is different.

    The features stay uint8, a quarter of the memory of float32; convert a batch with ``.float()``.
    A smaller set of the same seed is the beginning of a larger one.

    Args:
        train: The number of training images.
        valid: The number of validation images.
        test: The number of test images.
        seed: The random seed; each split has its own random stream.
    """
    check_sizes(train=train, valid=valid, test=test)
    counts = (train, valid, test)
    arrays = cached("pentomino", f"1 {counts} {seed}", lambda: _generate_all(counts, seed))
    return PENTOMINO.dataset(
        *(split(unpack(arrays[f"images{k}"]), arrays[f"labels{k}"]) for k in range(3)),
        classes=("same", "different"),
        shape=(64, 64),
        checksum=arrays_sha256(arrays),
    )


def _generate_all(counts: tuple[int, ...], seed: int) -> dict[str, Bytes]:
    arrays = {}
    for k, count in enumerate(counts):
        arrays[f"images{k}"], arrays[f"labels{k}"] = generate(count, seed, k)
    return arrays


def generate(count: int, *seed: int) -> tuple[Bytes, Bytes]:
    """``count`` images, packed to rows of 512 bytes, and their labels (0: same, 1: different).

    >>> images, labels = generate(5, 0)
    >>> images.shape, unpack(images).shape, labels
    ((5, 512), (5, 4096), array([...], dtype=uint8))
    """
    stream = randomness.words(*seed)
    images = np.zeros((count, 8, 8, 8), np.uint8)  # the block's row, the pixel's row in it, column
    labels = np.empty(count, np.uint8)
    done = 0
    while done < count:
        # Words are used in order, so the size of the chunks does not affect the result.
        raw = stream.random_raw(16384)
        different, looks, blocks = decode(raw[raw < np.uint64(WORD_LIMIT)])
        keep = np.flatnonzero(~collides(looks, blocks))[: count - done]
        rows = np.arange(done, done + len(keep))
        for look, block in zip(looks[keep].T, blocks[keep].T, strict=True):
            images[rows, block // 8, :, block % 8] = GLYPHS[look]
        labels[rows] = different[keep]
        done += len(keep)
    return images.reshape(count, 512), labels


def unpack(images: Bytes) -> Bytes:
    """Packed images as rows of 4096 pixels, 0 or 1, row by row from the top left."""
    return np.unpackbits(images, axis=1)


def decode(
    scenes: npt.NDArray[np.uint64],
) -> tuple[Bytes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The flags (n,), the looks (n, 3) and the blocks (n, 3) of numbered scenes.

    A *look* is a sprite as it is drawn: 8 class + 2 rotation + (scale - 1).
    """
    digits = []
    for radix in RADICES:
        scenes, digit = np.divmod(scenes, np.uint64(radix))
        digits.append(digit.astype(np.int64))
    different, b, other = digits[:3]
    a = other + (other >= b)  # any class but b
    classes = np.stack([np.where(different, a, b), b, b], 1)
    rotations, scales, blocks = (np.stack(digits[i : i + 3], 1) for i in (3, 6, 9))
    return different.astype(np.uint8), 8 * classes + 2 * rotations + scales, blocks


def collides(looks: npt.NDArray[np.int64], blocks: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether the masks of any two of the three sprites overlap, for each scene."""
    hit = np.zeros(len(looks), bool)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        down = blocks[:, j] // 8 - blocks[:, i] // 8
        right = blocks[:, j] % 8 - blocks[:, i] % 8
        near = (abs(down) < 2) & (abs(right) < 2)  # a mask extends by at most 2 pixels
        hit[near] |= OVERLAPS[looks[near, i], looks[near, j], down[near] + 1, right[near] + 1]
    return hit


def _draw(look: int) -> tuple[Bytes, Bytes]:
    """The sprite of a look in its block (8 x 8), and its mask on 3 x 3 blocks (24 x 24)."""
    rows = SPRITES[look // 8].split("/")
    sprite = np.rot90([[c == "x" for c in row] for row in rows], -(look // 2 % 4))  # clockwise
    framed = np.zeros((6, 6), bool)
    framed[1 : 1 + sprite.shape[0], 1 : 1 + sprite.shape[1]] = sprite
    scale = look % 2 + 1
    grow = np.ones((scale, scale), bool)
    block, mask = np.zeros((8, 8), np.uint8), np.zeros((24, 24), np.uint8)
    block[: 4 * scale, : 4 * scale] = np.kron(framed[1:5, 1:5], grow)
    start, end = 8 - scale, 8 + 5 * scale
    mask[start:end, start:end] = np.kron(binary_dilation(framed, np.ones((3, 3), bool)), grow)
    return block, mask


def _overlaps(masks: Bytes) -> npt.NDArray[np.bool_]:
    """Whether look j, y - 1 blocks below and x - 1 right of look i, overlaps it: (i, j, y, x)."""
    at_home = np.pad(masks, ((0, 0), (8, 8), (8, 8))).reshape(80, -1).astype(np.int64)
    table = np.empty((80, 80, 3, 3), bool)
    for y in range(3):
        for x in range(3):
            moved = np.pad(masks, ((0, 0), (8 * y, 16 - 8 * y), (8 * x, 16 - 8 * x)))
            table[:, :, y, x] = at_home @ moved.reshape(80, -1).T > 0
    return table


_DRAWN = [_draw(look) for look in range(80)]
GLYPHS = np.packbits(np.stack([block for block, _ in _DRAWN]), axis=2)[:, :, 0]
OVERLAPS = _overlaps(np.stack([mask for _, mask in _DRAWN]))

PENTOMINO = Info(
    name="pentomino",
    about="three sprites in 64 x 64 pixels, is one different? 80,000 / 10,000 / 20,000",
    size="generated",
    licence="no rights claimed",
    source="C. Gulcehre, Y. Bengio: Knowledge Matters (2013), https://arxiv.org/abs/1301.4083",
    load=load,
)
