"""The reference of the output check, from what is stored."""

from __future__ import annotations

from dataclasses import replace

from support import records

from tuner.domain.output import Agreement, Answer, OutputReport
from tuner.domain.study import AttemptRecord, AttemptState
from tuner.domain.trial import Purpose
from tuner.study.reference import output_reference

ANSWER = Answer("abc", ("a", "b", "c"), (-0.5,) * 3)


def launch(trial: int, output: OutputReport | None, purpose: Purpose = Purpose.BASELINE) -> AttemptRecord:
    return records.attempt(trial, records.candidate(), records.measured_report(output=output), purpose=purpose)


def seen(alone: float | None, loaded: float, drift: float = 0.0) -> OutputReport:
    found = None if alone is None else Agreement(alone, drift, 64)
    return OutputReport(found, Agreement(loaded, drift, 64), prompts=("Hello",), answers=(ANSWER,))


def test_the_first_launch_of_the_baseline_gives_the_reference() -> None:
    found = output_reference("simulated", [launch(0, seen(None, 1.0)), launch(1, seen(1.0, 1.0))])
    assert found is not None
    assert (found.prompts, found.answers, found.own_alone) == (("Hello",), (ANSWER,), 1.0)


def test_its_further_launches_say_how_far_it_agrees_with_itself() -> None:
    launches = [launch(0, seen(None, 0.9)), launch(1, seen(0.95, 0.8, drift=0.02)), launch(2, seen(0.97, 0.85))]
    found = output_reference("simulated", launches)
    assert found is not None
    assert (found.own_alone, found.own_loaded, found.own_drift) == (0.95, 0.8, 0.02)


def test_launches_of_the_search_and_of_other_engines_give_none() -> None:
    other = launch(0, seen(None, 1.0))
    assert output_reference("vllm", [other]) is None
    assert output_reference("simulated", [launch(0, seen(None, 1.0), Purpose.SEARCH)]) is None


def test_a_baseline_that_failed_or_was_not_checked_gives_none() -> None:
    failed = replace(launch(0, None), report=records.failed_report(), state=AttemptState.FAILED)
    assert output_reference("simulated", [failed, launch(1, None)]) is None
