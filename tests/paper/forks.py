"""Command lines of lpunits that start at once, as forks of a process that has imported everything.

This module is both: the class for tests, and the program of that process. For each line of input
(the tokens and a file for the output, as JSON) the program prints the process id, and when the
process has ended its id and its exit code.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path


class Forks:
    """Runs command lines, several at a time."""

    def __init__(self, **environment: str) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        command, environment = [sys.executable, __file__], {**os.environ, **environment}
        self._server = subprocess.Popen(command, **pipes, env=environment, bufsize=0)
        self._ended: dict[int, int] = {}
        self._running: set[int] = set()

    def start(self, *tokens: str, output: str | Path = os.devnull) -> int:
        """The process id of a new command line, which is the leader of a process group."""
        self._server.stdin.write(json.dumps([tokens, str(output)]).encode() + b"\n")
        while len(words := self._words()) == 2:
            self._ended[words[0]] = words[1]
        self._running |= set(words)
        return words[0]

    def wait(self, process: int, seconds: float | None = None) -> int | None:
        """The exit code of a command line; None if it is still running after so many seconds."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while process not in self._ended:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._server.stdout], [], [], left)[0]:
                return None
            ended, code = self._words()
            self._ended[ended] = code
        self._running.discard(process)
        return self._ended[process]

    def run(self, *tokens: str, output: str | Path = os.devnull) -> int:
        """The exit code of a command line."""
        return self.wait(self.start(*tokens, output=output))

    def close(self) -> None:
        """Kill everything."""
        for process in self._running - set(self._ended):
            os.killpg(process, signal.SIGKILL)
        self._server.kill()
        self._server.communicate()

    def _words(self) -> list[int]:
        line = self._server.stdout.readline()
        assert line, "the program has ended: is the operator compiled?"
        return [int(word) for word in line.split()]


def _serve() -> None:
    """Fork for every line of input."""
    import torch
    import torch._dynamo  # the first optimizer of a process would import it

    import lpunits_cli
    from lpunits import LpLinear
    from lpunits.ops import compiled, status
    from lpunits.paper import data, experiments
    from lpunits.paper.cli import report, run, search  # noqa: F401

    if not compiled:
        sys.exit(f"these tests are about the compiled operator: {status()}")
    torch.set_num_threads(1)
    LpLinear(4, units=2, filters=2)(torch.randn(3, 4)).sum().backward()
    data.load("digits")
    experiments.get("mnist")

    def tell_end(process: int) -> None:
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        os.write(1, f"{process} {code}\n".encode())

    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            os.setpgrp()
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
        os.write(1, f"{process}\n".encode())
        threading.Thread(target=tell_end, args=(process,), daemon=True).start()


if __name__ == "__main__":
    _serve()
