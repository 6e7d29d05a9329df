"""kill -9 at any moment, and the same command ends with the same bits."""

import json
import os
import random
import select
import signal
import sys
import time

import pytest

KILLS = 24
COMMAND = ["run", "mnist", "--scale", "smoke", "--set", "epochs=12", "--set", "last_epochs=6"]
COMMAND += ["--set", "dropout=0.3", "--set", "last_lr=0.001"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")


def live(nursery, folder, seconds=None):
    """Run the command; kill it after so many seconds. Its exit code, and how long it lived."""
    places = ["--records", str(folder / "records"), "--work", str(folder / "trials")]
    nursery.stdin.write(json.dumps([[*COMMAND, *places], os.devnull]).encode() + b"\n")
    process = int(nursery.stdout.readline())
    start = time.monotonic()
    if not select.select([nursery.stdout], [], [], seconds)[0]:
        os.kill(process, signal.SIGKILL)
    return int(nursery.stdout.readline()), time.monotonic() - start


def bits(folder):
    """All that a run ends with; the time that it took is not part of that."""
    (record,) = folder.glob("records/*.json")
    (model,) = folder.glob("trials/*/*")
    assert model.name == "model.safetensors"
    return json.loads(record.read_text())["outcome"], model.read_bytes()


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(nursery, tmp_path):
    code, seconds = live(nursery, tmp_path / "undisturbed")
    assert code == 0
    expected = bits(tmp_path / "undisturbed")
    assert len(expected[0]["curve"]) == 18

    rng = random.Random(0)
    kills = resumed = finished = 0
    folder = tmp_path / "0"
    while kills < KILLS or not finished:
        resumed += len(list(folder.glob("trials/*/checkpoint.safetensors")))
        # Some lives end before their first epoch, some would have been long enough for all.
        moment = rng.uniform(0, seconds) if kills < KILLS else None
        code, _ = live(nursery, folder, moment)
        if code == -signal.SIGKILL:
            kills += 1
            continue
        assert code == 0
        assert bits(folder) == expected
        finished += 1
        folder = tmp_path / str(finished)
    assert resumed >= KILLS // 4
