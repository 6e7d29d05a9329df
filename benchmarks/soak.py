"""Training, searching, reporting and the playground's server at once, for ten minutes.

After a warm-up of a third of the time, no process may grow by more than 5 % or open more files, and
when they are told to end, none may be left. ``LPUNITS_SOAK`` is the time in seconds.
"""

import gc
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import psutil

SECONDS = float(os.environ.get("LPUNITS_SOAK", "600"))
GROWTH = 0.05
EACH = 1.0  # second between two samples
TO_END = 10.0  # seconds

ROUNDS = {
    "training": "run fig3 toy --scale smoke --jobs 2 --records {}/records --work {}/work",
    "search": "search mnist --scale smoke --trials 3 --jobs 1 --records {}/records --work {}/work",
    "report": "report --records {}/../recorded --out {}/out",
}


def repeat(role: str, folder: Path) -> None:
    """Give the same command again and again, each time in an empty folder."""
    import lpunits_cli

    while True:
        words = ROUNDS[role].replace("{}", str(folder)).split()
        try:
            lpunits_cli.main(words)
        except SystemExit as end:
            if end.code:
                raise
        shutil.rmtree(folder)
        folder.mkdir()
        gc.collect()  # what waits for Python's collector is no leak


def visit(address: str, until: threading.Event) -> None:
    """Ask the playground's server for its pages."""
    while not until.wait(0.02):
        for page in ("", "js/state.js", "no-such-page"):
            try:
                with urllib.request.urlopen(address + page, timeout=10) as answer:
                    answer.read()
            except urllib.error.HTTPError as error:
                error.close()
            except OSError:
                if not until.is_set():
                    raise


class Watch:
    """Samples of memory and open files, for every process below this one."""

    def __init__(self) -> None:
        self.samples: dict[psutil.Process, list[tuple[float, int, int]]] = {}
        self.start = time.monotonic()

    def sample(self) -> None:
        """Look at every process once."""
        for process in psutil.Process().children(recursive=True):
            try:
                seen = (time.monotonic() - self.start, process.memory_info().rss, process.num_fds())
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
            self.samples.setdefault(process, []).append(seen)

    def alive(self) -> list[psutil.Process]:
        """The processes of all samples that still run."""
        return [p for p in self.samples if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    def verdicts(self, names: dict[int, str]) -> list[tuple[str, bool]]:
        """What each long-lived process used, in the second and in the last third."""
        lines = []
        for process, seen in self.samples.items():
            thirds = [[s for s in seen if k <= 3 * s[0] / SECONDS < k + 1] for k in range(3)]
            if min(map(len, thirds)) < SECONDS / EACH / 8:
                continue  # a worker that came later or ended sooner
            memory = [statistics.median(s[1] for s in third) for third in thirds[1:]]
            files = [min(s[2] for s in third) for third in thirds[1:]]  # between two commands
            growth = memory[1] / memory[0] - 1
            good = growth < GROWTH and files[1] <= files[0]
            name = names.get(process.pid, "a process of those")
            text = (
                f"{name:20} {memory[0] / 2**20:7.1f} -> {memory[1] / 2**20:7.1f} MiB "
                f"({growth:+.2%}), {files[0]} -> {files[1]} files"
            )
            lines.append((text, good))
        return lines


def main() -> int:
    """Run everything; the exit code is 1 if anything grew or was left."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    with tempfile.TemporaryDirectory(prefix="lpunits-soak-") as name:
        place = Path(name)
        record = f"run fig3 toy --scale smoke --records {place}/recorded --work {place}/work"
        command = [sys.executable, "-m", "lpunits"]
        subprocess.run([*command, *record.split()], check=True, stdout=subprocess.DEVNULL)
        running = {}
        log = (place / "log").open("w+")
        for role in ROUNDS:
            (place / role).mkdir()
            arguments = [sys.executable, __file__, role, str(place / role)]
            running[role] = subprocess.Popen(arguments, stdout=log, stderr=log)
        server = subprocess.Popen(
            [*command, "playground", "--no-open"], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        address = server.stdout.readline().split()[1]
        running["playground"] = server
        until, watch = threading.Event(), Watch()
        visitor = threading.Thread(target=visit, args=(address, until))
        visitor.start()
        names = {process.pid: role for role, process in running.items()}
        while time.monotonic() - watch.start < SECONDS:
            time.sleep(EACH)
            watch.sample()
            if ended := [role for role, p in running.items() if p.poll() is not None]:
                break
        until.set()
        visitor.join()
        for process in running.values():
            process.send_signal(signal.SIGINT)
        end = time.monotonic() + TO_END
        while watch.alive() and time.monotonic() < end:
            time.sleep(0.1)
        verdicts = watch.verdicts(names)
        verdicts += [(f"{role} ended by itself", False) for role in ended]
        for process in watch.alive():
            verdicts.append((f"left after {TO_END:g} s: {' '.join(process.cmdline())[:80]}", False))
            process.kill()
        seen = {role for role in names.values() if any(v[0].startswith(role) for v in verdicts)}
        verdicts += [
            (f"{role} was not measured", False) for role in names.values() if role not in seen
        ]
        for text, good in verdicts:
            print(f"{'  ' if good else 'X '}{text}")
        log.seek(0)
        if not all(good for _, good in verdicts):
            print(log.read()[-2000:])
        log.close()
        return int(not all(good for _, good in verdicts))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        repeat(sys.argv[1], Path(sys.argv[2]))
    sys.exit(main())
