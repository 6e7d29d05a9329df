"""How long each dataset takes to load, the first time and later, if its files are here.

    LPUNITS_DATA=... python benchmarks/data.py

The first load parses the source into a temporary cache folder. Nothing else should be running.
"""

import os
import tempfile
import time

from lpunits.paper.data import DATASETS, info, load

# Name -> the size of each split, and the seconds that a load from the cache may take.
EXPECTED = {
    "mnist": ((50_000, 10_000, 10_000), 0.3),
    "covertype": ((501_012, 40_000, 40_000), 1.0),
    "nottingham": ((694, 173, 170), 0.5),
    "jsb": ((229, 76, 77), 0.5),
    "musedata": ((524, 135, 124), 0.5),
    "fer2013": ((28_709, 3_589, 3_589), None),
    "pentomino": ((80_000, 10_000, 20_000), None),
    "digits": ((1_197, 300, 300), None),
    "curve": ((5_000, 5_000, 5_000), None),
}


def seconds(name: str, sizes: tuple[int, ...]) -> float:
    start = time.perf_counter()
    found = load(name)
    taken = time.perf_counter() - start
    assert tuple(map(len, (found.train, found.valid, found.test))) == sizes
    return taken


def main() -> None:
    print(f"{'dataset':12} {'first':>8} {'later (best of 5, worst)':>26} {'at most':>8}")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["LPUNITS_CACHE"] = cache
        for name in DATASETS:
            if name in EXPECTED and info(name).present:
                sizes, limit = EXPECTED[name]
                first = seconds(name, sizes)
                later = sorted(seconds(name, sizes) for _ in range(5))
                print(
                    f"{name:12} {first:6.2f} s {later[0]:16.3f} s {later[-1]:5.2f} s "
                    f"{f'{limit:.1f} s' if limit else '':>8}"
                )


if __name__ == "__main__":
    main()
