"""Several runs on one folder of records, killed at random: every record is there once."""

import itertools
import json
import os
import random
import re
import signal
import sys
import time

import pytest

from lpunits.paper.search.claims import FILE

RUNS, TRIALS = 4, 20
KILLS = int(os.environ.get("LPUNITS_KILLS", "6"))  # 20 in `make kill`
RUN = ("run", "learned-p", "--scale", "smoke", "--set", "epochs=3", "--jobs", "1")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def command(folder):
    return (*RUN, "--records", str(folder / "records"), "--work", str(folder / "trials"))


def left(folder):
    """What the records and the models say, by key; the time does not count."""
    found = {}
    for path in (folder / "records").glob("*.json"):
        record = json.loads(path.read_text())
        assert (record["status"], record["key"]) == ("finished", path.stem)
        assert record["versions"]["operator"].startswith("compiled")
        model = folder / "trials" / path.stem / "model.safetensors"
        found[path.stem] = record["outcome"], model.read_bytes()
    return found


@pytest.fixture(scope="module")
def undisturbed(forks, tmp_path_factory):
    """What a run leaves that is alone and not disturbed, and the seconds of a trial."""
    folder = tmp_path_factory.mktemp("undisturbed")
    forks.run("list")  # when this has ended, everything is imported
    start = time.monotonic()
    assert forks.run(*command(folder)) == 0
    seconds = (time.monotonic() - start) / TRIALS
    found = left(folder)
    assert len(found) == TRIALS
    return found, seconds


def own(text):
    """The trials that a run has done itself."""
    return re.findall(r"^\[\d+/\d+\] (.*?, seed \d+): (?!by another run)", text, re.MULTILINE)


def test_runs_at_the_same_time_do_each_trial_once(forks, undisturbed, tmp_path):
    outputs = [tmp_path / f"output{n}" for n in range(RUNS)]
    started = [forks.start(*command(tmp_path), output=output) for output in outputs]
    assert [forks.wait(process) for process in started] == [0] * RUNS
    assert left(tmp_path) == undisturbed[0]
    done = [own(output.read_text()) for output in outputs]
    assert sum(map(len, done)) == len(set(itertools.chain(*done))) == TRIALS
    assert sum(map(bool, done)) > 1
    for mine, output in zip(done, outputs, strict=True):
        assert f"{len(mine)} trial" in output.read_text()
    assert not list(tmp_path.rglob("*.tmp"))


def test_runs_are_killed_and_started_again(forks, undisturbed, tmp_path):
    rng, kills, resumed, outputs = random.Random(0), 0, 0, []

    def start():
        outputs.append(tmp_path / f"output{len(outputs)}")
        return forks.start(*command(tmp_path), output=outputs[-1])

    running = [start() for _ in range(RUNS)]
    deadline = time.monotonic() + 300
    while kills < KILLS:
        assert time.monotonic() < deadline
        due = kills * (TRIALS - RUNS) // KILLS  # spread over the trials, however fast they are
        if len(list(tmp_path.glob("records/*.json"))) < due:
            time.sleep(0.02)
            continue
        time.sleep(rng.uniform(0, undisturbed[1]))
        resumed += len(list(tmp_path.glob("trials/*/checkpoint.safetensors")))
        victim = rng.choice(running)
        os.kill(victim, signal.SIGKILL)
        assert forks.wait(victim) == -signal.SIGKILL
        kills += 1
        running[running.index(victim)] = start()
    assert [forks.wait(process) for process in running] == [0] * RUNS
    assert resumed
    assert left(tmp_path) == undisturbed[0]
    done = [trial for output in outputs for trial in own(output.read_text())]
    assert sorted(done) == sorted(set(done))  # no trial twice
    assert TRIALS - kills <= len(done) <= TRIALS
    names = {path.name for path in (tmp_path / "records").iterdir()}
    assert {n for n in names if not n.endswith(".json")} <= {FILE, f"{FILE}-wal", f"{FILE}-shm"}
    assert not list(tmp_path.rglob("*.tmp"))
    assert {p.name for p in tmp_path.glob("trials/*/*")} == {"model.safetensors"}
