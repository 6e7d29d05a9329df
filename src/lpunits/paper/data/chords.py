"""Generated polyphonic music that needs no download: random chord progressions.

A piece has a major or minor key. Its chords follow one another as in simple tonal harmony, each for
2 or 4 steps. The bass plays the root of the chord, the three middle voices its triad, each moving
as little as possible. The melody is a random walk on the scale and jumps to a note of the chord
when that changes. The chords and the melody are random; everything else can be learned.
"""

import numpy as np
from torch import Tensor

from lpunits.arguments import check_sizes
from lpunits.paper.data import randomness
from lpunits.paper.data.dataset import Dataset, Info
from lpunits.paper.data.music import LOWEST, SPLITS, Roll, music_dataset, pack

SCALES = ((0, 2, 4, 5, 7, 9, 11), (0, 2, 3, 5, 7, 8, 11))  # major, harmonic minor
# The degrees of the scale, from 0, that may follow each degree, with equal probability.
NEXT = {0: (3, 4, 5, 1), 1: (4,), 3: (4, 0, 1), 4: (0, 0, 5), 5: (1, 3)}
MELODY = 72  # the note around which the melody walks
MIDDLE = 60


def generate(seed: int, part: int, pieces: int) -> list[Roll]:
    """Piano rolls of one split: 0 train, 1 valid, 2 test."""
    stream = randomness.words(seed, part)
    return [_piece(stream) for _ in range(pieces)]


def _piece(stream: np.random.PCG64) -> Roll:
    def draw(count: int) -> int:
        return int(randomness.uniform(stream, 1)[0] * count)

    scale, tonic, bars = SCALES[draw(2)], draw(12), 8 + draw(9)
    frames: list[set[int]] = []
    degree, melody, middle = 0, 7 + draw(3), [MIDDLE] * 3
    while len(frames) < 4 * bars:
        triad = [(tonic + scale[(degree + step) % 7]) % 12 for step in (0, 2, 4)]
        middle = [_nearest(note, old) for note, old in zip(triad, middle, strict=True)]
        for step in range(2 + 2 * draw(2)):
            melody = min(max(melody + draw(3) - 1, 3), 11)
            note = tonic + scale[melody % 7] + 12 * (melody // 7) + MELODY - 18
            if step == 0:
                note = _nearest(triad[draw(3)], note)
            frames.append({36 + triad[0], *middle, note})
        degree = NEXT[degree][draw(len(NEXT[degree]))]
    roll = np.zeros((len(frames), 88), np.uint8)
    for t, notes in enumerate(frames):
        roll[t, [note - LOWEST for note in notes]] = 1
    return roll


def _nearest(pitch: int, note: int) -> int:
    """The note of a pitch class that is nearest to another note, between F3 and A6."""
    octaves = [n for n in range(53, 94) if n % 12 == pitch % 12]
    return min(octaves, key=lambda n: (abs(n - note) + abs(n - MIDDLE) / 50, n))


def load(
    *, train: int = 120, valid: int = 40, test: int = 40, seed: int = 0
) -> Dataset[list[Tensor]]:
    """As many generated pieces per split as asked for."""
    check_sizes(train=train, valid=valid, test=test)
    counts = zip(SPLITS, (train, valid, test), strict=True)
    return music_dataset(CHORDS, pack({p: generate(seed, k, n) for k, (p, n) in enumerate(counts)}))


CHORDS = Info(
    name="chords",
    about="generated chord progressions, 88-key piano rolls: 120 / 40 / 40 pieces",
    size="generated",
    licence="no rights claimed",
    source="lpunits",
    load=load,
)
