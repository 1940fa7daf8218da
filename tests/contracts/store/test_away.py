"""A database that is away, locked or closed to us: patience first, then one clear line."""

from __future__ import annotations

import operator
import os
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from support import postgres, records

from tuner.domain.study import AttemptState, StudyState
from tuner.domain.trial import Purpose
from tuner.errors import StorageError
from tuner.store import Store, open_store
from tuner.store.database import Database
from tuner.store.urls import parse_url

PASSWORD = "Sesame1!"


def refusal(url: str, **options: object) -> StorageError:
    with pytest.raises(StorageError) as caught:
        open_store(url, **options)  # type: ignore[arg-type]
    error = caught.value
    assert "\n" not in error.message
    assert PASSWORD not in f"{error} {error.hint}"
    assert error.hint
    return error


class TestOpening:
    """Whoever mistypes a URL waits seconds, not minutes, and never reads a password."""

    def test_nothing_listens_on_the_port(self) -> None:
        with socket.socket() as taken:  # bound, but nobody accepts
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            error = refusal(f"postgresql://joe:{PASSWORD}@127.0.0.1:{port}/tuner")
        assert error.message == f"cannot reach postgresql://joe:***@127.0.0.1:{port}/tuner"

    def test_the_server_never_answers(self) -> None:
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(1)
            error = refusal(f"postgresql://joe:{PASSWORD}@127.0.0.1:{deaf.getsockname()[1]}/tuner")
        assert error.message.startswith("cannot reach postgresql://joe:***@127.0.0.1")

    def test_the_host_does_not_exist(self) -> None:
        error = refusal(f"postgres://joe:{PASSWORD}@nowhere.invalid/tuner")
        assert error.message == "the host of postgresql://joe:***@nowhere.invalid/tuner is unknown"

    def test_the_password_is_wrong(self, postgres_server: str) -> None:
        error = refusal(postgres_server.replace(postgres.PASSWORD, PASSWORD))
        assert error.message.endswith("/postgres refuses this user and password")

    def test_the_user_is_unknown(self, postgres_server: str) -> None:
        error = refusal(postgres_server.replace(f"{postgres.USER}:{postgres.PASSWORD}", f"joe:{PASSWORD}"))
        assert error.message.endswith("/postgres refuses this user and password")

    def test_the_database_does_not_exist(self, postgres_server: str) -> None:
        error = refusal(f"{postgres_server}_not")
        assert "has no such database" in error.message

    def test_the_user_may_not_make_tables(self, postgres_url: str) -> None:
        with psycopg.connect(postgres_url, autocommit=True) as server:
            name = f"guest_{os.getpid()}"
            server.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
            server.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
            try:
                error = refusal(postgres_url.replace(f"{postgres.USER}:{postgres.PASSWORD}", f"{name}:{PASSWORD}"))
            finally:
                server.execute(f"DROP ROLE {name}")
        assert error.message.endswith("does not let this user make or change tables")

    @pytest.mark.parametrize(
        ("url", "message"),
        [
            (f"mysql://joe:{PASSWORD}@host/x", "tuner does not know the database driver mysql"),
            (
                f"postgresql+psycopg2://joe:{PASSWORD}@host/x",
                "tuner does not know the database driver postgresql+psycopg2",
            ),
            ("tuner.db", "no database URL: tuner.db"),
            (f"postgresql://joe:{PASSWORD}@host:port/x", "no database URL: postgresql://joe:***@host:port/x"),
            (f"joe:{PASSWORD}@host/x", "no database URL: ***@host/x"),
            (f"postgresql://joe:p@{PASSWORD}@host/x", "postgresql://joe:***@host/x: user or password hold an @"),
            ("sqlite://", "a SQLite database needs a file"),
            ("sqlite:///:memory:", "a SQLite database needs a file"),
        ],
    )
    def test_the_url_is_none_that_tuner_knows(self, url: str, message: str) -> None:
        assert refusal(url).message == message

    def test_the_folder_is_missing(self, tmp_path: Path) -> None:
        error = refusal(f"sqlite:///{tmp_path}/no/tuner.db")
        assert error.message == f"cannot open sqlite:///{tmp_path}/no/tuner.db: the folder is missing or not writable"

    def test_reading_from_a_file_that_does_not_exist_makes_none(self, tmp_path: Path) -> None:
        error = refusal(f"sqlite:///{tmp_path}/tuner.db", create=False)
        assert error.message == f"there is no database sqlite:///{tmp_path}/tuner.db"
        assert list(tmp_path.iterdir()) == []

    def test_no_file_can_have_the_name(self) -> None:
        assert refusal(f"sqlite:///{'x' * 300}", create=False).message.startswith("cannot open sqlite:///xxx")

    def test_the_file_is_no_database(self, tmp_path: Path) -> None:
        file = tmp_path / "notes.txt"
        file.write_text("just some notes, long enough to be read as a header by a database\n" * 9)
        before = file.read_bytes()
        assert refusal(f"sqlite:///{file}").message == f"sqlite:///{file} is not a SQLite database, or is damaged"
        assert file.read_bytes() == before

    def test_the_file_is_a_folder(self, tmp_path: Path) -> None:
        assert refusal(f"sqlite:///{tmp_path}").message.startswith(f"cannot open sqlite:///{tmp_path}")

    def test_another_program_locks_the_file(self, sqlite_url: str) -> None:
        holder = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        assert refusal(sqlite_url).message == f"{sqlite_url} is locked by another program"
        holder.close()

    def test_the_file_may_only_be_read(self, tmp_path: Path, sqlite_url: str) -> None:
        open_store(sqlite_url).close()
        uri = f"sqlite:///file:{tmp_path}/tuner.db?mode=ro&uri=true"
        with open_store(uri) as store, pytest.raises(StorageError, match="is read-only") as caught:
            store.create_study(records.study())
        assert caught.value.hint == "make the file and its folder writable, or give another --storage"

    def test_the_server_takes_no_writes(self, own_postgres: postgres.PostgresServer) -> None:
        open_store(own_postgres.url()).close()
        options = "?options=-c%20default_transaction_read_only%3Don"
        with (
            open_store(own_postgres.url() + options) as store,
            pytest.raises(StorageError, match="is read-only") as caught,
        ):
            store.create_study(records.study())
        assert caught.value.hint is not None
        assert caught.value.hint.endswith("Give the server that takes writes")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    @pytest.mark.parametrize("exists", [False, True], ids=["new file", "file of another user"])
    def test_another_user_cannot_write_into_the_folder(self, exists: bool) -> None:
        program = (
            "import os, sys\n"
            "from tuner.store import open_store\n"
            "from tuner.domain.study import StudyState\n"
            "from tuner.errors import StorageError\n"
            "open_store(sys.argv[1]).close()  # everything is imported before the rights are given up\n"
            "os.setuid(65534)\n"
            "try: open_store(sys.argv[2]).set_state('night', StudyState.FINISHED)\n"
            "except StorageError as error: print(error.message)\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            url, other = f"sqlite:///{folder}/tuner.db", f"sqlite:///{folder}/other.db"
            if exists:
                with open_store(url) as store:
                    store.create_study(records.study())
            command = [sys.executable, "-c", program, other, url]
            shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        problem = f"{url} is read-only" if exists else f"cannot open {url}: the folder is missing or not writable"
        assert shown == f"{problem}\n"


class TestPatience:
    """A study outlives a restart of its database."""

    @pytest.fixture
    def store(self, own_postgres: postgres.PostgresServer) -> Iterator[Store]:
        with open_store(own_postgres.url(), patience_s=60) as store:
            store.create_study(records.study())
            yield store

    def test_a_report_is_stored_once_though_the_server_restarts_meanwhile(
        self, own_postgres: postgres.PostgresServer, store: Store
    ) -> None:
        attempt = _open_attempt(store)
        own_postgres.stop()
        back = threading.Timer(1.5, own_postgres.start)
        back.start()
        finished = store.finish_attempt(attempt, records.measured_report())
        back.join()
        assert finished.report == records.measured_report()
        assert store.attempts("night") == [finished]

    def test_who_waits_hears_at_once_since_when_and_until_when_and_that_the_server_is_back(
        self, own_postgres: postgres.PostgresServer, store: Store
    ) -> None:
        told: list[tuple[float, str]] = []
        store.tell_when_away(lambda text: told.append((time.time(), text)))
        assert not store.stop_requested("night")
        own_postgres.stop()
        began = time.time()
        back = threading.Timer(1.5, own_postgres.start)
        back.start()
        store.request_stop("night")
        back.join()
        (at, away), (_, again) = told
        assert at - began < 1
        found = re.fullmatch(
            r"the database does not answer since ([\d:]{8}), waiting for it until ([\d:]{8}): "
            r"cannot reach postgresql://tuner:\*\*\*@127\.0\.0\.1:\d+/postgres",
            away,
        )
        assert found is not None, away
        since, until = (sum(map(operator.mul, map(int, part.split(":")), (3600, 60, 1))) for part in found.groups())
        assert (until - since) % 86400 in (59, 60, 61)
        assert re.fullmatch(r"the database answers again, after \d+\.\d s", again)
        store.set_state("night", StudyState.RUNNING)
        assert len(told) == 2

    def test_a_server_that_hangs_is_told_of_as_well(
        self, own_postgres: postgres.PostgresServer, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tuner.store.absence._SILENT_S", 0.5)
        told: list[str] = []
        store.tell_when_away(told.append)
        assert not store.stop_requested("night")
        with own_postgres.hanging():
            goes_on = threading.Timer(1.5, own_postgres.go_on)
            goes_on.start()
            store.request_stop("night")
            goes_on.join()
        away, again = told
        assert re.fullmatch(r"the database does not answer since [\d:]{8}, waiting for it: nothing came for 0 s", away)
        assert again.startswith("the database answers again, after ")

    def test_reading_waits_for_the_server_too(self, own_postgres: postgres.PostgresServer, store: Store) -> None:
        own_postgres.stop()
        back = threading.Timer(1.0, own_postgres.start)
        back.start()
        assert not store.stop_requested("night")
        back.join()

    def test_a_server_that_stays_away_ends_in_one_clear_line(self, own_postgres: postgres.PostgresServer) -> None:
        with open_store(own_postgres.url(), patience_s=0.5) as store:
            store.create_study(records.study())
            own_postgres.stop()
            with pytest.raises(StorageError, match=r"^cannot reach postgresql://tuner:\*\*\*@127\.0\.0\.1"):
                store.request_stop("night")
            own_postgres.start()
            assert not store.stop_requested("night")

    def test_a_lock_on_the_sqlite_file_is_waited_for(self, sqlite_url: str) -> None:
        with open_store(sqlite_url, patience_s=60) as store:
            store.create_study(records.study())
            holder = sqlite3.connect(
                sqlite_url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False
            )
            holder.execute("BEGIN IMMEDIATE")
            free = threading.Timer(1.0, holder.close)
            free.start()
            started = time.monotonic()
            store.request_stop("night")
            assert time.monotonic() - started >= 0.9
            free.join()
            assert store.stop_requested("night")

    def test_many_writers_of_one_sqlite_file_lose_nothing(self, sqlite_url: str) -> None:
        with open_store(sqlite_url) as store:
            store.create_study(records.study())

        def write(worker: int) -> None:
            with open_store(sqlite_url) as own:
                for trial in range(5):
                    own.finish_attempt(_open_attempt(own, worker * 5 + trial), records.measured_report())

        threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with open_store(sqlite_url) as store:
            kept = store.attempts("night", state=AttemptState.MEASURED)
        assert sorted(attempt.trial for attempt in kept) == list(range(20))


def _open_attempt(store: Store, trial: int = 0) -> int:
    return store.open_attempt(
        "night",
        trial=trial,
        attempt=1,
        purpose=Purpose.SEARCH,
        candidate=records.candidate(),
        run_dir="/runs",
        owner="box:1:2:3",
        ttl=60,
    ).id


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_a_file_that_is_taken_away_from_under_a_study_is_told_at_its_next_step(tmp_path: Path, replaced: bool) -> None:
    file = tmp_path / "tuner.db"
    with open_store(f"sqlite:///{file}") as store:
        store.create_study(records.study())
        for old in tmp_path.glob("tuner.db*"):
            old.unlink()
        if replaced:
            with open_store(f"sqlite:///{file}"):
                pass
        with pytest.raises(StorageError, match="was deleted or replaced while it was in use"):
            store.set_state("night", StudyState.RUNNING)


def test_a_database_that_was_waited_for_in_vain_is_not_waited_for_again_until_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("tuner.store.database.time.sleep", waited.append)
    monkeypatch.setattr("tuner.store.database.time.monotonic", lambda: sum(waited))
    database = Database(parse_url("postgresql://tuner@127.0.0.1:1/tuner"), patience_s=60)

    def ask() -> float:
        """Seconds that it was waited for."""
        before = sum(waited)
        with pytest.raises(StorageError, match="cannot reach"):
            database.read(lambda session: session.execute(text("SELECT 1")))
        return sum(waited) - before

    assert ask() > 50
    assert ask() == 0
    assert database.patiently(lambda: "it answers") == "it answers"
    assert ask() > 50
