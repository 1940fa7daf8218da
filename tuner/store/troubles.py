"""What a database error means: does waiting help, and what does the user read?

SQLite's words are those of sqlite3's result codes (https://www.sqlite.org/rescode.html), PostgreSQL's SQLSTATE codes
those of its manual's appendix A. libpq gives no SQLSTATE when it never got a connection, so there its words decide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from tuner.errors import StorageError
from tuner.secrets import HIDDEN, redact
from tuner.store.urls import shown

# Two writers made the same row at once (the second look finds it), serialisation and deadlock.
_CONFLICTS = frozenset({"23505", "40001", "40P01"})
# Class 08 is connection loss; the others: too many connections, shutdown, crash, start-up.
_PASSING_STATES = _CONFLICTS | {"53300", "57P01", "57P02", "57P03"}


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Words in the driver's message → what the user reads; `passing` when waiting can help."""

    pattern: str
    message: str
    hint: str
    passing: bool = False


_TROUBLES = (
    _Trouble(
        r"file is not a database|malformed",
        "{url} is not a SQLite database, or is damaged",
        "give another file, or restore it from a copy",
    ),
    _Trouble(
        r"readonly database",
        "{url} is read-only",
        "make the file and its folder writable, or give another --storage",
    ),
    _Trouble(
        r"read-only (transaction|sql)|cannot execute \w+ in a read-only",
        "{url} is read-only",
        "is it a standby, or set to default_transaction_read_only? Give the server that takes writes",
    ),
    _Trouble(
        r"unable to open database file",
        "cannot open {url}: the folder is missing or not writable",
        "make the folder, or give another --storage",
    ),
    _Trouble(
        r"database (table )?is locked|busy",
        "{url} is locked by another program",
        "end the program that holds it",
        passing=True,
    ),
    _Trouble(r"disk is full|No space left", "no space left for {url}", "free some space; nothing recorded is lost"),
    _Trouble(
        r"password authentication failed|no password supplied|authentication failed|no pg_hba\.conf entry",
        "{url} refuses this user and password",
        "check user and password in the URL",
    ),
    _Trouble(r'role "[^"]*" does not exist', "{url} knows no such user", "check the user in the URL"),
    _Trouble(r'database "[^"]*" does not exist', "the server of {url} has no such database", "make it with createdb"),
    _Trouble(
        r"permission denied", "{url} does not let this user make or change tables", "grant CREATE on the schema to it"
    ),
    _Trouble(
        r"too many (connections|clients)|starting up|shutting down",
        "{url} accepts no connection now",
        "wait, or raise max_connections",
        passing=True,
    ),
    _Trouble(
        r"could not translate host|failed to resolve host|name or service not known",
        "the host of {url} is unknown",
        "check the host in the URL",
        passing=True,
    ),
    _Trouble(
        r"connection (refused|failed|timeout|reset)|timeout expired|no route to host|network is unreachable"
        r"|server closed the connection|no such file or directory|connection is (lost|bad|closed)"
        r"|terminating connection",
        "cannot reach {url}",
        "is the server running, and do host and port fit?",
        passing=True,
    ),
)


def _trouble(error: DBAPIError) -> _Trouble | None:
    words = str(error.orig)
    return next((known for known in _TROUBLES if re.search(known.pattern, words, re.IGNORECASE)), None)


def database_error(failure: BaseException) -> DBAPIError | None:
    """The database's own error behind a failure: itself, or what another library raised it from."""
    link: BaseException | None = failure
    while link is not None and not isinstance(link, DBAPIError):
        link = link.__cause__ or link.__context__
    return link


def may_pass(error: DBAPIError) -> bool:
    """Whether the same call may succeed later: the server restarts, another writer holds the lock."""
    state = getattr(error.orig, "sqlstate", None)
    if isinstance(state, str):
        return state.startswith("08") or state in _PASSING_STATES
    known = _trouble(error)
    return known.passing if known else error.connection_invalidated


def is_conflict(error: DBAPIError) -> bool:
    """Whether two transactions met, though the server answers: trying again helps at once."""
    return getattr(error.orig, "sqlstate", None) in _CONFLICTS


def explained(error: DBAPIError, url: URL) -> StorageError:
    """The error as one line for the user, without the password."""
    known = _trouble(error)
    if known:
        return StorageError(known.message.format(url=shown(url)), hint=known.hint)
    first = next(iter(str(error.orig).strip().splitlines()), type(error.orig).__name__)
    if url.password:
        first = first.replace(str(url.password), HIDDEN)
    return StorageError(f"{shown(url)}: {redact(first)}")
