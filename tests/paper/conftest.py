"""Every experiment at the scale smoke, run once; a PostgreSQL of the tests' own."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("cyclopts", reason="needs lpunits[paper]")

from forks import Forks

import lpunits_cli


def command(*tokens: str) -> int:
    """The exit code of the command line."""
    try:
        lpunits_cli.main(list(tokens))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Runs the command line in forks of one process."""
    forks = Forks()
    yield forks
    forks.close()


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which ``lpunits run all --scale smoke`` was run: records/, trials/."""
    folder = tmp_path_factory.mktemp("smoke")
    places = ("--records", str(folder / "records"), "--work", str(folder / "trials"))
    assert command("run", "all", "--scale", "smoke", *places) == 0
    return folder


@pytest.fixture(scope="module")
def browser():
    """Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs chromium")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def _postgresql_server():
    """The URL of a server on a free port, in a folder that is thrown away."""
    pytest.importorskip("psycopg", reason="needs psycopg")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = shutil.which("initdb") or (str(found[-1]) if found else None)
    if initdb is None:
        pytest.skip("there is no PostgreSQL")
    programs = Path(initdb).resolve().parent
    user = []
    if os.geteuid() == 0:  # the server refuses to run as root
        if shutil.which("runuser") is None:
            pytest.skip("PostgreSQL does not run as root, and there is no runuser")
        user = ["runuser", "-u", "nobody", "--"]
    folder = Path(tempfile.mkdtemp(prefix="lpunits-postgresql-"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    try:
        if user:
            shutil.chown(folder, "nobody")
        # A database that is thrown away need not survive a power cut.
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        data, log = folder / "data", folder / "log"
        settings = {"check": True, "capture_output": True, "cwd": folder}
        new = [programs / "initdb", "-D", data, "-A", "trust", "-U", "tester", "--no-sync"]
        subprocess.run([*user, *new], **settings)
        control = [*user, programs / "pg_ctl", "-D", data, "-w"]
        subprocess.run([*control, "-l", log, "-o", options, "start"], **settings)
        try:
            yield f"postgresql://tester@127.0.0.1:{port}/"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **settings)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def postgresql(_postgresql_server):
    """The URL of an empty database."""
    import psycopg

    name = f"test_{os.urandom(4).hex()}"
    with psycopg.connect(f"{_postgresql_server}postgres", autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
    return _postgresql_server + name
