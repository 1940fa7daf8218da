"""Studies in a store, on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text
from support import records
from support.stores import TTL, opened

from tuner.domain.study import ExportRecord, StudyState
from tuner.errors import StorageError, StudyError
from tuner.store import Store, driver_url
from tuner.store.tables import Base


def test_a_study_reads_back_as_it_was_written(store: Store) -> None:
    store.create_study(records.study())
    assert store.study("night") == records.study()


def test_studies_are_listed_oldest_first(store: Store) -> None:
    for name in ("b", "a"):
        store.create_study(records.study(name))
    assert [study.name for study in store.studies()] == ["b", "a"]


def test_a_taken_name_is_refused_and_the_first_study_stays(night: Store) -> None:
    with pytest.raises(StudyError, match="there is a study night already"):
        night.create_study(records.study(created_at=2.0))
    assert night.study("night") == records.study()


def test_whether_a_name_is_taken_can_be_asked_beforehand(night: Store) -> None:
    with pytest.raises(StudyError, match="there is a study night already"):
        night.refuse_taken("night")
    night.refuse_taken("other")


def test_creating_the_same_study_again_after_a_lost_commit_is_no_error(night: Store) -> None:
    night.create_study(records.study())
    assert len(night.studies()) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.study("x"),
        lambda s: s.attempts("x"),
        lambda s: s.set_state("x", StudyState.FINISHED),
        lambda s: s.request_stop("x"),
        lambda s: s.stop_requested("x"),
        lambda s: s.delete_study("x"),
        lambda s: s.acquire_coordinator("x", "me", 1),
        lambda s: s.coordinator("x"),
        lambda s: s.exports("x"),
    ],
)
def test_an_unknown_study_is_named_in_the_error(night: Store, call) -> None:
    with pytest.raises(StudyError, match="there is no study x"):
        call(night)


def test_state_and_reason_are_kept(night: Store) -> None:
    night.set_state("night", StudyState.STOPPED, "the user stopped it")
    kept = night.study("night")
    assert (kept.state, kept.reason) == (StudyState.STOPPED, "the user stopped it")


def test_a_stop_request_lasts_until_the_study_runs_again(night: Store) -> None:
    assert not night.stop_requested("night")
    night.request_stop("night")
    night.set_state("night", StudyState.STOPPED)
    assert night.stop_requested("night")
    night.set_state("night", StudyState.RUNNING)
    assert not night.stop_requested("night")


def test_a_study_that_nobody_runs_any_more_was_interrupted_until_somebody_goes_on(night: Store) -> None:
    night.set_state("night", StudyState.RUNNING)
    night.acquire_coordinator("night", "elsewhere:1:2:3", TTL)
    assert night.study("night").state is StudyState.RUNNING
    night.acquire_coordinator("night", "elsewhere:1:2:3", -1)
    (found,) = night.studies()
    assert found.state is StudyState.INTERRUPTED
    assert found == night.study("night")
    assert "tuner study resume night" in found.reason
    night.acquire_coordinator("night", "elsewhere:4:5:6", TTL)
    assert night.study("night").state is StudyState.RUNNING


def test_a_new_study_is_interrupted_only_once_somebody_had_begun_it(night: Store) -> None:
    assert night.study("night").state is StudyState.CREATED
    night.acquire_coordinator("night", "elsewhere:1:2:3", -1)
    assert night.study("night").state is StudyState.INTERRUPTED


def test_deleting_a_study_leaves_no_row_behind(night: Store, storage_url: str) -> None:
    night.finish_attempt(opened(night).id, records.measured_report())
    night.record_export(ExportRecord("night", 0, "sh", "serve.sh", "00", 1.0))
    night.delete_study("night")
    engine = create_engine(driver_url(storage_url))
    with engine.connect() as connection:
        counts = {
            name: connection.scalar(text(f"SELECT count(*) FROM {name}")) for name in sorted(Base.metadata.tables)
        }
    engine.dispose()
    assert counts == dict.fromkeys(counts, 0)
    assert "tuner_attempt" in counts


def test_a_running_study_is_not_deleted(night: Store) -> None:
    night.acquire_coordinator("night", "elsewhere:1:2:3", TTL)
    with pytest.raises(StudyError, match="is being run by elsewhere:1:2:3"):
        night.delete_study("night")
    with pytest.raises(StudyError, match="is being run by elsewhere:1:2:3"):
        night.refuse_running("night")
    night.release_coordinator("night", "elsewhere:1:2:3")
    night.refuse_running("night")


@pytest.mark.parametrize("damage", ["state = 'nonsense'", "space = 'no document'"])
def test_a_record_that_cannot_be_read_is_told_as_damage(night: Store, storage_url: str, damage: str) -> None:
    engine = create_engine(driver_url(storage_url))
    with engine.begin() as connection:
        if "space" in damage and engine.dialect.name == "postgresql":
            pytest.skip("PostgreSQL takes no such text into a column of documents")
        connection.execute(text(f"UPDATE tuner_study SET {damage}"))
    engine.dispose()
    with pytest.raises(StorageError, match="is damaged"):
        night.studies()
