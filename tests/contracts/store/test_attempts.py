"""Launches in a store: opened, finished, given up; and the files that they leave."""

from __future__ import annotations

import gc
import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import records
from support.stores import TTL, Clock, opened

from tuner.domain.measurement import MeasuredInPart, Metric
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.study import AttemptRecord, AttemptState, ExportRecord, Tally
from tuner.domain.trial import Purpose
from tuner.errors import StudyError
from tuner.store import Store, reading
from tuner.store.owner import this_process


def test_an_open_attempt_is_recorded_with_its_lease(night: Store, clock: Clock) -> None:
    attempt = opened(night, trial=3, attempt=2, purpose=Purpose.BASELINE)
    assert night.attempts("night") == [attempt]
    assert attempt == AttemptRecord(
        id=attempt.id,
        study="night",
        trial=3,
        attempt=2,
        purpose=Purpose.BASELINE,
        candidate=records.candidate(),
        state=AttemptState.RUNNING,
        run_dir="/runs/night/3/2",
        lease_owner="box:1:2:3",
        lease_expires_at=clock.now + TTL,
        started_at=clock.now,
    )


def test_candidates_keep_their_values_types_and_fingerprint(night: Store) -> None:
    wanted = records.candidate(a=True, b=1, c=1.0, d="1", e=None, f="on", g=0.1 + 0.2)
    kept = opened(night, candidate=wanted).candidate
    assert kept.fingerprint == wanted.fingerprint
    assert [(type(v), v) for v in kept.values.values()] == [(type(v), v) for v in wanted.values.values()]


def test_an_attempt_is_opened_once(night: Store, clock: Clock) -> None:
    first = opened(night)
    assert opened(night) == first  # the same call again, after a lost commit
    clock.now += 1
    with pytest.raises(StudyError, match="attempt 1 of trial 0 of study night was opened before"):
        opened(night)


@pytest.mark.parametrize(
    "report",
    [
        records.measured_report(),
        records.failed_report(),
        records.failed_report(plan=records.plan(), artifacts={"server_log": "server.log"}),
        records.failed_report(outcome=Failure(FailureClass.UNKNOWN, Phase.SERVING)),
    ],
    ids=["measured", "failed early", "failed late", "failed bare"],
)
def test_a_report_reads_back_as_it_was_written(night: Store, clock: Clock, report) -> None:
    attempt = opened(night)
    clock.now += 60
    finished = night.finish_attempt(attempt.id, report)
    assert finished.report == report
    assert finished.finished_at == clock.now
    assert finished.state is (AttemptState.FAILED if isinstance(report.outcome, Failure) else AttemptState.MEASURED)
    assert night.attempts("night") == [finished]


def test_phases_and_knobs_keep_their_order(night: Store) -> None:
    kept = night.finish_attempt(opened(night).id, records.measured_report()).report
    assert kept is not None
    assert list(kept.phase_seconds) == [Phase.SPAWN, Phase.SERVING]
    assert kept.plan is not None
    assert list(kept.plan.env) == ["NCCL_PROTO", "EMPTY"]


def test_the_first_report_of_an_attempt_counts(night: Store) -> None:
    attempt = opened(night)
    first = night.finish_attempt(attempt.id, records.measured_report())
    assert night.finish_attempt(attempt.id, records.failed_report()) == first


def test_a_report_for_an_abandoned_attempt_changes_nothing(night: Store) -> None:
    attempt = opened(night)
    night.abandon(attempt.id)
    late = night.finish_attempt(attempt.id, records.measured_report())
    assert (late.state, late.report) == (AttemptState.ABANDONED, None)


def test_a_finished_attempt_cannot_be_abandoned(night: Store) -> None:
    attempt = opened(night)
    finished = night.finish_attempt(attempt.id, records.measured_report())
    night.abandon(attempt.id)
    assert night.attempts("night") == [finished]


def test_an_attempt_found_dead_days_later_lasted_as_long_as_it_was_looked_after(night: Store, clock: Clock) -> None:
    dead, alive = opened(night, 0), opened(night, 1)
    began = clock.now
    clock.now += TTL / 2
    night.abandon(alive.id)
    clock.now += 86_400
    night.abandon(dead.id)
    assert [(a.trial, a.finished_at) for a in night.attempts("night")] == [(0, began + TTL), (1, began + TTL / 2)]


