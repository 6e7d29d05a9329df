"""Runs that are killed (kill -9) at any moment resume by the same command, bit by bit."""

import contextlib
import json
import os
import random
import signal
import sys
import time

import pytest

FEEDFORWARD = ["mnist", "--set", "epochs=12", "--set", "last_epochs=6"]
FEEDFORWARD += ["--set", "dropout=0.3", "--set", "last_lr=0.001"]
MUSIC = ["table4", "--only", "chords, lp, seed 0", "--set", "epochs=6"]

KILLS = int(os.environ.get("LPUNITS_KILLS", "0"))  # 20 in `make kill`

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs kill -9")


def live(forks, arguments, folder, seconds=None):
    """Run an experiment; kill it after so many seconds. Its exit code, and how long it lived."""
    places = ["--records", str(folder / "records"), "--work", str(folder / "trials")]
    process = forks.start("run", *arguments, "--scale", "smoke", *places)
    start = time.monotonic()
    if forks.wait(process, seconds) is None:
        with contextlib.suppress(ProcessLookupError):  # it has ended since
            os.kill(process, signal.SIGKILL)
    return forks.wait(process), time.monotonic() - start


def bits(folder):
    """The outcome and the model that a run leaves, without the time that it took."""
    (record,) = folder.glob("records/*.json")
    (model,) = folder.glob("trials/*/*")
    assert model.name == "model.safetensors"
    found = json.loads(record.read_text())
    assert found["versions"]["operator"].startswith("compiled")
    return found["outcome"], model.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "epochs", "most"),
    [(FEEDFORWARD, 18, KILLS or 6), (MUSIC, 6, KILLS or 4)],
    ids=["digits", "music"],
)
def test_killed_runs_resume_and_end_with_the_same_bits(forks, tmp_path, arguments, epochs, most):
    code, seconds = live(forks, arguments, tmp_path / "undisturbed")
    assert code == 0
    expected = bits(tmp_path / "undisturbed")
    assert len(expected[0]["curve"]) == epochs

    rng = random.Random(0)
    kills = resumed = finished = 0
    folder = tmp_path / "0"
    while kills < most or not finished:
        resumed += len(list(folder.glob("trials/*/checkpoint.safetensors")))
        # Some processes are killed before their first epoch, some would have had time for all.
        moment = rng.uniform(0, seconds) if kills < most else None
        code, _ = live(forks, arguments, folder, moment)
        if code == -signal.SIGKILL:
            kills += 1
            continue
        assert code == 0
        assert bits(folder) == expected
        finished += 1
        folder = tmp_path / str(finished)
    assert resumed >= most // 4
