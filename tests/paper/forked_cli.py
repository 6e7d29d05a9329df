"""A nursery of short lives: forks a process for each command line that it is given.

It has loaded beforehand what takes a process seconds, so that a life is not all imports. For each
line (the tokens and a file for what it says, as JSON) it answers with the number of the process,
then with its exit code.
"""

import json
import os
import sys

import torch
import torch._dynamo  # the first optimiser of a process would import it

from lpunits import LpLinear
from lpunits.paper import cli, data, experiments, search  # noqa: F401

if __name__ == "__main__":
    torch.set_num_threads(1)
    LpLinear(4, units=2, filters=2)(torch.randn(3, 4)).sum().backward()
    data.load("digits")
    experiments.get("mnist")
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            tokens, said = json.loads(line)
            sys.stdout = sys.stderr = open(said, "w", buffering=1)  # noqa: SIM115
            try:
                cli.main(tokens)
            except SystemExit as end:
                if isinstance(end.code, int):
                    os._exit(end.code)
                print(end.code)
                os._exit(1)
            os._exit(0)
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
