"""Whole launches of the simulated engine, whose wrong answers are known: none of them becomes a number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import trials

from tuner.domain.measurement import Measured
from tuner.domain.outcome import Failure, FailureClass
from tuner.domain.output import OutputReference
from tuner.domain.trial import Purpose, TrialReport

pytestmark = pytest.mark.slow


def reference_of(report: TrialReport) -> OutputReference:
    assert report.output is not None
    return OutputReference(report.output.prompts, report.output.answers)


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> TrialReport:
    report = trials.run(tmp_path_factory.mktemp("baseline"), purpose=Purpose.BASELINE)
    assert isinstance(report.outcome, Measured), report.outcome
    return report


def test_a_baseline_gives_the_reference_and_agrees_with_itself_under_load(baseline: TrialReport) -> None:
    output = baseline.output
    assert output is not None
    assert (output.alone, len(output.prompts), len(output.answers)) == (None, 8, 8)
    assert all(len(answer.pieces) == len(answer.logprobs) == 32 for answer in output.answers)
    assert output.loaded is not None
    assert (output.loaded.share, output.loaded.drift) == (1.0, 0.0)


def test_a_fast_setting_with_right_answers_is_measured(baseline: TrialReport, tmp_path: Path) -> None:
    report = trials.run(tmp_path, {"kv": "fp8_e5m2"}, reference=reference_of(baseline))
    assert isinstance(report.outcome, Measured), report.outcome
    assert report.output is not None
    assert report.output.alone is not None
    assert report.output.alone.share == 1.0
    assert 0 < (report.output.alone.drift or 0) < 0.1
    assert report.output.answers == (), "only a baseline's answers are kept in the database"
    assert "answers" in report.artifacts


def test_a_fast_setting_with_wrong_answers_is_no_number(baseline: TrialReport, tmp_path: Path) -> None:
    report = trials.run(tmp_path, {"kv": "fp4-fast"}, reference=reference_of(baseline))
    failure = report.outcome
    assert isinstance(failure, Failure)
    assert failure.failure_class is FailureClass.WRONG_OUTPUT
    assert "of the tokens are the baseline's alone" in failure.detail
    assert any("the baseline answered" in line for line in failure.evidence)


@pytest.mark.parametrize(
    ("fault", "words"),
    [("wrong-tokens:running=3", "under load"), ("short:skip=1", "ended after 16 of 32 tokens")],
)
def test_a_server_that_answers_wrongly_is_no_number(
    baseline: TrialReport, tmp_path: Path, fault: str, words: str
) -> None:
    report = trials.run(tmp_path, flags={"--fault": fault}, reference=reference_of(baseline))
    assert isinstance(report.outcome, Failure)
    assert report.outcome.failure_class is FailureClass.WRONG_OUTPUT
    assert words in report.outcome.detail


def test_the_check_can_be_switched_off(baseline: TrialReport, tmp_path: Path) -> None:
    off = {"enabled": False}
    report = trials.run(tmp_path, {"kv": "fp4-fast"}, reference=reference_of(baseline), output_check=off)
    assert isinstance(report.outcome, Measured)
    assert report.output is None


def test_a_server_that_dies_of_the_questions_failed_for_that_reason(tmp_path: Path) -> None:
    report = trials.run(tmp_path, flags={"--fault": "crash@serving:class=cuda_fault,running=1,after=40"})
    assert isinstance(report.outcome, Failure)
    assert report.outcome.failure_class is FailureClass.CUDA_FAULT


def test_finalists_answer_the_users_own_questions(baseline: TrialReport, tmp_path: Path) -> None:
    assert baseline.output is not None
    known = baseline.output.prompts[0], " ".join(baseline.output.answers[0].text.split()[:2])
    file = tmp_path / "questions.jsonl"
    pairs = [known, ("Who?", "Nobody")]
    file.write_text("".join(json.dumps({"question": asked, "answer": right}) + "\n" for asked, right in pairs))
    report = trials.run(
        tmp_path / "run",
        purpose=Purpose.CONFIRM,
        reference=reference_of(baseline),
        output_check={"questions": str(file)},
    )
    assert report.output is not None
    assert report.output.task is not None
    assert (report.output.task.right, report.output.task.asked) == (1, 2)
