"""Small networks get one thread, large ones their share of the cores."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from lpunits.paper.experiments.toy import Toy
from lpunits.paper.training.music import Music
from lpunits.paper.training.networks import FeedForward
from lpunits.paper.training.threads import cores, threads_for

WIDE, NARROW = FeedForward("mnist", hidden=(240, 240)), FeedForward("digits", hidden=(16, 16))


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.parametrize(
    ("config", "cores", "jobs", "expected"),
    [
        (WIDE, 8, 1, 8),
        (WIDE, 8, 3, 2),
        (WIDE, 2, 4, 1),
        (NARROW, 8, 1, 1),
        (Toy(4.0), 8, 1, 1),
        (Music("jsb"), 8, 1, 2),
        (Music("jsb", hidden=50, units=50), 8, 1, 1),
        (SimpleNamespace(), 8, 2, 4),  # a config that does not say how large it is
    ],
)
def test_threads_follow_the_size_of_the_network_and_the_cores(config, cores, jobs, expected):
    assert threads_for(config, cores, jobs) == expected


@pytest.mark.parametrize(("chosen", "expected"), [("3", 3), ("5,2", 5), ("", 1), ("0", 1)])
def test_the_environment_decides(monkeypatch, chosen, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", chosen)
    assert threads_for(NARROW, 8) == expected


def test_a_container_or_an_affinity_limits_the_processors():
    everyone = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(everyone)[:1])
    try:
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, everyone)
    assert 1 <= cores() <= len(everyone)


@pytest.mark.parametrize(("chosen", "expected"), [(None, "PASSIVE"), ("active", "ACTIVE")])
@pytest.mark.skipif(sys.platform != "linux", reason="libgomp shows its settings")
def test_the_command_lets_waiting_threads_sleep_unless_told_otherwise(chosen, expected):
    environment = os.environ | {"OMP_DISPLAY_ENV": "true"}
    environment.pop("OMP_WAIT_POLICY", None)
    if chosen:
        environment["OMP_WAIT_POLICY"] = chosen
    code = "import lpunits_cli; lpunits_cli.main(['list'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert f"OMP_WAIT_POLICY = '{expected}'" in done.stderr
