"""Every experiment at the scale smoke, run once for all tests that read its records."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("cyclopts", reason="needs lpunits[paper]")

from lpunits import cli


def command(*tokens: str) -> int:
    """The exit code of the command line."""
    try:
        cli.main(list(tokens))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


@pytest.fixture(scope="session")
def nursery() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs the command line in forks of itself, see lives.py."""
    script = Path(__file__).with_name("lives.py")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, str(script)], **pipes, bufsize=0) as process:
        yield process
        process.kill()


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which ``lpunits run all --scale smoke`` was run: records/, trials/."""
    folder = tmp_path_factory.mktemp("smoke")
    places = ("--records", str(folder / "records"), "--work", str(folder / "trials"))
    assert command("run", "all", "--scale", "smoke", *places) == 0
    return folder
