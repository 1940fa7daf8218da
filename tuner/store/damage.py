"""Whether a SQLite file is still whole: one that lost its end (a full disk, a copy cut short) must not be gone on with.

SQLite itself notices only pages that it reads, and while a write-ahead log lies beside the file not even that pages are
missing.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import text
from sqlalchemy.orm import Session

from tuner.errors import StorageError
from tuner.store.database import Database
from tuner.store.urls import is_sqlite, shown, sqlite_file


def refuse_damaged(database: Database) -> None:
    """Look at every page of a SQLite file: a second for half a gigabyte. PostgreSQL has checksums of its own.

    Raises:
        StorageError: the file is damaged; what to do is said.
    """
    if not is_sqlite(database.url):
        return

    def look(session: Session) -> tuple[str, int]:
        # https://www.sqlite.org/pragma.html#pragma_quick_check: `ok`, or the first fault that it meets.
        fault = session.scalars(text("PRAGMA quick_check(1)")).one()
        return fault, session.scalars(text("PRAGMA page_size")).one()

    fault, page_size = database.read(look)
    file = sqlite_file(database.url)
    if fault == "ok" and (file is None or not _ends_within_a_page(file, page_size)):
        return
    reason = "its last page is cut" if fault == "ok" else fault.splitlines()[-1]
    copy = f"`sqlite3 {file} .recover | sqlite3 NEW`" if file is not None else "`.recover` of the program sqlite3"
    raise StorageError(
        f"{shown(database.url)} is damaged, so nothing is added to it: {reason}",
        hint=f"restore it from a copy; {copy} saves what can be read of it",
    )


def _ends_within_a_page(file: Path, page_size: int) -> bool:
    """What lies in a write-ahead log may be a page that the file was to get when the power failed."""
    log = file.with_name(f"{file.name}-wal")
    return bool(file.stat().st_size % page_size) and not (log.exists() and log.stat().st_size)
