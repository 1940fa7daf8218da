"""The schema's version: refuse a newer one, bring an older one up to date, make a first one."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from tuner.errors import StorageError
from tuner.resources import may_exist
from tuner.store.database import Database
from tuner.store.troubles import explained
from tuner.store.urls import is_sqlite, shown, sqlite_file

# Optuna keeps its own version in `alembic_version` and refuses a database where that table is somebody else's.
VERSION_TABLE = "tuner_alembic_version"
_SCRIPTS = Path(__file__).parent / "migrations"
_LOCK = 0x74756E6572  # "tuner" as a number: the key of PostgreSQL's advisory lock


def prepare(database: Database, *, create: bool) -> None:
    """Make sure that the database holds the schema of this version.

    Args:
        database: where.
        create: make database file and tables where there are none; otherwise that is an error.

    Raises:
        StorageError: out of reach, not writable, no tuner database, or written by a newer tuner.
    """
    where = shown(database.url)
    file = sqlite_file(database.url)
    if file is not None and not may_exist(file) and not create:
        raise StorageError(f"there is no database {where}", hint="`tuner study start` makes one; see --storage")
    try:
        with database.engine.connect() as connection:
            found = _revision(connection)
        if found == head():
            return
        if found is None and not create:
            raise StorageError(
                f"{where} holds no tuner study", hint="`tuner study start` makes the first; see --storage"
            )
        _refuse_newer(found, where)
        _use_wal(database)
        with database.writer.begin() as connection:
            if not is_sqlite(database.url):
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            # Another process may have been faster; alembic looks again, now under the lock.
            command.upgrade(_config(connection), "head")
    except DBAPIError as error:
        raise explained(error, database.url) from error


def head() -> str:
    """The newest schema version that this program knows."""
    revision = _scripts().get_current_head()
    assert revision is not None
    return revision


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(_SCRIPTS))


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def _refuse_newer(found: str | None, where: str) -> None:
    known = {script.revision for script in _scripts().walk_revisions()}
    if found is not None and found not in known:
        message = f"{where} was written by a newer tuner (schema {found}; this one knows up to {head()})"
        raise StorageError(message, hint="update tuner, or give another --storage")


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _use_wal(database: Database) -> None:
    """Readers (dashboard, `study status`) never wait for the writer. SQLite remembers this in the file."""
    if is_sqlite(database.url):
        driver = database.engine.raw_connection()
        try:
            driver.cursor().execute("PRAGMA journal_mode = WAL")
        finally:
            driver.close()
