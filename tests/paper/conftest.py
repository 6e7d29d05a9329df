"""Every experiment at the scale smoke, run once for all tests that read its records."""

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
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which ``lpunits run all --scale smoke`` was run: records/, trials/."""
    folder = tmp_path_factory.mktemp("smoke")
    places = ("--records", str(folder / "records"), "--work", str(folder / "trials"))
    assert command("run", "all", "--scale", "smoke", *places) == 0
    return folder
