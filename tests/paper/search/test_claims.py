"""Claims: one driver at a time has something, and a dead one does not keep it."""

import os
import signal
import sqlite3
import sys
import time
from contextlib import closing

import pytest
import sqlalchemy

from lpunits.files import StorageError
from lpunits.paper.search import claims
from lpunits.paper.search.claims import FILE, TABLE, Claims, shared


def test_two_runs_share_and_what_is_given_up_is_free(tmp_path):
    with shared(tmp_path / "new") as one:
        with shared(tmp_path / "new") as two:
            assert one.claim("a")
            assert not one.claim("a")  # it has it
            assert not two.claim("a")
            assert two.claim("b")
            one.release("a")
            assert two.claim("a")
            assert two.beat() == set()
        assert one.claim("a")
        assert one.claim("b")
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'new' / FILE}")
    with engine.connect() as database:
        assert database.execute(sqlalchemy.select(TABLE)).all() == []
    engine.dispose()


def test_scopes_do_not_meet(tmp_path):
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    assert Claims(engine, "first").claim("a")
    assert Claims(engine, "second").claim("a")
    engine.dispose()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_claim_of_a_killed_process_passes_at_once(tmp_path):
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        with shared(tmp_path) as mine:
            os.write(writer, bytes([mine.claim("a")]))
            time.sleep(100)
        os._exit(0)
    assert os.read(reader, 1) == b"\1"
    with shared(tmp_path) as one, shared(tmp_path) as two:
        assert not one.claim("a")
        os.kill(process, signal.SIGKILL)
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)  # a zombie does not keep it either
        assert [one.claim("a"), two.claim("a")] == [True, False]
        os.waitpid(process, 0)
    os.close(reader), os.close(writer)


def test_a_run_shows_that_it_is_alive(tmp_path, monkeypatch, clock):
    monkeypatch.setattr(claims, "HEARTBEAT", 0.05)
    monkeypatch.setattr(claims, "is_alive", lambda process: None)  # as if on another machine
    with (
        closing(sqlite3.connect(tmp_path / FILE)) as database,
        shared(tmp_path) as one,
        shared(tmp_path) as two,
    ):

        def beats():
            return database.execute(f"SELECT beats FROM {TABLE.name}").fetchone()

        assert one.claim("a")
        deadline = time.monotonic() + 60
        for _ in range(3):
            assert not two.claim("a")
            seen = beats()
            clock.now += 0.9 * claims.GRACE
            while beats() == seen:
                assert time.monotonic() < deadline
                time.sleep(0.01)


def test_a_damaged_file_is_told_in_a_sentence(tmp_path):
    (tmp_path / FILE).write_text("not a database, but a text that is long enough" * 50)
    sentence = rf"{FILE} could not be opened: .*not a database"
    with pytest.raises(StorageError, match=sentence), shared(tmp_path):
        pass
