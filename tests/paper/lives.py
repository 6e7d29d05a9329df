"""A nursery of short lives: forks a process for each command line that it is given.

It has loaded beforehand what takes a process seconds, so that a life is not all imports. For each
line (the tokens, as JSON) it answers with the number of the process, then with its exit code.
"""

import json
import os
import sys

import torch
import torch._dynamo  # the first optimiser of a process would import it

from lpunits import LpLinear, cli
from lpunits.paper import datasets, experiments, run, search  # noqa: F401

if __name__ == "__main__":
    torch.set_num_threads(1)
    LpLinear(4, units=2, filters=2)(torch.randn(3, 4)).sum().backward()
    datasets.load("digits")
    experiments.get("mnist")
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
            try:
                cli.main(json.loads(line))
            except SystemExit as end:
                os._exit(end.code if isinstance(end.code, int) else 1)
            os._exit(0)
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
