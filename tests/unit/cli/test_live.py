"""Progress: how many trials have ended, of how many at most, and how long the rest may take."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import records

from tuner.cli.live import StudyView
from tuner.domain.outcome import Action, Phase
from tuner.domain.trial import Purpose, TrialEvent
from tuner.study.events import AttemptEnded, AttemptProgressed
from tuner.study.options import StartOptions
from tuner.study.preparing import Prepared, prepare_start
from tuner.study.stopping import trials_spent


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare_start(StartOptions("quickstart", name="night"))


def ended(trial: int) -> AttemptEnded:
    """A trial of a minute."""
    report = records.measured_report(started_at=0.0, finished_at=60.0)
    return AttemptEnded(records.attempt(trial, records.candidate(), report), report, None)


def lines(view: StudyView, capsys: pytest.CaptureFixture[str], *trials: int) -> list[str]:
    for trial in trials:
        view.notify(ended(trial))
    return [line[line.rindex(" [") + 1 :] for line in capsys.readouterr().err.splitlines()]


def test_trials_are_bounded_and_the_time_is_an_estimate(prepared: Prepared, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(StudyView(prepared), capsys, 0, 1) == [
        "[1 of at most 16 trials, about 15 min 0 s left at this pace]",
        "[2 of at most 16 trials, about 14 min 0 s left at this pace]",
    ]


def test_nothing_is_left_after_the_last_one(prepared: Prepared, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(StudyView(prepared, 1), capsys, 0) == ["[1 of at most 1 trial]"]


def test_a_resumed_study_counts_the_trials_that_it_had(prepared: Prepared, capsys: pytest.CaptureFixture[str]) -> None:
    view = StudyView(prepared, begun=14)
    assert lines(view, capsys, 14) == ["[15 of at most 16 trials, about 60 s left at this pace]"]


def test_an_ablation_that_resume_finishes_is_no_trial_of_the_budget(
    prepared: Prepared, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ended(16)
    ablation = replace(one, attempt=replace(one.attempt, purpose=Purpose.ABLATE))
    for view, progress in ((StudyView(prepared, begun=16), "[16 of at most 16 trials]"),
                           (StudyView(prepared, 1), "[1 of at most 1 trial]")):  # fmt: skip
        view.notify(ablation)
        assert capsys.readouterr().err.rstrip().endswith(progress)


def test_a_launch_of_which_nobody_knows_how_long_it_took_tells_nothing_about_the_rest(
    prepared: Prepared, capsys: pytest.CaptureFixture[str]
) -> None:
    view, lost = StudyView(prepared), ended(0)
    view.notify(replace(lost, report=replace(lost.report, started_at=0.0, finished_at=0.0)))
    assert "left at this pace" not in capsys.readouterr().err


def test_what_a_launch_waits_for_is_a_line_of_its_own(prepared: Prepared, capsys: pytest.CaptureFixture[str]) -> None:
    view, attempt = StudyView(prepared), records.attempt(3, records.candidate())
    for phase, text in ((Phase.PREFLIGHT, "waiting: gpu 0"), (Phase.PREFLIGHT, "waiting: gpu 0"), (Phase.SPAWN, "x")):
        view.notify(AttemptProgressed(attempt, TrialEvent(0.0, phase, text)))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("trial 3: waiting: gpu 0")


def failed(trial: int, seconds: float) -> AttemptEnded:
    report = records.failed_report(started_at=0.0, finished_at=seconds)
    return AttemptEnded(records.attempt(trial, records.candidate(), report), report, Action.MARK_INFEASIBLE)


def test_what_fails_at_once_does_not_make_the_rest_look_short(
    prepared: Prepared, capsys: pytest.CaptureFixture[str]
) -> None:
    view = StudyView(prepared)
    view.notify(failed(0, 2.0))
    assert "[1 of at most 16 trials, time left unknown]" in capsys.readouterr().err
    assert lines(view, capsys, 1) == ["[2 of at most 16 trials, about 14 min 0 s left at this pace]"]
    view.notify(failed(2, 2.0))
    assert "about 13 min 0 s left" in capsys.readouterr().err


def test_what_fails_after_a_time_out_counts(prepared: Prepared, capsys: pytest.CaptureFixture[str]) -> None:
    view = StudyView(prepared)
    view.notify(failed(0, 180.0))
    assert lines(view, capsys, 1)[-1] == "[2 of at most 16 trials, about 28 min 0 s left at this pace]"


def test_what_costs_the_budget_nothing_is_no_part_of_the_progress() -> None:
    launches = [
        records.attempt(0, records.candidate(), records.measured_report(), told=True),
        records.attempt(1, records.candidate(), records.measured_report()),
        records.attempt(2, records.candidate(), records.measured_report(), told=True, purpose=Purpose.ABLATE),
    ]
    assert trials_spent(launches) == 1
    assert trials_spent([*launches, replace(launches[0], attempt=2)]) == 1
