"""What a trial cost: the time that its launches ran, whatever lay between them."""

from __future__ import annotations

from support import records

from tuner.cli.failures_view import failure_rows
from tuner.domain.study import AttemptRecord, AttemptState
from tuner.study.summary import summarise

HOUR = 3600.0


def interrupted_and_failed_later() -> list[AttemptRecord]:
    """A launch that was interrupted after a minute and given up three hours later, then one that fails in 102 s."""
    lost = records.attempt(
        2,
        records.candidate(),
        state=AttemptState.ABANDONED,
        started_at=1000.0,
        lease_expires_at=1060.0,
        finished_at=1000.0 + 3 * HOUR,
    )
    report = records.failed_report(started_at=1010.0 + 3 * HOUR, finished_at=1112.0 + 3 * HOUR)
    again = records.attempt(
        2, records.candidate(), report, attempt=2, started_at=1010.0 + 3 * HOUR, finished_at=1112.5 + 3 * HOUR
    )
    return [lost, again]


def test_the_time_until_an_interrupted_launch_was_found_is_no_part_of_a_trials_cost() -> None:
    (row,) = summarise(records.space(), interrupted_and_failed_later())
    assert row.seconds == 60.0 + 102.0


def test_a_failure_costs_what_the_launches_ran_that_failed() -> None:
    (failure,) = failure_rows(summarise(records.space(), interrupted_and_failed_later()))
    assert failure["seconds"] == 102.0


def test_a_launch_ran_as_long_as_its_worker_says() -> None:
    stored_afterwards = records.attempt(
        0,
        records.candidate(),
        records.measured_report(started_at=1000.0, finished_at=1053.0),
        started_at=1053.0,
        finished_at=1053.006,
    )
    assert stored_afterwards.ran_s == 53.0


def test_a_launch_costs_nothing_while_it_runs() -> None:
    running = records.attempt(0, records.candidate(), started_at=1000.0, lease_expires_at=1060.0)
    assert running.ran_s == 0.0
