"""Ctrl-C and SIGTERM: one line, the exit code of the signal, no process left, and it resumes."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TRAIN = ("run", "mnist", "--scale", "smoke", "--set", "epochs=150", "--set", "dropout=0.2")
LONG = ("run", "learned-p", "--scale", "smoke", "--set", "epochs=100000", "--jobs", "2")
SEARCH = ("search", "mnist", "--scale", "smoke", "--set", "epochs=100000", "--jobs", "2")
SECONDS = 5.0  # 2 when nothing else is running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def places(folder):
    return ("--records", str(folder / "records"), "--work", str(folder / "trials"))


def family(process):
    """The ids of all descendants of a process."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found = children.get(process, [])
    return found + [grandchild for child in found for grandchild in family(child)]


def runs(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def interrupted(forks, folder, tokens, number, ready, kill=os.kill):
    """Start a command, and interrupt it when it is ready. The lines that it prints from then on."""
    output = folder / "output"
    process = forks.start(*tokens, output=output)
    deadline = time.monotonic() + 100
    while not ready(output.read_text() if output.exists() else ""):
        assert time.monotonic() < deadline, output.read_text()
        assert forks.wait(process, 0.05) is None, output.read_text()
    time.sleep(0.3)
    before, children = output.read_text(), family(process)
    start = time.monotonic()
    kill(process, number)
    assert forks.wait(process, SECONDS) == 128 + number
    while any(map(runs, children)):
        assert time.monotonic() - start < SECONDS
        time.sleep(0.02)
    return output.read_text().removeprefix(before).splitlines(), children


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_resumes_with_the_same_bits(number, forks, tmp_path):
    def bits(folder):
        (record,), (model,) = folder.glob("records/*.json"), folder.glob("trials/*/*")
        return json.loads(record.read_text())["outcome"], model.read_bytes()

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert forks.run(*TRAIN, *places(whole)) == 0
    tokens = (*TRAIN, *places(parts))
    parts.mkdir()
    for _ in range(2):
        lines, _ = interrupted(
            forks,
            parts,
            tokens,
            number,
            lambda text: "to run" in text and list(parts.glob("trials/*/check*")),
        )
        resume = f"lpunits: interrupted, to resume: {shlex.join(['lpunits', *tokens])}"
        assert lines == ["", resume]
    assert list(parts.glob("trials/*/checkpoint.safetensors"))
    assert forks.run(*tokens) == 0
    assert bits(parts) == bits(whole)
    assert not list(parts.rglob("*.tmp"))


@pytest.mark.parametrize(
    ("tokens", "number", "kill"),
    [(LONG, signal.SIGTERM, os.killpg), (SEARCH, signal.SIGINT, os.kill)],
    ids=["run, all processes", "search, the driver"],
)
def test_processes_end_with_their_driver(tokens, number, kill, forks, tmp_path):
    tokens = (*tokens, *places(tmp_path))
    lines, children = interrupted(
        forks,
        tmp_path,
        tokens,
        number,
        lambda _: len([*tmp_path.glob("trials/*/check*")]) == 2,
        kill,
    )
    assert len(children) >= 3
    assert lines == ["", f"lpunits: interrupted, to resume: {shlex.join(['lpunits', *tokens])}"]
    assert not list(tmp_path.rglob("records/*.json"))  # no trial has failed of it


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("tokens", [("report", "--out"), ("playground", "--no-open")])
def test_a_report_and_the_playground_end_with_a_line(tokens, number, forks, tmp_path):
    tokens += (str(tmp_path / "out"),) * (tokens[0] == "report")
    ready = bool if tokens[0] == "playground" else lambda text: True
    lines, _ = interrupted(forks, tmp_path, tokens, number, ready)
    assert lines == ["", "lpunits: interrupted"]
    assert not list(tmp_path.rglob("*.tmp"))


HANGS = """
import time, lpunits_cli
def hang():
    print('now', flush=True)
    try:
        time.sleep(100)
    finally:
        time.sleep(100)
"""
IS_TAKEN_APART = """
import builtins, time, lpunits_cli
class Large:
    def __del__(self, sleep=time.sleep):
        sleep(100)
builtins.kept = Large()
def hang():
    print('now', flush=True)
    time.sleep(100)
"""


@pytest.mark.parametrize("code", [HANGS, IS_TAKEN_APART], ids=["hangs", "is taken apart"])
def test_cleaning_up_that_does_not_end_is_ended(code):
    code += "lpunits_cli.app.command(hang)\nlpunits_cli.main(['hang'])\n"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        assert process.stdout.readline() == "now\n"
        for _ in range(3):  # an impatient user
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        assert process.wait(SECONDS) == 130
        assert process.stderr.read() == "\nlpunits: interrupted\n"
