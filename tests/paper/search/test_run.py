"""Trials in this process and in others: only missing ones run, and every result is recorded."""

import io
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from configs import Sum
from rich.console import Console

from lpunits.files import StorageError
from lpunits.paper.search import display, engines
from lpunits.paper.search.claims import shared
from lpunits.paper.search.display import RunDisplay
from lpunits.paper.search.engines import jobs_for
from lpunits.paper.search.run import _Share, run
from lpunits.paper.search.runner import Runner
from lpunits.paper.training import records
from lpunits.paper.training.job import Progress
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
    assert (ran.recorded, len(ran.new)) == (0, 1)
    ran = run(trials, store, tmp_path / "work", jobs=jobs)
    assert (ran.recorded, len(ran.new), ran.failed, ran.left_out) == (1, 2, [], [])
    assert outcomes(store, trials[:3]) == [("finished", None, float(s)) for s in (1, 2, 3)]
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_errors_are_recorded_and_the_other_trials_run(jobs, tmp_path):
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
    # A failed trial is run again. One that diverged would diverge again.
    second = run(trials, store, tmp_path / "work", jobs=jobs)
    assert [record["label"] for record in second.new] == ["raise 1, seed 0"]


def test_what_another_run_does_meanwhile_is_taken(tmp_path):
    store, trials = Records(tmp_path), [Trial(Sum(), seed) for seed in range(4)]
    store.write(records.make(trials[0], "failed", {}, seconds=1))  # long ago
    ours = RunDisplay(trials, 1, {})
    with shared(tmp_path) as mine, shared(tmp_path) as theirs, ours as display:
        share = _Share(trials, store, mine, display)
        assert theirs.claim(trials[1].key)
        assert [share.next(), share.next()] == [trials[0], trials[2]]
        for trial, status in (trials[1], "failed"), (trials[3], "finished"):
            store.write(records.make(trial, status, {"sum": 1.0}, seconds=1))
        assert share.next() is None  # and it is not asked who has the claim
        assert [record["key"] for record in share.others] == [trials[1].key, trials[3].key]
        assert share.waiting == []
        assert theirs.claim(trials[3].key)  # nobody has kept it


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_full_disk_ends_the_run_and_keeps_the_records(jobs, tmp_path):
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


def test_trials_run_at_the_same_time_with_their_share_of_the_threads(tmp_path, monkeypatch):
    store = Records(tmp_path / "records")
    trials = [Trial(Sum(seconds=1.0), seed) for seed in range(3)]
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(engines, "cores", lambda: 6)
    ran = run(trials, store, tmp_path / "work", jobs=3)
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
from lpunits.paper.search import runner

def cleared():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if sys.argv[1] == "kept":
    runner.keep_memory()
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


def test_trials_without_their_data_are_left_out_with_a_message(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LPUNITS_DATA", str(tmp_path))
    monkeypatch.setenv("LPUNITS_CACHE", str(tmp_path))
    store = Records(tmp_path / "records")
    trials = [Trial(Sum(needs=("tfd", "curve")), 0), Trial(Sum(needs=("curve",)), 0)]
    ran = run(trials, store, tmp_path / "work")
    assert ran.left_out == trials[:1]
    assert [record["label"] for record in ran.new] == ["add 1, seed 0"]
    output = " ".join(capsys.readouterr().err.split())
    assert "left out: 1 trial on tfd, which is not here: ask" in output


def test_without_a_terminal_every_trial_has_a_line_with_its_outcome(tmp_path, capsys):
    trials = [Trial(Sum(mode=mode), seed) for mode in ("add", "raise") for seed in (0, 1)]
    expected = {trial.key: 20.0 for trial in trials}
    store = Records(tmp_path / "records")
    run(trials[:3], store, tmp_path / "work", jobs=1, expected=expected)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "3 trials to run, 1 at a time, about 60 s"
    assert [line.rpartition(", ")[0] for line in lines[1:]] == [
        f"[1/3] add 1, seed 0: sum 1, process {os.getpid()}",
        f"[2/3] add 1, seed 1: sum 2, process {os.getpid()}",
        "[3/3] raise 1, seed 0: failed: ArithmeticError: it does not add up",
    ]


def test_a_long_silence_is_broken_by_the_status(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(display, "SILENCE", 0.1)
    run([Trial(Sum(seconds=0.5), 0)], Records(tmp_path / "records"), tmp_path / "work")
    lines = capsys.readouterr().err.splitlines()
    status = re.compile(r"0 of 1 trials in 0\..*; running: add 1, seed 0, 1/2 loss 1")
    assert any(map(status.match, lines))


def test_on_a_terminal_the_view_fits_and_shows_the_outcomes(tmp_path, monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
    monkeypatch.setattr(display, "console", screen)
    trials = [Trial(Sum(number=n), seed) for n in (1, 2) for seed in range(20)]
    shown = display.RunDisplay(trials, 2, {})
    store = Records(tmp_path / "records")
    for trial in trials[:-1]:
        shown.show(trial, Progress(0, 1, ""))
        shown.finish(trial, Runner(store, tmp_path / "work")(trial, lambda progress: None))
    shown.show(trials[-1], Progress(1, 2, "loss 2"))
    screen.print(shown._view())
    text = screen.file.getvalue()
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 80
    assert re.match(r"✓ add 2, seed 18 +sum 20, process \d+ +\d", lines[-3])
    assert re.match(r"▶ add 2, seed 19 +1/2  loss 2 ", lines[-2])
    assert "39 of 40 trials in " in lines[-1]


def test_jobs_and_threads_by_cores_and_environment(monkeypatch):
    monkeypatch.setattr(engines, "cores", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert jobs_for([]) == 1
    assert jobs_for([Trial(Sum(), seed) for seed in range(3)]) == 3
    assert jobs_for([Trial(Sum(), seed) for seed in range(9)]) == 4
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert jobs_for([Trial(Sum(), seed) for seed in range(9)]) == 2


@pytest.mark.parametrize("jobs", [0, -1, 1.5, True])
def test_bad_jobs(jobs, tmp_path):
    with pytest.raises((TypeError, ValueError), match="jobs must be a positive integer, got"):
        run([], Records(tmp_path), tmp_path, jobs=jobs)


def test_a_folder_that_cannot_be_made_is_an_error_before_anything_runs(tmp_path):
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
