"""Several processes train what one would have trained; a rank that fails or dies ends them all."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import rank_cases
import torch
from safetensors.torch import load_file

from lpunits.paper.experiments import table4
from lpunits.paper.search.claims import FILE
from lpunits.paper.search.run import run
from lpunits.paper.training import ranks
from lpunits.paper.training.job import Job
from lpunits.paper.training.records import Records

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Where two ranks have run rank_cases.py and left their results, and how they ended."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [*TORCHRUN, rank_cases.__file__, str(folder)]
    pipes = {"capture_output": True, "text": True}
    return folder, subprocess.run(command, env=ENVIRONMENT, timeout=300, check=False, **pipes)


def left(folder, name):
    """What both ranks have left: outcomes and weights."""
    names = [f"{name}, rank {rank}" for rank in (0, 1)]
    outcomes = [json.loads((folder / f"{n}.json").read_text()) for n in names]
    return outcomes, [load_file(folder / f"{n}.safetensors") for n in names]


def assert_same_bits(ours, theirs):
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("name", rank_cases.CASES)
def test_two_ranks_train_what_one_process_would(name, two, tmp_path):
    (first, second), weights = left(two[0], name)
    assert_same_bits(*weights)  # orders and centres among them
    assert first == second
    one = rank_cases.CASES[name].run(0, Job(tmp_path))
    expected = load_file(tmp_path / "model.safetensors")
    assert {key.rpartition(".")[2] for key in expected} >= {"weight", "rho"}
    for key, tensor in load_file(two[0] / name / "model.safetensors").items():
        assert torch.allclose(tensor, expected[key], rtol=0, atol=1e-5), key
    assert [row["valid_error"] for row in first["curve"]] == pytest.approx(
        [row["valid_error"] for row in one["curve"]]
    )
    assert first["curve"][0]["loss"] == pytest.approx(one["curve"][0]["loss"], rel=1e-5)
    # Only the first rank has left a model, and the checkpoint of its own.
    assert sorted(path.name for path in (two[0] / name).iterdir()) == [
        "checkpoint.safetensors",
        "model.safetensors",
    ]


def test_every_rank_drops_other_units(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("WORLD_SIZE", "2")
    drawn = []
    for rank, epoch in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 1)):
        monkeypatch.setenv("RANK", str(rank))
        ranks.seed_dropout(0, "first", epoch)
        drawn.append(torch.rand(()).item())
    assert len(set(drawn)) == 4
    assert drawn[3] == drawn[4]


def test_a_loss_that_is_not_finite_on_one_rank_is_so_on_all(two):
    (first, second), _ = left(two[0], "poisoned")
    assert first["diverged"] == "the loss was nan in epoch 1, batch 1 of the first stage"
    assert first == second


def test_a_rank_that_fails_ends_all_with_an_error(two):
    _, ended = two
    assert ended.returncode == 1
    assert "lpunits: rank 1 of 2: ArithmeticError: it does not add up" in ended.stderr


@pytest.mark.parametrize(
    ("jobs", "message"), [(2, "jobs must be 1 under torchrun, got 2"), (1, "not 'jsb, lp")]
)
def test_what_several_processes_cannot_do_is_refused(jobs, message, tmp_path, monkeypatch):
    for name, value in (("TORCHELASTIC_RUN_ID", "test"), ("WORLD_SIZE", "2"), ("RANK", "0")):
        monkeypatch.setenv(name, value)
    trial = next(t for t in table4.EXPERIMENT.trials("paper") if t.config.data == "jsb")
    with pytest.raises(ValueError, match=message):
        run([trial], Records(tmp_path / "records"), tmp_path / "work", jobs=jobs)


def test_a_rank_that_is_killed_ends_all_and_the_same_command_ends_with_the_same_bits(two, tmp_path):
    settings = ["--scale", "smoke", "--set", "epochs=20", "--set", "lr=0.1"]
    places = ["--records", str(tmp_path / "records"), "--work", str(tmp_path / "trials")]
    command = [*TORCHRUN, "-m", "lpunits", "run", "mnist", *settings, *places]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=ENVIRONMENT, **pipes) as launcher:
        while not list(tmp_path.glob("trials/*/checkpoint.safetensors")):
            assert launcher.poll() is None
            time.sleep(0.01)
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        named = {c: Path(f"/proc/{c}/environ").read_bytes() for c in children}
        (second,) = (int(c) for c, names in named.items() if b"\0RANK=1\0" in names)
        os.kill(second, signal.SIGKILL)
        launcher.communicate(timeout=60)
        assert launcher.returncode == 1
    assert not [c for c in children if Path(f"/proc/{c}").exists()]
    (checkpoint,) = tmp_path.glob("trials/*/checkpoint.safetensors")

    ended = subprocess.run(command, env=ENVIRONMENT, timeout=300, check=False, **pipes)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("1 trial run") == 1
    assert ended.stderr.count("[1/1] digits") == 1
    claims = (FILE, f"{FILE}-wal", f"{FILE}-shm")
    (path,) = (p for p in (tmp_path / "records").iterdir() if p.name not in claims)
    record = json.loads(path.read_text())
    assert (record["status"], record["ranks"]) == ("finished", 2)
    assert record["config"]["dropout"] > 0
    (never_killed, _), _ = left(two[0], "never killed")
    assert record["outcome"] == never_killed
    assert not checkpoint.exists()
