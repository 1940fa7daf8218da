"""The tables: made once, by whoever comes first, beside Optuna's, and never by an older tuner."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, inspect, text
from support import records

from tuner.errors import StorageError
from tuner.store import Store, driver_url, open_store
from tuner.store.migrate import VERSION_TABLE
from tuner.store.tables import Base


@pytest.mark.parametrize("first", ["tuner", "optuna"])
def test_both_create_their_tables_in_one_database_in_any_order(storage_url: str, first: str) -> None:
    def ours() -> None:
        with open_store(storage_url) as store:
            store.create_study(records.study())

    def theirs() -> None:
        storage = optuna.storages.RDBStorage(driver_url(storage_url))
        study = optuna.create_study(study_name="night", storage=storage, directions=["maximize"])
        study.tell(study.ask({"x": optuna.distributions.FloatDistribution(0, 1)}), 1.0)
        storage.remove_session()
        storage.engine.dispose()

    for make in (ours, theirs) if first == "tuner" else (theirs, ours):
        make()
    storage = optuna.storages.RDBStorage(driver_url(storage_url))
    assert optuna.load_study(study_name="night", storage=storage).best_value == 1.0
    storage.engine.dispose()
    with open_store(storage_url, create=False) as store:
        assert store.study("night") == records.study()


def test_the_migrated_schema_is_the_one_that_the_tables_describe(store: Store, storage_url: str) -> None:
    engine = create_engine(driver_url(storage_url))
    with engine.connect() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        differences = compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)
    engine.dispose()
    assert differences == []


def test_every_table_is_tuners_by_name(store: Store, storage_url: str) -> None:
    engine = create_engine(driver_url(storage_url))
    names = inspect(engine).get_table_names()
    engine.dispose()
    assert [name for name in names if not name.startswith("tuner_")] == []


def test_opening_again_keeps_what_is_there(storage_url: str, night: Store) -> None:
    with open_store(storage_url) as again:
        assert again.study("night") == records.study()


def test_processes_that_make_the_schema_at_the_same_moment_agree(storage_url: str) -> None:
    program = "import sys; from tuner.store import open_store; open_store(sys.argv[1]).studies()"
    command = [sys.executable, "-c", program, storage_url]
    racers = [subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE) for _ in range(3)]
    assert [(r.communicate()[1], r.returncode) for r in racers] == [(b"", 0)] * 3


def test_a_newer_schema_is_refused_and_left_alone(night: Store, storage_url: str) -> None:
    engine = create_engine(driver_url(storage_url))
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(StorageError, match=r"was written by a newer tuner \(schema 9999") as caught:
        open_store(storage_url)
    assert "update tuner" in str(caught.value.hint)
    with engine.connect() as connection:
        assert connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) == "9999"
    engine.dispose()


def test_reading_a_database_without_studies_makes_no_tables(storage_url: str) -> None:
    if storage_url.startswith("sqlite"):
        Path(storage_url.removeprefix("sqlite:///")).touch()
    with pytest.raises(StorageError, match="holds no tuner study"):
        open_store(storage_url, create=False)
    engine = create_engine(driver_url(storage_url))
    assert inspect(engine).get_table_names() == []
    engine.dispose()
