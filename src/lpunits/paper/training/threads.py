"""How many threads a trial should use, of the processors that this process may use.

The choice depends on the machine, the number of jobs and the network, never on the current load:
the last bits of a result depend on the number of threads, and a resumed run must have the same
bits. So several runs together may have more threads than there are processors. The command
``lpunits`` therefore sets ``OMP_WAIT_POLICY=passive``: a thread that waits for others sleeps. By
default it would wait in a loop, on a processor that the others need: four runs at a time took 8 to
10 times as long as one.
"""

import os
from typing import Any

# Below this a second thread costs more than it saves: two threads, which have to meet after every
# small operation, made a network of three units 10 times slower.
PER_THREAD = 4_000_000  # multiplications


def cores() -> int:
    """How many processors this process may use: by affinity, and by the limits of a container."""
    import joblib

    count: int = joblib.cpu_count()
    return count


def threads_for(config: Any, cores: int, jobs: int = 1) -> int:
    """How many threads each of ``jobs`` trials should use on a machine with so many cores.

    A large network gets its share of the cores, a small one a single thread. What counts is
    ``config.multiplications``, about as many as the largest matrix product of a training step has;
    a config that does not say gets its share. ``OMP_NUM_THREADS``, if set, decides alone.
    """
    share = max(1, cores // max(1, jobs))
    chosen = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if chosen.isdecimal() and int(chosen) > 0:
        return int(chosen)
    size = getattr(config, "multiplications", None)
    return share if size is None else min(share, 1 + size // PER_THREAD)
