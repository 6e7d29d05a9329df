import gzip
import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

from lpunits.paper.data import sources
from lpunits.paper.data.sources import DataError, Source
from paper.data.damage import bit_flips, outcome, truncations

TEXT = b"the content of a file " * 50


def source(**changes: object) -> Source:
    def read(path: Path) -> bytes:
        data = sources.read_bytes(path, 10_000)
        sources.check_sha256(path, sources.sha256(data), hashlib.sha256(TEXT).hexdigest())
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
    assert sources.read_bytes(tmp_path / "a", len(TEXT)) == content


def test_gzip_of_several_members(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(
        gzip.compress(TEXT[:99], mtime=0) + gzip.compress(TEXT[99:], mtime=0)
    )
    assert sources.read_bytes(tmp_path / "a", len(TEXT)) == TEXT


@pytest.mark.parametrize("data", [TEXT, gzip.compress(TEXT), gzip.compress(bytes(10**8))], ids=len)
def test_never_more_than_the_limit(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(DataError, match="a: the file holds more than the 1000 bytes"):
        sources.read_bytes(tmp_path / "a", 1000)


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


def test_order_of_the_places(folder: Path) -> None:
    cache = sources.cache_folder()
    places = [
        folder / "sub" / "a.gz",
        folder / "sub" / "a",
        folder / "a.gz",
        cache / "sub" / "a.gz",
    ]
    for path in reversed(places):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(TEXT)
        assert source().find() == path
    assert source().present() == places


def test_missing_file_is_one_sentence_with_both_ways(folder: Path) -> None:
    with pytest.raises(DataError) as caught:
        source(url="http://localhost/a.gz", known_hash=HASH).find()
    message = str(caught.value)
    assert "run `lpunits data fetch example`, or ask for it" in message
    assert str(folder) in message
    assert str(sources.cache_folder()) in message
    assert "\n" not in message
    with pytest.raises(DataError, match=r"\): ask for it and put it"):
        source().find()


def test_cache_folder_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LPUNITS_CACHE")
    assert "lpunits" in str(sources.cache_folder())
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
    server: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = source(url=server, known_hash=HASH)
    path = sources.fetch(wanted)
    assert path == sources.cache_folder() / "sub" / "a.gz"
    assert wanted.read(path) == TEXT
    assert "100%" in capsys.readouterr().err  # the progress bar
    offline = source(url="http://127.0.0.1:9/a.gz", known_hash=HASH)
    assert sources.fetch(offline) == path
    (folder / "a").write_bytes(TEXT)
    assert sources.fetch(offline) == folder / "a"


def test_fetch_replaces_its_own_damaged_file_only(server: str, folder: Path) -> None:
    wanted = source(url=server, known_hash=HASH)
    damaged = sources.cache_folder() / "sub" / "a.gz"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"damaged")
    assert wanted.read(sources.fetch(wanted)) == TEXT
    (folder / "a").write_bytes(b"damaged")
    with pytest.raises(DataError, match="the file is damaged"):
        sources.fetch(wanted)
    assert (folder / "a").read_bytes() == b"damaged"


def test_fetch_refuses_another_file_and_leaves_nothing(server: str) -> None:
    with pytest.raises(DataError, match=r"example: http.* could not be downloaded .*hash"):
        sources.fetch(source(url=server, known_hash="sha256:" + "0" * 64))
    assert not any(path.is_file() for path in sources.cache_folder().rglob("*"))


def test_fetch_without_network_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    with pytest.raises(DataError) as caught:
        sources.fetch(source(url="http://127.0.0.1:9/a.gz", known_hash=HASH))
    assert "there is no connection to it): try again with a network, or ask for it" in str(
        caught.value
    )


def test_fetch_of_what_is_not_free() -> None:
    with pytest.raises(DataError, match=r"a\.gz cannot be downloaded freely: ask for it"):
        sources.fetch(source())


# Caching


def arrays(value: int = 1) -> sources.Arrays:
    return {"x": np.full((50, 3), value, np.int16), "y": np.arange(7, dtype=np.uint8)}


def same(a: sources.Arrays, b: sources.Arrays) -> bool:
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and np.array_equal(a[k], b[k]) for k in a
    )


def build_fails() -> sources.Arrays:
    raise AssertionError("it should have been kept")


def test_cached_is_built_once_for_a_key() -> None:
    assert same(sources.cached("name", "key", arrays), arrays())
    assert same(sources.cached("name", "key", build_fails), arrays())
    assert same(sources.cached("name", "other key", lambda: arrays(2)), arrays(2))
    assert same(sources.cached("name", "other key", build_fails), arrays(2))


def test_cached_files_can_be_changed_by_the_caller() -> None:
    sources.cached("name", "key", arrays)
    sources.cached("name", "key", build_fails)["x"][:] = 9
    assert same(sources.cached("name", "key", build_fails), arrays())


def test_damaged_cache_is_built_again() -> None:
    sources.cached("name", "key", arrays)
    path = sources.cache_folder() / "parsed" / "name.safetensors"
    good = path.read_bytes()
    for spoiled in [*truncations(good, 10), *bit_flips(good, 40)]:
        path.write_bytes(spoiled)
        assert same(sources.cached("name", "key", arrays), arrays())
        assert same(sources.cached("name", "key", build_fails), arrays())


def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LPUNITS_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="parsed cannot be made: Not a directory"):
        assert same(sources.cached("name", "key", arrays), arrays())