def test_a_report_for_a_deleted_study_is_a_clear_error(night: Store) -> None:
    attempt = opened(night)
    night.delete_study("night")
    with pytest.raises(StudyError, match=f"no attempt {attempt.id}"):
        night.finish_attempt(attempt.id, records.measured_report())


def test_untold_attempts_are_those_with_an_outcome_that_the_sampler_has_not_heard(night: Store) -> None:
    measured, failed, lost, told, _running = (opened(night, trial) for trial in range(5))
    night.finish_attempt(measured.id, records.measured_report())
    night.finish_attempt(failed.id, records.failed_report())
    night.abandon(lost.id)
    night.finish_attempt(told.id, records.measured_report())
    night.mark_told(told.id)
    assert [a.trial for a in night.untold("night")] == [measured.trial, failed.trial]
    assert [a.told for a in night.attempts("night")] == [False, False, False, True, False]


def test_a_heartbeat_keeps_an_attempt_from_expiring(night: Store, clock: Clock) -> None:
    beating, silent = opened(night, 0), opened(night, 1)
    clock.now += TTL / 2
    assert night.heartbeat(beating.id, TTL)
    clock.now += TTL / 2
    assert [a.id for a in night.expired("night", clock.now)] == [silent.id]


def test_a_heartbeat_says_when_the_attempt_was_given_up(night: Store) -> None:
    attempt = opened(night)
    night.abandon(attempt.id)
    assert not night.heartbeat(attempt.id, TTL)
    assert night.expired("night", 1e12) == []


def test_the_attempt_of_a_gone_process_of_this_machine_is_expired_at_once(night: Store) -> None:
    program = "from tuner.store.owner import this_process; print(this_process())"
    owner = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    gone, mine = opened(night, 0, owner=owner), opened(night, 1, owner=this_process())
    assert [a.id for a in night.expired("night")] == [gone.id]
    assert mine.lease_owner == this_process()


def test_attempts_are_selected_by_purpose_state_and_trial(night: Store) -> None:
    base = opened(night, 0, purpose=Purpose.BASELINE)
    night.finish_attempt(base.id, records.measured_report())
    retry = [opened(night, 1, attempt) for attempt in (1, 2)]
    assert [a.id for a in night.attempts("night", purpose=Purpose.BASELINE)] == [base.id]
    assert [a.id for a in night.attempts("night", state=AttemptState.RUNNING)] == [a.id for a in retry]
    assert [a.attempt for a in night.attempts("night", trial=1)] == [1, 2]


def test_reading_again_tells_what_happened_since(night: Store) -> None:
    first, second = opened(night, 0), opened(night, 1)
    night.finish_attempt(first.id, records.measured_report())
    assert [(a.state.value, a.told) for a in night.attempts("night")] == [("measured", False), ("running", False)]
    night.mark_told(first.id)
    night.heartbeat(second.id, 7 * TTL)
    later = night.attempts("night")
    assert [(a.state.value, a.told) for a in later] == [("measured", True), ("running", False)]
    assert later[1].lease_expires_at == second.lease_expires_at + 6 * TTL
    night.abandon(second.id)
    assert [a.state.value for a in night.attempts("night")] == ["measured", "abandoned"]


def test_a_new_attempt_is_not_taken_for_the_deleted_one_whose_number_it_got(night: Store, clock: Clock) -> None:
    night.finish_attempt(opened(night, 0).id, records.measured_report(single=90.0))
    assert len(night.attempts("night")) == 1
    night.delete_study("night")
    night.create_study(records.study())
    clock.now += 1
    night.finish_attempt(opened(night, 0).id, records.measured_report(single=45.0))
    [again] = night.attempts("night")
    assert again.value(records.space().goals[0].at) == 45.0


