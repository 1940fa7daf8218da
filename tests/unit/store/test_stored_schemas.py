"""Databases written by every schema so far still open, and still tell the same story.

`tests/data/store/schema_NNNN.sqlite3` was written by the first version with that schema; a new migration adds a file
and changes none. To write one: `python tests/unit/store/test_stored_schemas.py FILE`.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support import records

from tuner.domain.study import AttemptState, ExportRecord, StudyState
from tuner.domain.trial import LaunchKind, Purpose
from tuner.store import open_store
from tuner.store.migrate import head

STORED = Path(__file__).parents[2] / "data" / "store"


def write(file: Path) -> None:
    """A study with one attempt in every state."""
    with open_store(f"sqlite:///{file}", clock=lambda: 5000.0) as store:
        store.create_study(records.study())
        store.set_state("night", StudyState.STOPPED, "the user stopped it")
        reports = [records.measured_report(), records.failed_report(), None, None]
        for trial, report in enumerate(reports):
            attempt = store.open_attempt(
                "night",
                trial=trial,
                attempt=1,
                purpose=Purpose.BASELINE if trial == 0 else Purpose.SEARCH,
                candidate=records.candidate(decode_steps=trial + 1),
                run_dir=f"/runs/night/{trial}/1",
                owner="box:1:2:3",
                ttl=30,
            )
            if report is not None:
                store.finish_attempt(attempt.id, report)
        store.mark_told(1)
        store.abandon(3)
        store.record_export(ExportRecord("night", 0, "sh", "serve.sh", "ff" * 32, 5001.0))


@pytest.mark.parametrize("file", sorted(STORED.glob("schema_*.sqlite3")), ids=lambda path: path.stem)
def test_a_stored_database_opens_with_everything_in_it(file: Path, tmp_path: Path) -> None:
    copy = shutil.copy(file, tmp_path / "tuner.db")
    with open_store(f"sqlite:///{copy}", create=False) as store:
        study = store.study("night")
        measured, failed, abandoned, running = store.attempts("night")
        exports = store.exports("night")
    assert (study.state, study.reason) == (StudyState.STOPPED, "the user stopped it")
    assert study.space == records.space()
    assert (measured.report, measured.told, measured.purpose) == (records.measured_report(), True, Purpose.BASELINE)
    assert measured.candidate == records.candidate(decode_steps=1)
    assert (failed.report, failed.state) == (records.failed_report(), AttemptState.FAILED)
    assert (abandoned.state, running.state) == (AttemptState.ABANDONED, AttemptState.RUNNING)
    assert [export.path for export in exports] == ["serve.sh"]


def test_what_a_note_said_of_a_warm_launch_is_a_fact_of_it_now(tmp_path: Path) -> None:
    copy = shutil.copy(STORED / "schema_0004.sqlite3", tmp_path / "tuner.db")
    with closing(sqlite3.connect(copy)) as old:
        old.execute("update tuner_attempt set notes = ? where trial = 0", ('["launch: warm"]',))
        old.execute("update tuner_attempt set notes = ? where trial = 1", ('["launch: plain (a thread runs)"]',))
        old.commit()
    with open_store(f"sqlite:///{copy}", create=False) as store:
        warm, plain, abandoned, running = store.attempts("night")
    assert warm.was_launched(LaunchKind.WARM)
    assert plain.was_launched(LaunchKind.PLAIN)
    assert not any(a.was_launched(kind) for a in (abandoned, running) for kind in LaunchKind)


def test_the_newest_schema_has_its_stored_database() -> None:
    assert (STORED / f"schema_{head()}.sqlite3").exists()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
