"""Time and memory of generating 100,000 Pentomino images: at most 15 s on one core, 500 MB.

OMP_NUM_THREADS=1 python benchmarks/pentomino.py
"""

import resource
import sys
import time

from lpunits.paper.data.pentomino import generate, unpack
from lpunits.paper.data.sources import sha256

COUNT = 100_000


def peak() -> float:
    """The most memory that this process ever had, in MB."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def main() -> None:
    before = peak()
    start = time.perf_counter()
    images, labels = generate(COUNT, 0)
    generated = time.perf_counter() - start
    packed = peak()
    start = time.perf_counter()
    pixels = unpack(images)
    unpacked = time.perf_counter() - start

    assert images.shape == (COUNT, 512)
    assert pixels.shape == (COUNT, 4096)
    assert 0.49 < labels.mean() < 0.51
    print(f"{COUNT} images, sha256 {sha256(images.tobytes())[:16]}...")
    print(f"generated, packed: {generated:6.2f} s  {packed - before:6.0f} MB")
    print(f"unpacked to uint8: {unpacked:6.2f} s  {peak() - before:6.0f} MB in all")
    print(f"the interpreter with torch had {before:.0f} MB before, the peak is {peak():.0f} MB")


if __name__ == "__main__":
    main()
