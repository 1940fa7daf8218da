"""What `study list`, `status` and `trials` say of launches that are no ordinary ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import findings, records
from support.commands import Run, runner, store_night

from tuner.domain.measurement import MeasuredInPart
from tuner.domain.study import StudyState
from tuner.domain.trial import Purpose
from tuner.store import Store, open_store
from tuner.store.owner import this_process


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs commands where the study `night` is stored."""
    store_night(tmp_path)
    return runner(tmp_path, monkeypatch, capsys)


def stored(folder: Path) -> Store:
    return open_store(f"sqlite:///{folder}/tuner.db", create=False)


def launch(store: Store, trial: int, purpose: Purpose, *, in_part: bool = False) -> None:
    attempt = store.open_attempt(
        "night", trial=trial, attempt=1, purpose=purpose, candidate=findings.WINNER, run_dir="", owner="box", ttl=30
    )
    whole = records.measured_report()
    report = records.measured_report(outcome=MeasuredInPart((), simulated=True, reason="beaten")) if in_part else whole
    store.finish_attempt(attempt.id, report)


def test_a_launch_of_verify_knobs_was_verified_and_not_measured_in_part(tuner: Run, tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        launch(store, 12, Purpose.VERIFY, in_part=True)
        launch(store, 13, Purpose.SEARCH, in_part=True)
    status = json.loads(tuner("study", "status", "night", "--json").out)
    assert (status["measured_in_part"], status["verified"]) == (1, 1)


def test_the_status_speaks_to_people_and_its_document_to_programs(tuner: Run) -> None:
    said = dict(line.split(": ", 1) for line in tuner("study", "status", "night").out.splitlines())
    document = json.loads(tuner("study", "status", "night", "--json").out)
    assert (said["simulated"], document["simulated"]) == ("yes", True)
    assert (said["run by"], document["coordinator"]) == ("–", None)
    assert (said["trials"], said["measured"], said["failed"]) == ("12", "11", "1")
    assert said["trials in the budget"] == str(document["budget_trials"])
    assert (said["beside the budget"], document["beside_budget"]) == ("0", 0)


def test_what_costs_the_budget_nothing_is_not_counted_against_it(tuner: Run, tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        budget = store.study("night").space.budget.trials
        for trial in (12, 13):
            launch(store, trial, Purpose.ABLATE)
    assert f"12 of {budget} and 2 beside" in tuner("study", "list").out


def test_a_study_whose_process_is_gone_was_interrupted_and_says_what_goes_on_with_it(
    tuner: Run, tmp_path: Path
) -> None:
    gone = f"{this_process().rpartition(':')[0]}:12.00"
    with stored(tmp_path) as store:
        store.set_state("night", StudyState.RUNNING)
        store.acquire_coordinator("night", gone, 60)
        store.open_attempt(
            "night",
            trial=12,
            attempt=1,
            purpose=Purpose.SEARCH,
            candidate=findings.OTHER,
            run_dir="",
            owner=gone,
            ttl=60,
        )
    status = json.loads(tuner("study", "status", "night", "--json").out)
    assert (status["state"], status["running"], status["interrupted"]) == ("interrupted", 0, 1)
    assert "state: interrupted" in tuner("study", "status", "night").out
    assert "tuner study resume night" in tuner("study", "status", "night").out
    listed = tuner("study", "list").out
    assert "interrupted" in listed
    assert "tuner study resume night" in listed
    trials = json.loads(tuner("study", "trials", "night", "--json").out)["trials"]
    assert [row["state"] for row in trials if row["trial"] == 12] == ["interrupted"]


def test_a_study_that_somebody_runs_is_running(tuner: Run, tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        store.set_state("night", StudyState.RUNNING)
        store.acquire_coordinator("night", this_process(), 60)
        status = json.loads(tuner("study", "status", "night", "--json").out)
    assert (status["state"], status["reason"]) == ("running", "")
