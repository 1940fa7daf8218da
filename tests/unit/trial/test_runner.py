"""What a report says of the launch as a whole."""

from __future__ import annotations

import itertools
import os
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from support import trials
from support.limits import no_more_files

from tuner.domain.measurement import Measured
from tuner.domain.outcome import FAILURES, Action, Failure, FailureClass, Phase
from tuner.domain.trial import TrialEvent
from tuner.trial.hostlocks import lock_gpus

GPU = 900
"""No machine has so many, and no other test locks this one."""


def test_a_clock_that_is_set_meanwhile_makes_no_launch_a_day_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = itertools.count(1_000_000.0, 86_400.0)
    monkeypatch.setattr(time, "time", lambda: next(days))
    report = trials.run(tmp_path, engines={"simulated": {"command": ["/nowhere/server"]}})
    assert isinstance(report.outcome, Failure)
    assert 0 <= report.finished_at - report.started_at < 3_600


@pytest.mark.slow
def test_a_launch_waits_for_the_gpus_that_another_study_launches_on(tmp_path: Path) -> None:
    other, heard = lock_gpus([GPU]), []

    def notify(event: TrialEvent) -> None:
        if event.phase is Phase.PREFLIGHT:
            heard.append(event.text)
            other.close()

    report = trials.run(tmp_path, gpus=(GPU,), notify=notify)
    assert isinstance(report.outcome, Measured), report.outcome
    assert [text.partition(" on ")[0] for text in heard] == [f"waiting: gpu {GPU} is in use by another study"]


def test_gpus_that_another_study_keeps_are_busy_and_no_broken_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.trial.runner._GPUS_FREE_S", 0.0)
    with lock_gpus([GPU]):
        failure = trials.run(tmp_path, gpus=(GPU,)).outcome
    assert isinstance(failure, Failure)
    assert (failure.failure_class, failure.phase) == (FailureClass.GPU_BUSY, Phase.PREFLIGHT)
    assert f"pid {os.getpid()}" in failure.evidence[0]
    assert FAILURES[failure.failure_class].action is Action.RETRY_WAIT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "room", "phase"),
    [("launching", 0, Phase.SPAWN), ("output check", 6, Phase.SERVING), ("output check", 12, Phase.SERVING)],
)
def test_a_worker_that_may_open_no_more_files_holds_nothing_against_the_candidate(
    tmp_path: Path, step: str, room: int, phase: Phase
) -> None:
    with ExitStack() as limits:

        def notify(event: TrialEvent) -> None:
            if event.text == step:
                limits.enter_context(no_more_files(room))

        failure = trials.run(tmp_path, notify=notify).outcome
    assert isinstance(failure, Failure)
    assert (failure.failure_class, failure.phase) == (FailureClass.CLIENT_STARVED, phase)
    assert "Too many open files" in failure.evidence[0]
    assert "ulimit -n" in failure.detail
    policy = FAILURES[failure.failure_class]
    assert (policy.fault, policy.teaches_sampler) == ("machine", False)