def test_a_study_of_more_attempts_than_one_question_reads_comes_back_whole(
    night: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_CHUNK", 2)
    reports = [records.measured_report(single=float(90 + trial)) for trial in range(5)]
    for trial, report in enumerate(reports):
        night.finish_attempt(opened(night, trial).id, report)
    assert [a.report for a in night.attempts("night")] == reports


def test_of_some_metrics_only_their_measurements_are_read_and_the_rest_of_the_report(night: Store) -> None:
    whole = records.measured_report()
    night.finish_attempt(opened(night).id, whole)
    [part] = night.attempts("night", metrics={Metric.TTFT_P99_MS})
    assert part.report is not None
    levels = part.report.outcome.levels
    assert [[row.metric for row in level.measurements] for level in levels] == [[Metric.TTFT_P99_MS]] * 2
    kept = [
        replace(level, measurements=one.measurements) for level, one in zip(levels, whole.outcome.levels, strict=True)
    ]
    assert replace(part.report, outcome=replace(part.report.outcome, levels=tuple(kept))) == whole
    assert [a.report for a in night.attempts("night")] == [whole]


def test_measured_launches_come_one_after_the_other_and_few_are_in_memory_at_a_time(
    night: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_CHUNK", 2)
    first = records.candidate(custom_all_reduce=False)
    for trial in range(12):
        report = records.failed_report() if trial == 1 else records.measured_report()
        night.finish_attempt(opened(night, trial, candidate=records.candidate() if trial else first).id, report)
    opened(night, 12)
    alive = sum(isinstance(found, AttemptRecord) for found in gc.get_objects())
    trials, most = [], 0
    for attempt in night.each_measured("night"):
        trials.append(attempt.trial)
        most = max(most, sum(isinstance(found, AttemptRecord) for found in gc.get_objects()) - alive)
    assert trials == [0, *range(2, 12)]
    assert 2 <= most <= 4
    assert night.settings_measured("night") == ("custom_all_reduce", "nccl_proto", "decode_steps")
    with pytest.raises(StudyError, match="no study"):
        next(night.each_measured("day"))


def test_trials_are_counted_by_their_last_launch(night: Store, clock: Clock) -> None:
    in_part = MeasuredInPart((records.level(1, 40.0),), simulated=True, reason="beaten")
    ends = [
        (Purpose.BASELINE, records.measured_report()),
        (Purpose.SEARCH, records.measured_report()),
        (Purpose.ABLATE, records.measured_report()),
        (Purpose.SEARCH, records.measured_report(outcome=in_part)),
        (Purpose.VERIFY, records.measured_report(outcome=in_part)),
        (Purpose.SEARCH, records.failed_report()),
    ]
    for trial, (purpose, report) in enumerate(ends):
        night.finish_attempt(opened(night, trial, purpose=purpose).id, report)
    retried = opened(night, 6)
    night.finish_attempt(retried.id, records.failed_report())
    night.finish_attempt(opened(night, 6, 2).id, records.measured_report())
    night.abandon(opened(night, 7).id)
    opened(night, 8)
    clock.now += TTL
    opened(night, 9)
    assert night.tally("night") == Tally(
        trials=10,
        beside_budget=2,
        measured=4,
        measured_in_part=1,
        verified=1,
        failed=1,
        running=1,
        interrupted=1,
    )


def test_a_study_without_launches_counts_nothing(night: Store) -> None:
    assert night.tally("night") == Tally(0, 0, 0, 0, 0, 0, 0, 0)
    assert night.last_ended("night") is None


def test_the_last_end_is_that_of_the_launch_that_ended_last(night: Store, clock: Clock) -> None:
    long, short = opened(night, 0), opened(night, 1)
    clock.now += 5
    night.finish_attempt(short.id, records.failed_report())
    clock.now += 5
    night.finish_attempt(long.id, records.measured_report())
    assert night.last_ended("night") == clock.now


def test_artifacts_carry_hash_and_size_of_what_was_there(night: Store, tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes(b"ready\n")
    attempt = opened(night, run_dir=str(tmp_path))
    night.finish_attempt(attempt.id, records.measured_report())
    log, script = night.artifacts(attempt.id)
    assert (log.kind, log.path, log.size_bytes) == ("server_log", "server.log", 6)
    assert log.sha256 == hashlib.sha256(b"ready\n").hexdigest()
    assert (script.kind, script.sha256, script.size_bytes) == ("launch_script", None, None)


def test_exports_are_remembered_once(night: Store) -> None:
    export = ExportRecord("night", 7, "sh", "serve.sh", "ff" * 32, 12.5)
    night.record_export(export)
    night.record_export(export)
    night.record_export(replace(export, created_at=13.5))
    assert night.exports("night") == [export, replace(export, created_at=13.5)]
