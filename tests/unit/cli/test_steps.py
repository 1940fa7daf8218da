"""The steps of a single launch are told once each."""

from __future__ import annotations

import pytest

from tuner.cli.steps import StepLines
from tuner.domain.outcome import Phase
from tuner.domain.trial import TrialEvent


def told(capsys: pytest.CaptureFixture[str], *events: tuple[Phase, str]) -> list[str]:
    lines = StepLines()
    for phase, text in events:
        lines(TrialEvent(0.0, phase, text))
    return capsys.readouterr().err.splitlines()


def test_a_step_is_told_when_it_begins_and_not_again_while_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(
        capsys,
        (Phase.SPAWN, "launching"),
        (Phase.WEIGHTS, ""),
        (Phase.SERVING, "C=1 run 1: 0/5 requests"),
        (Phase.SERVING, "C=1 run 1: 4/5 requests, 30 tok/s"),
        (Phase.SERVING, "C=4 run 1: 0/8 requests"),
        (Phase.TEARDOWN, "tear-down"),
    ) == ["spawn: launching", "serving: C=1 run 1", "serving: C=4 run 1", "teardown: tear-down"]


def test_the_same_step_of_a_second_launch_is_told_again(capsys: pytest.CaptureFixture[str]) -> None:
    one = [(Phase.SERVING, "C=1 run 1: 0/5 requests"), (Phase.TEARDOWN, "tear-down")]
    assert told(capsys, *one, *one) == ["serving: C=1 run 1", "teardown: tear-down"] * 2
