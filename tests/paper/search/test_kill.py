"""Kill drivers and workers at random moments, run two drivers at once: the result is the same."""

import json
import os
import random
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from forks import Forks

from lpunits.paper.search.study import Plan, Study, open_storage

TRIALS, KILLS = 14, 6
# Data that needs no import: a process that replaces a killed one starts at once.
DATA = ("data=curve", "data_options=(('points',500),)")
PLAN = Plan("mnist", "smoke", settings=(*DATA, "epochs=8"), trials=TRIALS)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def command(folder, *more, plan=PLAN):
    places = ("--records", str(folder / "records"), "--work", str(folder / "trials"))
    return (*shlex.split(plan.command)[1:], *places, *more)


def outcome(folder, plan=PLAN, url=None):
    """The trials of a search by number, and its records by key; the time does not count."""
    found = {}
    for path in (folder / "records" / "search").glob("*.json"):
        record = json.loads(path.read_text())
        assert path.stem == record["key"]
        assert record["versions"]["operator"].startswith("compiled")  # in processes and on Ray
        found[path.stem] = (record["status"], record["config"], record["outcome"])
    with open_storage(url or f"sqlite:///{folder}/records/search/studies.db") as storage:
        study = Study(plan, storage)
        assert study.complete
        trials = [
            (t.number, t.state, t.value, t.params, t.user_attrs["key"]) for t in study.finished()
        ]
        winner = {name: study.tested[name] for name in ("number", "test", "key")}
    assert len(trials) == plan.trials
    return trials, winner, found


