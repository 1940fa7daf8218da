"""The store: every question and every change that the rest of tuner has for the database.

Its parts are `Studies`, `Attempts` and `Probes`; this module opens it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tuner.store.attempts import Attempts
from tuner.store.damage import refuse_damaged
from tuner.store.database import PATIENCE_S, Database, Result
from tuner.store.migrate import prepare
from tuner.store.probes import Probes
from tuner.store.studies import Studies
from tuner.store.urls import default_url, parse_url, shown


def open_store(
    url: str | None = None,
    *,
    create: bool = True,
    patience_s: float = PATIENCE_S,
    clock: Callable[[], float] = time.time,
) -> Store:
    """Open the database, and bring its schema to this version.

    Args:
        url: `sqlite:///FILE`, `postgresql://…`; None takes `default_url()`.
        create: make file and tables where there are none.
        patience_s: how long later calls wait for a database that is away; opening itself fails within seconds.
        clock: seconds since the epoch.

    Raises:
        StorageError: out of reach, not writable, no tuner database, or written by a newer tuner.
    """
    database = Database(parse_url(url or default_url()), patience_s)
    try:
        prepare(database, create=create)
    except BaseException:
        database.close()
        raise
    return Store(database, clock)


class Store(Studies, Attempts, Probes):
    """What is remembered. Every method raises StorageError when the database stays out of reach.

    Make one with `open_store`; it is a context manager.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._database.close()

    def refuse_damaged(self) -> None:
        """Make sure, before a study adds to it, that the database is whole.

        Raises:
            StorageError: a SQLite file is damaged, or lost its end.
        """
        refuse_damaged(self._database)

    def patiently(self, work: Callable[[], Result]) -> Result:
        """Call what uses this database through another library, as patiently as our own transactions.

        It is called again from its beginning, so it must give the same result when it was done already.
        """
        return self._database.patiently(work)

    def tell_when_away(self, tell: Callable[[str], None]) -> None:
        """Have a line told when a call begins to wait for a database that is away, and when that is back.

        Args:
            tell: gets the line; without it a call waits in silence.
        """
        self._database.tell = tell

    @property
    def url(self) -> str:
        """The URL for people: without its password."""
        return shown(self._database.url)
