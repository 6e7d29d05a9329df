"""Trials in this process and in others: only what is missing, and whatever happens is recorded."""

import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from configs import Sum

from lpunits.paper.files import StorageError
from lpunits.paper.search.run import run
from lpunits.paper.training.networks import FeedForward
from lpunits.paper.training.records import Records
from lpunits.paper.training.trial import Trial


def outcomes(store, trials):
    found = [store.find(trial) for trial in trials]
    return [(r["status"], r["error"], r["outcome"].get("sum")) for r in found]


@pytest.mark.parametrize("jobs", [1, 2])
def test_only_what_is_missing_is_run(jobs, tmp_path):
    store = Records(tmp_path / "records")
    trials = [Trial(Sum(), seed) for seed in (0, 1, 2, 2)]
    ran = run(trials[:1], store, tmp_path / "work", jobs=jobs)
    assert (ran.before, len(ran.new)) == (0, 1)
    ran = run(trials, store, tmp_path / "work", jobs=jobs)
    assert (ran.before, len(ran.new), ran.failed, ran.left_out) == (1, 2, [], [])
    assert outcomes(store, trials[:3]) == [("finished", None, float(s)) for s in (1, 2, 3)]
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_goes_wrong_is_recorded_and_the_rest_goes_on(jobs, tmp_path):
    store = Records(tmp_path / "records")
    trials = [Trial(Sum(mode=mode), 0) for mode in ("raise", "diverge", "add")]
    ran = run(trials, store, tmp_path / "work", jobs=jobs)
    assert outcomes(store, trials) == [
        ("failed", "ArithmeticError: it does not add up", None),
        ("diverged", "the loss was nan in epoch 1, batch 1", None),
        ("finished", None, 1.0),
    ]
    assert [record["label"] for record in ran.failed] == ["raise 1, seed 0"]
    assert "ArithmeticError" in ran.failed[0]["outcome"]["traceback"][-2]
    assert store.find(trials[1])["outcome"] == {"curve": [1, 2]}
    # What failed is tried again, what diverged would diverge again.
    again = run(trials, store, tmp_path / "work", jobs=jobs)
    assert [record["label"] for record in again.new] == ["raise 1, seed 0"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_cannot_be_stored_ends_the_run_and_leaves_the_records(jobs, tmp_path):
    store = Records(tmp_path / "records")
    trials = [Trial(Sum(mode=mode), 0) for mode in ("add", "full", "raise")]
    run(trials[:1], store, tmp_path / "work")
    with pytest.raises(StorageError, match="the disk is full"):
        run(trials, store, tmp_path / "work", jobs=jobs)
    assert store.find(trials[0])["status"] == "finished"
    assert store.find(trials[1]) is None


def test_a_process_that_dies_fails_its_trial_and_is_replaced(tmp_path):
    store = Records(tmp_path / "records")
    modes = ("die", "add", "die", "add", "add")
    trials = [Trial(Sum(mode=mode), seed) for seed, mode in enumerate(modes)]
    ran = run(trials, store, tmp_path / "work", jobs=2)
    assert len(ran.new) == 5
    died = ("failed", "its process ended with exit code -9", None)
    added = [("finished", None, 1.0 + seed) for seed in range(5)]
    assert outcomes(store, trials) == [died, added[1], died, added[3], added[4]]


def test_trials_run_at_the_same_time_with_their_share_of_the_threads(tmp_path):
    store = Records(tmp_path / "records")
    trials = [Trial(Sum(seconds=1.0), seed) for seed in range(3)]
    before = torch.get_num_threads()
    torch.set_num_threads(6)
    try:
        ran = run(trials, store, tmp_path / "work", jobs=3)
    finally:
        torch.set_num_threads(before)
    assert {record["threads"] for record in ran.new} == {2}
    processes = {record["outcome"]["process"] for record in ran.new}
    assert len(processes) == 3
    assert os.getpid() not in processes


def test_the_same_bits_in_this_process_and_in_others(tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    data = {"data": "curve", "data_options": (("points", 200),), "hidden": (8,), "epochs": 2}
    trials = [Trial(FeedForward(**data), seed) for seed in (0, 1)]
    stores = [Records(tmp_path / str(jobs)) for jobs in (1, 2)]
    try:
        for jobs, store in enumerate(stores, 1):
            run(trials, store, tmp_path / "work", jobs=jobs)
    finally:
        torch.set_num_threads(threads)
    for trial in trials:
        here, there = (store.find(trial)["outcome"] for store in stores)
        assert here == there


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="there is no glibc")
def test_memory_that_a_step_frees_is_kept_for_the_next_one():
    """Counted in processes of their own: the pages that the system clears in a common step.

    The median, because the first steps differ: the heap grows until what lies between fits too.
    """
    script = """
import resource, statistics, sys
import torch
from lpunits.paper.search import engines

def cleared():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if sys.argv[1] == "kept":
    engines.keep_memory()
steps = []
for _ in range(51):
    before = cleared()
    torch.ones(10_000_000)
    steps.append(cleared() - before)
print(statistics.median(steps))
"""
    given_back, kept = (
        int(subprocess.run([sys.executable, "-c", script, how], capture_output=True).stdout)
        for how in ("given back", "kept")
    )
    assert kept < given_back / 5


def test_trials_without_their_data_are_left_out_and_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LPUNITS_DATA", str(tmp_path))
    monkeypatch.setenv("LPUNITS_CACHE", str(tmp_path))
    store = Records(tmp_path / "records")
    trials = [Trial(Sum(needs=("tfd", "curve")), 0), Trial(Sum(needs=("curve",)), 0)]
    ran = run(trials, store, tmp_path / "work")
    assert ran.left_out == trials[:1]
    assert [record["label"] for record in ran.new] == ["add 1, seed 0"]
    told = " ".join(capsys.readouterr().err.split())
    assert "left out: 1 trials need tfd, which is not here: ask" in told


def test_not_a_word_but_a_line_for_each_trial_without_a_terminal(tmp_path, capsys):
    run([Trial(Sum(), s) for s in (0, 1)], Records(tmp_path / "records"), tmp_path / "work")
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition(":")[0] for line in lines] == [
        "[1/2] add 1, seed 0",
        "[2/2] add 1, seed 1",
    ]


