"""With `--json`, stdout is one document whatever came of the launches, and the exit code says what that was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import records
from support.commands import Done, Run, runner

from tuner.domain.candidate import Candidate
from tuner.domain.measurement import Measured
from tuner.domain.study import StudyState
from tuner.domain.trial import Purpose
from tuner.errors import NothingFeasible
from tuner.store import Store, open_store
from tuner.study import session
from tuner.study.agenda import StudyEnd
from tuner.study.options import StartOptions
from tuner.study.preparing import Prepared, prepare_start

ENDED = StudyEnd(StudyState.FAILED, "the baseline failed: hang", NothingFeasible("the baseline failed: hang"))


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    return prepare_start(StartOptions("quickstart", name="night"))


@pytest.fixture
def tuner(
    tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Runs commands where `night` is stored; whatever would launch something ends with an error instead."""
    with open_store(f"sqlite:///{tmp_path}/tuner.db") as store:
        store.create_study(prepared.record)
    monkeypatch.setattr(session, "run_study", lambda *_, **__: ENDED)
    return runner(tmp_path, monkeypatch, capsys)


def launch(folder: Path, prepared: Prepared, *, fails: bool = False) -> None:
    """A baseline and a faster configuration, measured or failed."""
    (baseline,) = prepared.baselines.values()
    faster = Candidate.of(prepared.record.space, "simulated", {**baseline.values, "decode_steps": 4})
    with open_store(f"sqlite:///{folder}/tuner.db") as store:
        for trial, candidate in enumerate((baseline, faster)):
            _store(store, folder, trial, candidate, fails=fails)


def _store(store: Store, folder: Path, trial: int, candidate: Candidate, *, fails: bool) -> None:
    attempt = store.open_attempt(
        "night",
        trial=trial,
        attempt=1,
        purpose=Purpose.SEARCH if trial else Purpose.BASELINE,
        candidate=candidate,
        run_dir=str(folder / "runs" / "night" / str(trial) / "1"),
        owner="box:1:2:3",
        ttl=30,
    )
    speed = 60.0 + 20 * trial
    levels = (records.level(1, speed), records.level(32, 10 * speed))
    outcome = Measured(levels, simulated=True)
    store.finish_attempt(attempt.id, records.failed_report() if fails else records.measured_report(outcome=outcome))


def document(done: Done, code: int) -> dict[str, Any]:
    assert done.code == code, done.err
    return dict(json.loads(done.out))


@pytest.mark.parametrize("command", ["confirm", "ablate"])
def test_what_was_found_is_printed_before_the_error_that_ended_the_launches(
    tuner: Run, tmp_path: Path, prepared: Prepared, command: str
) -> None:
    launch(tmp_path, prepared)
    done = tuner("study", command, "night", "--json")
    assert document(done, 3)["rounds"] == 0
    assert "error: the baseline failed: hang" in done.err


@pytest.mark.parametrize("command", ["start --space quickstart --name other --yes", "resume night"])
def test_a_study_that_failed_is_a_document_too(
    tuner: Run, tmp_path: Path, prepared: Prepared, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(tmp_path, prepared, fails=True)

    def begun(found: Prepared, store: Store, *_: object, **__: object) -> StudyEnd:
        if found.record.name == "other":
            store.create_study(found.record)
        return ENDED

    monkeypatch.setattr(session, "start_study", begun)
    found = document(tuner("study", *command.split(), "--json"), 3)
    assert (found["state"], found["front"], found["script"]) == ("failed", [], None)


def test_a_confirmation_without_anything_feasible_says_so_by_its_exit_code(
    tuner: Run, tmp_path: Path, prepared: Prepared
) -> None:
    launch(tmp_path, prepared, fails=True)
    done = tuner("study", "confirm", "night", "--json")
    assert document(done, 3)["arms"] == []
    assert "no configuration was measured that keeps every limit" in done.err
    planned = document(tuner("study", "confirm", "night", "--dry-run", "--json"), 0)["planned"]
    assert planned["launches"] == 0


def test_an_ablation_without_anything_feasible_is_an_empty_document_and_its_plan_says_why(
    tuner: Run, tmp_path: Path, prepared: Prepared
) -> None:
    launch(tmp_path, prepared, fails=True)
    why = "no configuration was measured that keeps every limit"
    done = tuner("study", "ablate", "night", "--json")
    found = document(done, 3)
    assert (found["rounds"], found["rows"], found["winner"], found["planned"]) == (0, [], None, None)
    assert f"error: {why}" in done.err
    planned = document(tuner("study", "ablate", "night", "--dry-run", "--json"), 3)["planned"]
    assert (planned["launches"], planned["why"]) == (0, why)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("study confirm nowhere", 1),
        ("study front nowhere", 1),
        ("study ablate night --trial 7", 1),
    ],
)
def test_a_command_that_cannot_begin_leaves_stdout_empty(
    tuner: Run, tmp_path: Path, prepared: Prepared, command: str, code: int
) -> None:
    launch(tmp_path, prepared, fails=True)
    done = tuner(*command.split(), "--json")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error: ")


@pytest.mark.parametrize(
    "command", ["study front night", "study status night", "study trials night", "study failures night", "study list"]
)
def test_a_study_that_launched_nothing_can_be_asked_everything(tuner: Run, command: str) -> None:
    assert document(tuner(*command.split(), "--json"), 0)
