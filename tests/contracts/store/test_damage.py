"""A SQLite file that lost a part of itself: nothing is added to it, and what to do is said."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support import records
from support.commands import Run, runner, store_night
from support.stores import opened

from tuner.errors import StorageError
from tuner.store import open_store

PAGE = 4096


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with launches, closed."""
    found = tmp_path / "tuner.db"
    with open_store(f"sqlite:///{found}") as store:
        store.create_study(records.study())
        for trial in range(20):
            store.finish_attempt(opened(store, trial).id, records.measured_report())
    assert found.stat().st_size % PAGE == 0
    return found


@pytest.fixture
def file_with_log(file: Path) -> Path:
    """The same beside a write-ahead log, as a killed coordinator leaves it."""
    whole, log = file.with_name("whole"), file.with_name("log")
    shutil.copy(file, whole)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE tuner_study SET reason = 'killed'")
        connection.commit()
        shutil.copy(f"{file}-wal", log)
    whole.replace(file)
    log.replace(f"{file}-wal")
    return file


def refuse(file: Path) -> None:
    with open_store(f"sqlite:///{file}", create=False, patience_s=1) as store:
        store.refuse_damaged()


def test_a_whole_file_is_gone_on_with(file: Path) -> None:
    refuse(file)


def test_so_is_one_whose_last_writes_are_in_its_log(file_with_log: Path) -> None:
    with open_store(f"sqlite:///{file_with_log}", create=False) as store:
        store.refuse_damaged()
        assert store.study("night").reason == "killed"


@pytest.mark.parametrize("lost", [1, PAGE - 1, PAGE, 3 * PAGE])
def test_one_that_lost_its_end_is_not(file: Path, lost: int) -> None:
    os.truncate(file, file.stat().st_size - lost)
    with pytest.raises(StorageError, match="damaged"):
        refuse(file)


@pytest.mark.parametrize("lost", [PAGE, 3 * PAGE])
def test_nor_is_one_whose_log_hides_the_loss_from_sqlite(file_with_log: Path, lost: int) -> None:
    os.truncate(file_with_log, file_with_log.stat().st_size - lost)
    with open_store(f"sqlite:///{file_with_log}", create=False) as store:
        assert store.study("night").reason == "killed", "readers still learn what there is"
    with pytest.raises(StorageError, match="is damaged, so nothing is added to it") as told:
        refuse(file_with_log)
    assert told.value.hint is not None
    assert f"sqlite3 {file_with_log} .recover" in told.value.hint


@pytest.mark.parametrize("command", ["resume night", "confirm night --yes", "start --space quickstart --yes"])
def test_no_command_launches_anything_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    store_night(tmp_path)
    tuner: Run = runner(tmp_path, monkeypatch, capsys)
    os.truncate(tmp_path / "tuner.db", (tmp_path / "tuner.db").stat().st_size - 1)
    done = tuner("study", *command.split())
    assert done.code == StorageError.exit_code
    assert "tuner.db is damaged" in done.err
    assert [row["name"] for row in _studies(tuner)] == ["night"]


def _studies(tuner: Run) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(tuner("study", "list", "--json").out)["studies"]
    return rows
