"""Fixtures for every test: databases.

One PostgreSQL serves a whole test run, all its xdist workers included. It starts with the first test that asks for
it, and ends with the run: `support/postgres.py` watches the pytest process that leads the run.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings
from sqlalchemy import Engine, event
from support import postgres

_FOLDER = "TUNER_TESTS_FOLDER"
_LEADER = "TUNER_TESTS_LEADER"


# How long one example takes says how busy the machine is, and nothing about the code.
settings.register_profile("tuner", deadline=None)
settings.load_profile("tuner")

# As the command does, before numpy is loaded: threads only fight over matrices this small.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@event.listens_for(Engine, "connect")
def _do_not_wait_for_the_disk(connection: object, _entry: object) -> None:
    """What a test stores must outlive killed processes but no power cut: SQLite need not wait for the disk."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def pytest_configure(config: pytest.Config) -> None:
    """The leading process makes the run's folder; its xdist workers inherit the name."""
    # A shell ignores Ctrl-C for what it starts in the background, and so would every program that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="tuner-tests-")
        os.environ[_LEADER] = str(os.getpid())


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server, when there is one, and remove the run's folder."""
    if hasattr(config, "workerinput") or _FOLDER not in os.environ:
        return
    folder = Path(os.environ[_FOLDER])
    pid_file = folder / "pid"
    if pid_file.exists():
        os.kill(int(pid_file.read_text()), signal.SIGTERM)
        deadline = time.monotonic() + postgres.STOP_TIMEOUT_S
        while (folder / "postgres").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A SQLite database that does not exist yet."""
    return f"sqlite:///{tmp_path}/tuner.db"


@pytest.fixture(scope="session")
def postgres_server() -> str:
    """URL of the run's PostgreSQL, as a user who may make databases."""
    folder = Path(os.environ[_FOLDER])
    folder.chmod(0o755)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "pid").exists():
            _start(folder)
    return (folder / "postgres" / postgres.URL_FILE).read_text()


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """An empty PostgreSQL database of this test's own."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        yield f"{postgres_server.rpartition('/')[0]}/{name}"
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def storage_url(request: pytest.FixtureRequest) -> str:
    """Each test runs once on SQLite and once on PostgreSQL."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    return url


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[postgres.PostgresServer]:
    """A PostgreSQL that belongs to one test, which may stop and start it."""
    with tempfile.TemporaryDirectory(prefix="tuner-postgres-") as folder:
        server = postgres.PostgresServer(Path(folder))
        server.start()
        yield server
        server.stop()


def _start(folder: Path) -> None:
    command = [sys.executable, postgres.__file__, str(folder / "postgres"), os.environ[_LEADER]]
    log = folder / "postgres.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    (folder / "pid").write_text(str(process.pid))
    deadline = time.monotonic() + postgres.START_TIMEOUT_S
    while not (folder / "postgres" / postgres.URL_FILE).exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the tests' PostgreSQL does not start:\n{log.read_text()}")
        time.sleep(0.05)
