"""The time to the first result of a process: the import and the first call.

Both are measured in new processes, in turns, with the library already built.
"""

import statistics
import subprocess
import sys

import torch

from timing import BOTH, OURS, Result, Settings, Timing

QUESTION = "first use"
CALL = "first call in a process"
IMPORT = "import of lpunits, torch already there"
AMAX = "torch.amax"
PROGRAM = """
import sys, time
import torch

torch.set_num_threads(int(sys.argv[1]))
start = time.perf_counter()
import lpunits
imported = time.perf_counter() - start
z, p = torch.randn(100, 5, 240, requires_grad=True), torch.full((240,), 3.0, requires_grad=True)
start = time.perf_counter()
u = lpunits.lp_pool(z, p, dim=1) if sys.argv[2] == "ours" else z.amax(1)
u.sum().backward()
print(imported, time.perf_counter() - start)
from lpunits import reference
right = reference.lp_pool(z, p, dim=1) if sys.argv[2] == "ours" else z.max(1).values
torch.testing.assert_close(u, right)
"""


def run(settings: Settings) -> list[Result]:
    """Import lpunits and pool once; and the first maximum, for comparison."""
    taken: dict[str, list[tuple[float, ...]]] = {OURS: [], AMAX: []}
    for _ in range(settings.rounds):
        for name, found in taken.items():
            command = [sys.executable, "-c", PROGRAM, str(torch.get_num_threads()), name]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found.append(tuple(map(float, done.stdout.split())))
    imports, calls = zip(*taken[OURS], strict=True)
    _, others = zip(*taken[AMAX], strict=True)
    return [
        Result(QUESTION, CALL, "(100, 5, 240)", OURS, BOTH, None, _timing(calls)),
        Result(QUESTION, CALL, "(100, 5, 240)", AMAX, BOTH, None, _timing(others)),
        Result(QUESTION, IMPORT, "", OURS, "import", None, _timing(imports)),
    ]


def _timing(taken: tuple[float, ...]) -> Timing:
    return Timing(min(taken), statistics.median(taken), len(taken), calls=1)
