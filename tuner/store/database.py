"""One database, whichever kind: connections, transactions, and patience while the server is away."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import structlog
from pydantic_core import from_json
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from tuner.errors import StorageError
from tuner.store.absence import Absence, Tell
from tuner.store.troubles import database_error, explained, is_conflict, may_pass
from tuner.store.urls import is_sqlite, shown, sqlite_file

Result = TypeVar("Result")

CONNECT_TIMEOUT_S = 5
PATIENCE_S = 120.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 3.0
_WRITES = "tuner_writes"
_FILE = "tuner_file"
_log = structlog.get_logger(__name__)


class Database:
    """Connections to one database, and transactions that outlast a restart of its server.

    Args:
        url: from `parse_url`.
        patience_s: how long a transaction is tried again while the database is unreachable or locked.
    """

    def __init__(self, url: URL, patience_s: float = PATIENCE_S) -> None:
        self.url = url
        self._patience_s = patience_s
        self._is_given_up = False
        self.tell: Tell | None = None
        """Gets a line when a transaction begins to wait for the database, and when that answers again."""
        self.engine = _engine(url)
        self.writer = self.engine.execution_options(**{_WRITES: True})

    def read(self, work: Callable[[Session], Result]) -> Result:
        """Run `work` in a transaction that changes nothing.

        Raises:
            StorageError: the database is still out of reach after `patience_s`, or refuses, or what it holds cannot be
                read.
        """
        try:
            return self._patiently(self.engine, work)
        except ValueError as damage:
            # Text that is no UTF-8, JSON or name of ours: somebody else wrote there, or the disk did.
            _log.exception("unreadable_record", storage=shown(self.url))
            reason = str(damage).splitlines()[0]
            raise StorageError(
                f"{shown(self.url)} is damaged: {reason}", hint="restore it from a copy, or give another --storage"
            ) from damage

    def write(self, work: Callable[[Session], Result]) -> Result:
        """Run `work` in one transaction: all of it is stored, or nothing.

        When the connection breaks during the commit nobody knows whether it was stored; `work` then runs again, so
        it must give the same result when its own changes are already there.

        Raises:
            StorageError: the database is still out of reach after `patience_s`, or refuses.
        """
        return self._patiently(self.writer, work)

    def _patiently(self, engine: Engine, work: Callable[[Session], Result]) -> Result:
        def transaction() -> Result:
            with Session(engine, expire_on_commit=False) as session, session.begin():
                return work(session)

        return self.patiently(transaction)

    def patiently(self, work: Callable[[], Result]) -> Result:
        """Call something that uses this database, again while the database is away.

        Once it was waited for in vain, later calls fail at once until it answers again: what is left to do when a study
        ends would wait as long for each of its steps.

        Raises:
            StorageError: it is still out of reach after `patience_s`, or refuses.
        """
        pause = _FIRST_PAUSE_S
        with Absence(shown(self.url), self._patience_s, self.tell) as absence:
            while True:
                try:
                    result = work()
                except Exception as failure:
                    error = database_error(failure)
                    if error is None:
                        raise
                    trouble = explained(error, self.url)
                    if not may_pass(error):
                        raise trouble from failure
                    if self._is_given_up or time.monotonic() + pause > absence.deadline:
                        self._is_given_up = True
                        raise trouble from failure
                    if not is_conflict(error):
                        absence.failed(trouble.message)
                else:
                    self._is_given_up = False
                    return result
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def _engine(url: URL) -> Engine:
    if not is_sqlite(url):
        # Keepalives and tcp_user_timeout (ms) notice a server that vanished without a word within half a minute.
        watch = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
        given = {"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "tuner", **watch}
        connect_args = {name: value for name, value in given.items() if name not in url.query}
        return create_engine(url, pool_pre_ping=True, connect_args=connect_args, json_deserializer=from_json)
    engine = create_engine(url, connect_args={"timeout": CONNECT_TIMEOUT_S}, json_deserializer=from_json)
    event.listen(engine, "connect", _prepare_sqlite)
    if (file := sqlite_file(url)) is not None:
        event.listen(engine, "begin", lambda connection: _refuse_another_file(connection, file))
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _identity(file: Path) -> tuple[int, int] | None:
    """What tells a file from another of the same name; None where there is none."""
    with contextlib.suppress(OSError):
        known = file.stat()
        return known.st_dev, known.st_ino
    return None


def _refuse_another_file(connection: Connection, file: Path) -> None:
    """SQLite goes on writing to a file that was deleted, and everything is gone when its last user ends.

    Raises:
        StorageError: the file is not the one that was opened.
    """
    now = _identity(file)
    # A new file may not be there before its first transaction.
    opened = connection.info.get(_FILE) or now
    connection.info[_FILE] = opened
    if opened != now:
        raise StorageError(
            f"{file} was deleted or replaced while it was in use",
            hint="what was recorded in it is gone, unless you have a copy; leave it alone while a study runs",
        )


def _prepare_sqlite(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    """Take transactions out of the driver's hands, and let SQLite check foreign keys.

    Python's sqlite3 opens a transaction only before INSERT, UPDATE and DELETE, so that schema changes would not
    roll back: https://docs.sqlalchemy.org/en/21/dialects/sqlite.html (section on pysqlite's transactions).
    """
    driver: Any = connection
    driver.isolation_level = None
    driver.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    """A writer takes the lock at once: a reader that turns into a writer later fails without waiting."""
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
