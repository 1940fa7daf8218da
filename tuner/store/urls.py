"""The database URL: what the user may write, what SQLAlchemy gets, what is shown."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from tuner.errors import StorageError
from tuner.secrets import HIDDEN, is_secret_name, redact

STORAGE_VARIABLE = "TUNER_STORAGE"
_DEFAULT = "sqlite:///tuner.db"
_DRIVERS: Mapping[str, str] = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
_FORMS = "write sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"


def default_url() -> str:
    """`$TUNER_STORAGE`, or the SQLite file `tuner.db` in the current folder."""
    return os.environ.get(STORAGE_VARIABLE) or _DEFAULT


def parse_url(text: str) -> URL:
    """The URL with the driver that tuner ships: SQLite's own, psycopg 3 for PostgreSQL.

    Raises:
        StorageError: no URL, another database, or a SQLite database in memory (it would be gone with the command).
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        # Without its scheme nothing tells a password from the rest.
        secret, at, place = redact(text).rpartition("@")
        shown_as = f"{HIDDEN}@{place}" if at and "://" not in secret else redact(text)
        raise StorageError(f"no database URL: {shown_as}", hint=_FORMS) from error
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise StorageError(f"tuner does not know the database driver {url.drivername}", hint=_FORMS)
    if driver == "sqlite" and url.database in (None, "", ":memory:"):
        raise StorageError("a SQLite database needs a file", hint=_FORMS)
    if driver != "sqlite" and "@" in f"{url.host}{url.database}":
        # What follows the first `@` was read as the host, and would be shown as such.
        raise StorageError(
            f"{redact(text)}: user or password hold an @", hint="write @ as %40, / as %2F, : as %3A, % as %25"
        )
    return url.set(drivername=driver)


def driver_url(text: str) -> str:
    """The URL for other libraries that open the same database through SQLAlchemy. It holds the password.

    Raises:
        StorageError: see `parse_url`.
    """
    return parse_url(text).render_as_string(hide_password=False)


def shown_url(text: str) -> str:
    """The URL for people, logs and error messages: without its password.

    Raises:
        StorageError: see `parse_url`.
    """
    return shown(parse_url(text))


def shown(url: URL) -> str:
    """The same for a parsed URL; passwords given as query parameters are hidden too."""
    query = {name: HIDDEN if is_secret_name(name) else value for name, value in url.query.items()}
    plain = url.set(drivername=url.get_backend_name(), query=query)
    return plain.render_as_string(hide_password=True)


def is_sqlite(url: URL) -> bool:
    """Whether the database is a SQLite file."""
    return url.get_backend_name() == "sqlite"


def sqlite_file(url: URL) -> Path | None:
    """The file of a SQLite URL; None for PostgreSQL and for SQLite's own `file:` URIs."""
    if not is_sqlite(url) or url.database is None or url.database.startswith("file:"):
        return None
    return Path(url.database)
