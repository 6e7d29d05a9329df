"""A file is written completely or not at all, whatever happens in between."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lpunits import files


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


def test_leftovers_of_unknown_processes_go_after_a_day(tmp_path: Path) -> None:
    old, young = tmp_path / ".file.1.tmp", tmp_path / ".file.2.tmp"
    for path in (old, young):
        path.touch()
    os.utime(old, (0, 0))
    files.write_atomically(tmp_path / "file", b"new")
    assert not old.exists()
    assert young.exists()


@pytest.mark.skipif(not files.this_process().partition("-")[0], reason="needs /proc")
def test_files_of_processes_that_run_are_left_alone_and_those_of_others_go(tmp_path: Path) -> None:
    code = f"{LOAD}print(module['this_process'](), flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, files.__file__, ""]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as child:  # type: ignore[call-overload]
        name = child.stdout.readline().strip()
        partial = tmp_path / f".model.safetensors.{name}.0.tmp"
        partial.touch()
        os.utime(partial, (0, 0))
        for _ in range(2):
            files.remove_leftovers(tmp_path)
            assert partial.exists()
            assert files.is_alive(name)
            child.send_signal(signal.SIGSTOP)  # it may run again
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # nobody has asked for its end yet
        assert files.is_alive(name) is False
        files.remove_leftovers(tmp_path, "checkpoint")
        assert partial.exists()
        files.remove_leftovers(tmp_path)
        assert not partial.exists()
    machine, pid, started = files.this_process().split("-")
    assert files.is_alive(f"{machine}-{pid}-{started}1") is False  # its number is another's now
    assert files.is_alive(f"{machine}-{'9' * 30}-1") is False
    assert files.is_alive(f"0{machine}-{pid}-{started}") is None


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
