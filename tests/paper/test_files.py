import gzip
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

from lpunits.paper.data import files
from lpunits.paper.files import DataError, Source
from paper.data.damage import bit_flips, outcome, truncations

TEXT = b"the content of a file " * 50


def source(**changes: object) -> Source:
    def read(path: Path) -> bytes:
        data = files.read_bytes(path, 10_000)
        files.check_sha256(path, data, hashlib.sha256(TEXT).hexdigest())
        return data

    facts: dict[str, object] = {
        "dataset": "example",
        "folder": "sub",
        "names": ("a.gz", "a"),
        "read": read,
        "manual": "ask for it",
    }
    return Source(**(facts | changes))  # type: ignore[arg-type]


# Reading


@pytest.mark.parametrize("content", [TEXT, b""])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_plain_and_gzip_are_read_alike(
    tmp_path: Path, pack: Callable[[bytes], bytes], content: bytes
) -> None:
    (tmp_path / "a").write_bytes(pack(content))
    assert files.read_bytes(tmp_path / "a", len(TEXT)) == content


def test_gzip_of_several_members(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(
        gzip.compress(TEXT[:99], mtime=0) + gzip.compress(TEXT[99:], mtime=0)
    )
    assert files.read_bytes(tmp_path / "a", len(TEXT)) == TEXT


@pytest.mark.parametrize("data", [TEXT, gzip.compress(TEXT), gzip.compress(bytes(10**8))], ids=len)
def test_never_more_than_the_limit(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(DataError, match="a: the file holds more than the 1000 bytes"):
        files.read_bytes(tmp_path / "a", 1000)


def test_damaged_gzip(tmp_path: Path) -> None:
    good = gzip.compress(TEXT, mtime=0)
    path = tmp_path / "a.gz"
    for spoiled in truncations(good):
        path.write_bytes(spoiled)
        with pytest.raises(DataError, match=r"a\.gz: "):
            source().read(path)
    for spoiled in bit_flips(good):
        path.write_bytes(spoiled)
        result = outcome(source().read, path)
        # Some bits of the gzip header mean nothing.
        assert result == TEXT or result.startswith(f"{path}: ")


# Finding


def test_order_of_the_places(data: Path) -> None:
    cache = files.cache_folder()
    places = [data / "sub" / "a.gz", data / "sub" / "a", data / "a.gz", cache / "sub" / "a.gz"]
    for path in reversed(places):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(TEXT)
        assert source().find() == path
    assert source().present() == places


def test_missing_file_is_one_sentence_with_both_ways(data: Path) -> None:
    with pytest.raises(DataError) as caught:
        source(url="http://localhost/a.gz").find()
    message = str(caught.value)
    assert "run `lpunits data fetch example`, or ask for it" in message
    assert str(data) in message
    assert str(files.cache_folder()) in message
    assert "\n" not in message
    with pytest.raises(DataError, match=r"\): ask for it and put it"):
        source().find()


def test_cache_folder_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LPUNITS_CACHE")
    assert "lpunits" in str(files.cache_folder())
    monkeypatch.delenv("LPUNITS_DATA")
    with pytest.raises(DataError, match="LPUNITS_DATA \\(not set\\)"):
        source(names=("no-such-file",)).find()


# Fetching


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a web server on this machine that serves TEXT, packed, under every name."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = gzip.compress(TEXT, mtime=0)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setenv("NO_PROXY", "*")
    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/a.gz"
        http.shutdown()
        thread.join()


HASH = "sha256:" + hashlib.sha256(gzip.compress(TEXT, mtime=0)).hexdigest()


def test_fetch_downloads_checks_and_keeps(
    server: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = source(url=server, known_hash=HASH)
    path = files.fetch(wanted)
    assert path == files.cache_folder() / "sub" / "a.gz"
    assert wanted.read(path) == TEXT
    assert "a.gz" in capsys.readouterr().err  # the progress bar
    offline = source(url="http://127.0.0.1:9/a.gz", known_hash=HASH)
    assert files.fetch(offline) == path
    (data / "a").write_bytes(TEXT)
    assert files.fetch(offline) == data / "a"


def test_fetch_replaces_a_damaged_download_but_not_the_users_file(server: str, data: Path) -> None:
    wanted = source(url=server, known_hash=HASH)
    damaged = files.cache_folder() / "sub" / "a.gz"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"damaged")
    assert wanted.read(files.fetch(wanted)) == TEXT
    (data / "a").write_bytes(b"damaged")
    with pytest.raises(DataError, match="the file is damaged"):
        files.fetch(wanted)
    assert (data / "a").read_bytes() == b"damaged"


def test_fetch_refuses_another_file_and_leaves_nothing(server: str) -> None:
    with pytest.raises(DataError, match=r"example: http.* could not be downloaded .*hash"):
        files.fetch(source(url=server, known_hash="sha256:" + "0" * 64))
    assert not any(path.is_file() for path in files.cache_folder().rglob("*"))


def test_fetch_without_network_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    with pytest.raises(DataError) as caught:
        files.fetch(source(url="http://127.0.0.1:9/a.gz", known_hash=HASH))
    assert "there is no connection to it): try again with a network, or ask for it" in str(
        caught.value
    )


def test_fetch_of_what_is_not_free() -> None:
    with pytest.raises(DataError, match=r"a\.gz cannot be downloaded freely: ask for it"):
        files.fetch(source())


# Writing


def arrays(value: int = 1) -> files.Arrays:
    return {"x": np.full((50, 3), value, np.int16), "y": np.arange(7, dtype=np.uint8)}


def same(a: files.Arrays, b: files.Arrays) -> bool:
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and np.array_equal(a[k], b[k]) for k in a
    )


def build_fails() -> files.Arrays:
    raise AssertionError("it should have been kept")


def test_cached_is_built_once_for_a_key() -> None:
    assert same(files.cached("name", "key", arrays), arrays())
    assert same(files.cached("name", "key", build_fails), arrays())
    assert same(files.cached("name", "other key", lambda: arrays(2)), arrays(2))
    assert same(files.cached("name", "other key", build_fails), arrays(2))


def test_cached_files_can_be_changed_by_the_caller() -> None:
    files.cached("name", "key", arrays)
    files.cached("name", "key", build_fails)["x"][:] = 9
    assert same(files.cached("name", "key", build_fails), arrays())


def test_damaged_cache_is_built_again() -> None:
    files.cached("name", "key", arrays)
    path = files.cache_folder() / "parsed" / "name.safetensors"
    good = path.read_bytes()
    for spoiled in [*truncations(good, 10), *bit_flips(good, 40)]:
        path.write_bytes(spoiled)
        assert same(files.cached("name", "key", arrays), arrays())
        assert same(files.cached("name", "key", build_fails), arrays())


def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LPUNITS_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="parsed cannot be made: Not a directory"):
        assert same(files.cached("name", "key", arrays), arrays())


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


