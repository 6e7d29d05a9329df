"""A file is written completely or not at all, whatever happens in between."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lpunits.paper import files


def test_a_failed_write_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    files.write_atomically(path, b"old")

    def full(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(files.StorageError, match="file cannot be written: no space"):
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.glob(".*")) == []


def test_leftovers_of_killed_processes_go_after_a_day(tmp_path: Path) -> None:
    old, young = tmp_path / ".file.1.tmp", tmp_path / ".file.2.tmp"
    for path in (old, young):
        path.touch()
    os.utime(old, (0, 0))
    files.write_atomically(tmp_path / "file", b"new")
    assert not old.exists()
    assert young.exists()


# A child loads files.py alone: importing the whole package would take a second each time.
LOAD = """
import os, resource, runpy, signal, sys
from pathlib import Path
module = runpy.run_path(sys.argv[1])
write, path = module["write_atomically"], Path(sys.argv[2])
"""
LIMITED = f"""{LOAD}
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write(path, bytes(5000))
except module["StorageError"] as error:
    print(error)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit on the size of a file")
def test_a_write_over_the_size_limit_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    files.write_atomically(path, b"old")
    command = [sys.executable, "-c", LIMITED, files.__file__, str(path)]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    assert child.stdout == f"{path} cannot be written: File too large\n"
    assert [(p.name, p.read_bytes()) for p in path.parent.iterdir()] == [("file", b"old")]


CHILD = f"""{LOAD}
where = sys.argv[3]
if where != "anywhere":
    def stop_here(*_):
        print("now", flush=True)
        signal.pause()
    setattr(os, where, stop_here)
for n in range(10**6):
    if where == "anywhere":
        print("now", flush=True)
    write(path, bytes([n % 256]) * 2_000_000)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
@pytest.mark.parametrize("where", ["fsync", "replace", *["anywhere"] * 4])
@pytest.mark.parametrize("old", [None, b"old"])
def test_kill_9_during_a_write(where: str, old: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if old is not None:
        path.write_bytes(old)
    command = [sys.executable, "-c", CHILD, files.__file__, str(path), where]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for _ in range(1 if where != "anywhere" else 3):
            assert child.stdout.readline() == b"now\n"
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    content = path.read_bytes() if path.exists() else None
    if where == "anywhere":  # the first two writes at least were completed
        assert content is not None
        assert content == content[:1] * 2_000_000
    else:
        assert content == old
        assert list(tmp_path.glob(".*.tmp")), "the write was not under way"
    files.write_atomically(path, b"after")
    assert path.read_bytes() == b"after"
