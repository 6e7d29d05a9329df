"""Claims: which driver does what, when several work on one search or on one folder of records.

A driver is a run of ``lpunits run`` or ``lpunits search``. It does what it has claimed in a table.
Each claim is a row with its driver and a counter, which the driver increases while it is alive. A
claim passes to another driver, by one conditional update that only one driver can win,

* at once if the driver's process ran on this machine and has ended, even by ``kill -9``;
* otherwise if the counter does not change for ``GRACE`` seconds. Clocks of different machines are
  never compared.
"""

import secrets
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from lpunits.files import StorageError, is_alive, make_folder, this_process

HEARTBEAT, GRACE = 2.0, 10.0  # seconds
FILE = ".claims.db"  # in a folder of records


TABLE = sql.Table(
    "lpunits_claimed",
    sql.MetaData(),
    sql.Column("scope", sql.String(500), primary_key=True),
    sql.Column("name", sql.String(100), primary_key=True),
    sql.Column("driver", sql.String(100), nullable=False),
    sql.Column("beats", sql.Integer, nullable=False),
)


class Claims:
    """The claims of one driver.

    Args:
        engine: The database, which has the table.
        scope: What the names belong to, such as a search.
    """

    def __init__(self, engine: sql.Engine, scope: str) -> None:
        self._engine, self._scope = engine, scope
        self._driver = f"{this_process()}.{secrets.token_hex(4)}"
        self._has_table = False
        self._mine: set[str] = set()
        # Claims of other drivers: driver, counter, and when this was first seen.
        self._others: dict[str, tuple[str, int, float]] = {}

    def claim(self, name: str) -> bool:
        """Try to claim something for this driver; whether it succeeded."""
        if name in self._mine:
            return False
        self._make_table()
        row = (TABLE.c.scope == self._scope) & (TABLE.c.name == name)
        mine = {"driver": self._driver, "beats": 0}
        with self._engine.begin() as database:
            other = database.execute(
                sql.select(TABLE.c.driver, TABLE.c.beats).where(row)
            ).one_or_none()
        if other is not None and not self._has_ended(name, *other):
            return False
        try:
            with self._engine.begin() as database:
                if other is None:
                    new = {"scope": self._scope, "name": name, **mine}
                    database.execute(TABLE.insert().values(new))
                else:
                    row &= (TABLE.c.driver == other.driver) & (TABLE.c.beats == other.beats)
                    if database.execute(TABLE.update().where(row).values(mine)).rowcount != 1:
                        return False
        except sql.exc.IntegrityError:  # another driver was faster
            return False
        self._mine.add(name)
        return True

    def beat(self) -> set[str]:
        """Increase the counters of this driver; what others have taken over since the last time."""
        if not self._mine:
            return set()
        mine = (TABLE.c.scope == self._scope) & (TABLE.c.driver == self._driver)
        claimed = set(self._mine)
        with self._engine.begin() as database:
            database.execute(TABLE.update().where(mine).values(beats=TABLE.c.beats + 1))
            held = set(database.execute(sql.select(TABLE.c.name).where(mine)).scalars())
        lost = claimed & self._mine - held
        self._mine -= lost
        return lost

    def release(self, *names: str) -> None:
        """Give up claims, by default all, so that the next driver does not have to wait."""
        if not self._mine:
            return
        mine = (TABLE.c.scope == self._scope) & (TABLE.c.driver == self._driver)
        if names:
            mine &= TABLE.c.name.in_(names)
        self._mine -= set(names) or set(self._mine)
        with self._engine.begin() as database:
            database.execute(TABLE.delete().where(mine))

    def _make_table(self) -> None:
        if self._has_table:
            return
        try:
            TABLE.create(self._engine, checkfirst=True)
        except sql.exc.DBAPIError:
            if not sql.inspect(self._engine).has_table(TABLE.name):  # by another driver, just now
                raise
        self._has_table = True

    def _has_ended(self, name: str, driver: str, beats: int) -> bool:
        if is_alive(driver.partition(".")[0]) is False:
            return True
        seen = self._others.get(name, ("", 0, 0.0))
        if seen[:2] != (driver, beats):
            self._others[name] = (driver, beats, time.monotonic())
            return False
        return time.monotonic() - seen[2] >= GRACE


@contextmanager
def shared(folder: Path) -> Iterator[Claims]:
    """The claims of a run on the trials of a folder of records; a thread shows that it is alive."""
    make_folder(folder)
    url = sql.URL.create("sqlite", database=str(folder / FILE))
    with readable_errors(url):
        engine = connected(url, lambda: sql.create_engine(url, connect_args={"timeout": 60}))
        claims, ended = Claims(engine, "run"), threading.Event()

        def beat() -> None:
            while not ended.wait(HEARTBEAT):
                with suppress(sql.exc.SQLAlchemyError):  # if it persists, the next claim raises it
                    claims.beat()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield claims
        finally:
            ended.set()
            thread.join()
            with suppress(sql.exc.SQLAlchemyError):  # an earlier error matters more
                claims.release()
            engine.dispose()


def connected(url: sql.URL, connect: Callable[[], Any], option: str = "") -> Any:
    """What ``connect`` returns, which has an engine: several drivers may be about to make it."""
    if url.drivername == "sqlite" and Path(url.database or "").is_file():
        _check_has_no_program(Path(url.database or ""), option)
    for wait in (0.1, 0.3, 1.0, None):
        try:
            connection = connect()
            if url.drivername == "sqlite":
                sql.event.listen(connection.engine, "connect", _write_ahead)
                connection.engine.dispose()  # older connections
            connection.engine.connect().close()
            return connection
        except sql.exc.SQLAlchemyError as error:
            if wait is None:
                sentence = f"{option}{_shown(url)} could not be opened: {_reason(error, url)}"
                raise StorageError(sentence) from error
            time.sleep(wait)
    raise AssertionError


def _check_has_no_program(path: Path, option: str) -> None:
    """Refuse a view or a trigger: a query that meets one runs it, and it may never end."""
    query = "SELECT type, name FROM sqlite_master WHERE type NOT IN ('table', 'index')"
    with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as database:
        # What is no database at all is for `connect` to report.
        if program := database.execute(query).fetchone():
            kind, name = program
            raise StorageError(
                f"{option}{path} has the {kind} {name!r:.60}: a file of tables alone is expected"
            )


@contextmanager
def readable_errors(
    url: sql.URL, errors: tuple[type[Exception], ...] = (sql.exc.DBAPIError,)
) -> Iterator[None]:
    """Turn errors of the database into one sentence."""
    try:
        yield
    except errors as error:
        raise StorageError(f"{_shown(url)} failed: {_reason(error, url)}") from error


def _shown(url: sql.URL) -> str:
    if url.drivername == "sqlite":
        return str(url.database)
    return url.render_as_string(hide_password=True)


def _reason(error: BaseException, url: sql.URL) -> str:
    """The message of the database in one line. SQLite does not report a full disk as such."""
    while error.__cause__ is not None:
        error = error.__cause__
    reason = " ".join(str(error).split())
    if url.database and url.drivername == "sqlite":
        free = shutil.disk_usage(Path(url.database).parent).free
        reason += f" ({free:,} bytes are free on that disk)"
    return reason


def _write_ahead(connection: Any, _: object) -> None:
    """Keep SQLite from waiting for the disk at every step, most of the cost of a short trial.

    A killed process loses nothing. A power cut can lose the last steps. The records are on disk,
    and the study gets those results again from them.
    """
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