@pytest.mark.parametrize("jobs", [0, -1, 1.5, True])
def test_bad_jobs(jobs, tmp_path):
    with pytest.raises(ValueError, match="jobs must be a number of at least 1, got"):
        run([], Records(tmp_path), tmp_path, jobs=jobs)


def test_a_folder_that_cannot_be_made_is_told_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        run([Trial(Sum(mode="raise"), 0)], Records(tmp_path / "file" / "records"), tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_processes_end_when_the_driver_is_killed(tmp_path):
    code = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parents[1]), *sys.path]!r}\n"
        "from pathlib import Path\nfrom configs import Sum\n"
        "from lpunits.paper.training.trial import Trial\n"
        "from lpunits.paper.training.records import Records\n"
        "from lpunits.paper.search.run import run\n"
        "if __name__ == '__main__':\n"
        f"    folder = Path({str(tmp_path)!r})\n"
        "    trials = [Trial(Sum(seconds=s), 0) for s in (0.0, 0.0, 500.0, 501.0)]\n"
        "    run(trials, Records(folder / 'records'), folder / 'work', jobs=2)\n"
    )
    script = tmp_path / "driver.py"
    script.write_text(code)
    driver = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 100
        while len(found := list(tmp_path.glob("records/*.json"))) < 1:
            assert time.monotonic() < deadline
            assert driver.poll() is None
            time.sleep(0.1)
        worker = json.loads(found[0].read_text())["outcome"]["process"]
        os.kill(worker, 0)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    while Path(f"/proc/{worker}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