# A child loads files.py by itself: the whole package would take a second to import each time.
LOAD = """
import importlib.util, os, resource, signal, sys
from pathlib import Path
import numpy as np
spec = importlib.util.spec_from_file_location("files", sys.argv[1])
files = sys.modules["files"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(files)
"""
LIMITED = f"""{LOAD}
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    files.write_atomically(Path(sys.argv[2]), bytes(5000))
except files.StorageError as error:
    print(error)
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no limit on the size of a file")
def test_a_write_that_the_system_breaks_off_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    files.write_atomically(path, b"old")
    command = [sys.executable, "-c", LIMITED, files.__file__, str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == f"{path} cannot be written: File too large\n"
    assert [(p.name, p.read_bytes()) for p in path.parent.iterdir()] == [("file", b"old")]


CHILD = f"""{LOAD}
where = sys.argv[2]
if where != "anywhere":
    def stop_here(*_):
        print("now", flush=True)
        signal.pause()
    setattr(os, where, stop_here)
for n in range(10**6):
    if where == "anywhere":
        print("now", flush=True)
    files.cached("killed", f"key {{n}}", lambda: {{"x": np.full(2_000_000, n % 100, np.uint8)}})
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
@pytest.mark.parametrize("where", ["fsync", "replace", *["anywhere"] * 4])
@pytest.mark.parametrize("before", [None, 7])
def test_kill_9_during_a_write(where: str, before: int | None, tmp_path: Path) -> None:
    path = files.cache_folder() / "parsed" / "killed.safetensors"
    if before is not None:
        files.cached("killed", "before", lambda: {"x": np.full(100, before, np.uint8)})
    old = path.read_bytes() if before is not None else None
    command = [sys.executable, "-c", CHILD, files.__file__, where]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for _ in range(1 if where != "anywhere" else 3):
            assert child.stdout.readline() == b"now\n"
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    if where != "anywhere":
        assert (path.read_bytes() if path.exists() else None) == old
        assert list(path.parent.glob(".*.tmp")), "the write was not under way"
    if path.exists():  # what lies there is whole: the old file, or one that the child finished
        from safetensors import safe_open

        with safe_open(path, "np") as file:
            facts = file.metadata()
            assert facts["sha256"] == files.arrays_sha256({"x": file.get_tensor("x")})
    assert same(files.cached("killed", "after", arrays), arrays())
    assert same(files.cached("killed", "after", build_fails), arrays())
