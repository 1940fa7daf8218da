"""What a report says of the launch as a whole."""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from support import trials
from support.limits import no_more_files

from tuner.domain.outcome import FAILURES, Failure, FailureClass, Phase
from tuner.domain.trial import TrialEvent


def test_a_clock_that_is_set_meanwhile_makes_no_launch_a_day_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = itertools.count(1_000_000.0, 86_400.0)
    monkeypatch.setattr(time, "time", lambda: next(days))
    report = trials.run(tmp_path, engines={"simulated": {"command": ["/nowhere/server"]}})
    assert isinstance(report.outcome, Failure)
    assert 0 <= report.finished_at - report.started_at < 3_600


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
