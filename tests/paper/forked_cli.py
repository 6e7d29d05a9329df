"""Runs command lines in forks of this process, which has imported everything.

For each line of input (the tokens and a file for the output, as JSON) it prints the process id,
then the exit code.
"""

import json
import os
import sys

import torch
import torch._dynamo  # the first optimizer of a process would import it

import lpunits_cli
from lpunits import LpLinear
from lpunits.ops import compiled, status
from lpunits.paper import data, experiments
from lpunits.paper.cli import report, run, search  # noqa: F401
from lpunits.paper.search import study

if __name__ == "__main__":
    if not compiled:
        sys.exit(f"these tests are about the compiled operator: {status()}")
    study.GRACE = 2.0  # drivers follow one another here: the next one need not wait for long
    torch.set_num_threads(1)
    LpLinear(4, units=2, filters=2)(torch.randn(3, 4)).sum().backward()
    data.load("digits")
    experiments.get("mnist")
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            tokens, output = json.loads(line)
            sys.stdout = sys.stderr = open(output, "w", buffering=1)  # noqa: SIM115
            try:
                lpunits_cli.main(tokens)
            except SystemExit as end:
                if isinstance(end.code, int):
                    os._exit(end.code)
                print(end.code)
                os._exit(1)
            os._exit(0)
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