@pytest.fixture(scope="module")
def undisturbed(forks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert forks.run(*command(folder, "--jobs", "2")) == 0
    trials, winner, found = outcome(folder)
    assert len(found) == TRIALS + 1
    assert len({key for *_, key in trials}) == TRIALS
    values = [value for _, _, value, *_ in trials]
    assert values.index(min(values)) == winner["number"] != 0
    return trials, winner, found


def processes():
    """Every process: its parent and its command line."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(folder.name)] = parent, (folder / "cmdline").read_text()
        except (OSError, ValueError):
            continue
    return found


@pytest.fixture(scope="module")
def cluster():
    """The address of a Ray cluster of our own, and the environment with its token."""
    pytest.importorskip("ray", reason="needs lpunits[ray]")
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # the paths of sockets must be short
    (folder / "token").write_text(secrets.token_hex(32))
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
    token |= {"LPUNITS_DATA": str(folder / "none"), "LPUNITS_CACHE": str(folder / "cache")}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    start += ["--node-ip-address=127.0.0.1", f"--port={port}", "--num-cpus=2"]
    start += ["--include-dashboard=false", f"--temp-dir={folder}", "--disable-usage-stats"]
    with (folder / "log").open("w") as log:
        head = subprocess.Popen(
            start, env={**os.environ, **token}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 100
        while "--block" not in (folder / "log").read_text():
            assert head.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield f"127.0.0.1:{port}", token
    finally:
        head.terminate()
        head.wait()
        shutil.rmtree(folder, ignore_errors=True)


def workers_of(driver, on_ray):
    """The processes of trials: of Ray, or children of the driver's fork server."""
    found = processes()
    if on_ray:
        return [p for p, (_, line) in found.items() if line.startswith("ray::_task")]
    servers = {p for p, (up, line) in found.items() if up == driver and "forkserver" in line}
    return [p for p, (parent, _) in found.items() if parent in servers]


def kill(who, driver, on_ray, records, due, rng):
    """Kill a driver or a worker at a random moment after so many records were written."""
    deadline = time.monotonic() + 200
    while True:
        assert time.monotonic() < deadline
        assert Path(f"/proc/{driver}").exists()
        if len(list(records.glob("*.json"))) >= due and workers_of(driver, on_ray):
            time.sleep(rng.uniform(0, 0.5))
            if alive := [driver] if who == "driver" else workers_of(driver, on_ray):
                os.kill(rng.choice(alive), signal.SIGKILL)
                return
        time.sleep(0.02)


def test_drivers_processes_and_ray_workers_are_killed(cluster, undisturbed, tmp_path):
    """One search by three drivers, the second one on Ray."""
    address, token = cluster
    drivers = [
        (("--jobs", "2"), ["worker"] * 2 + ["driver"]),
        (("--ray", address), ["worker", "driver"]),
        (("--jobs", "2"), ["worker"]),
    ]
    kills, rng, forks = 0, random.Random(0), Forks(**token)
    try:
        for engine, victims in drivers:
            driver = forks.start(*command(tmp_path, *engine))
            for who in victims:
                due = kills * (TRIALS - 6) // KILLS  # spread over the search
                records = tmp_path / "records" / "search"
                kill(who, driver, "--ray" in engine, records, due, rng)
                kills += 1
            assert forks.wait(driver) == (-signal.SIGKILL if who == "driver" else 0)
    finally:
        forks.close()
    assert kills == KILLS
    assert outcome(tmp_path) == undisturbed


@pytest.mark.skipif("LPUNITS_KILLS" not in os.environ, reason="takes minutes: `make kill`")
@pytest.mark.parametrize("on_ray", [False, True], ids=["processes", "ray"])
def test_many_kills(on_ray, cluster, undisturbed, tmp_path):
    """Searches whose driver or a worker is killed again and again, until there are enough kills."""
    address, token = cluster
    engine = ("--ray", address) if on_ray else ("--jobs", "2")
    kills, rng, forks = [], random.Random(1), Forks(**token)
    most = int(os.environ["LPUNITS_KILLS"])

    def moment():
        """When the next kill is due; None, if there were enough. A busy machine may need longer."""
        return rng.uniform(0.5, 6) if len(kills) < most else None

    try:
        while len(kills) < most:
            folder = tmp_path / str(len(kills))
            driver = forks.start(*command(folder, *engine))
            while (code := forks.wait(driver, moment())) is None:
                workers = workers_of(driver, on_ray)
                victim = rng.choice([driver, *workers])
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                kills.append(victim == driver)
                if victim == driver:
                    assert forks.wait(driver) == -signal.SIGKILL
                    driver = forks.start(*command(folder, *engine))
            assert code == 0
            assert outcome(folder) == undisturbed
    finally:
        forks.close()
    assert 0 < sum(kills) < len(kills)  # drivers and workers


def test_without_the_token_the_cluster_is_closed(cluster, tmp_path):
    address, token = cluster
    wrong = {**os.environ, **token, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    tokens = [sys.executable, "-m", "lpunits", *command(tmp_path, "--ray", address)]
    ended = subprocess.run(tokens, env=wrong, capture_output=True, text=True)
    assert ended.returncode == 1
    assert f"lpunits: --ray {address}: no cluster could be reached" in ended.stderr


def test_data_is_sent_to_where_it_is_not(cluster, tmp_path):
    address, environment = cluster
    savemat = pytest.importorskip("scipy.io").savemat
    count = np.arange(60)
    images = np.random.default_rng(0).integers(0, 256, (60, 48, 48), np.uint8)
    folds = np.stack([(count + k) % 3 + 1 for k in range(5)], 1)
    arrays = {"images": images, "labs_ex": count[:, None] % 7 + 1, "folds": folds}
    savemat(tmp_path / "TFD_48x48.mat", arrays)
    plan = Plan("fer2013", "smoke", settings=("data=tfd", "epochs=1"), trials=1)
    tokens = [sys.executable, "-m", "lpunits", *command(tmp_path, "--ray", address, plan=plan)]
    here = {"LPUNITS_DATA": str(tmp_path), "LPUNITS_CACHE": str(tmp_path / "cache")}
    subprocess.run(tokens, env={**os.environ, **environment, **here}, check=True)
    assert [status for status, *_ in outcome(tmp_path, plan)[2].values()] == ["finished"] * 2
    (sent,) = Path(environment["LPUNITS_CACHE"]).glob("shipped/*/TFD_48x48.mat")
    assert sent.read_bytes() == (tmp_path / "TFD_48x48.mat").read_bytes()


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_two_drivers_at_once(database, request, tmp_path):
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    if database == "postgresql":
        url = request.getfixturevalue("postgresql")
    plan = Plan("mnist", "smoke", settings=(*DATA, "epochs=1"), trials=6)
    folders, options = [tmp_path / "one", tmp_path / "two"], ("--storage", url, "--jobs", "1")
    drivers = [
        subprocess.Popen(
            [sys.executable, "-m", "lpunits", *command(f, *options, plan=plan)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for f in folders
    ]
    output = [driver.communicate() for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0], output
    trials, winner, first = outcome(folders[0], plan, url)
    _, _, second = outcome(folders[1], plan, url)
    assert first
    assert second
    assert not set(first) & set(second)  # no trial twice, the test of the winner included
    assert set(first) | set(second) == {key for *_, key in trials} | {winner["key"]}
