"""Domain nouns to rows and back, so that a record read again equals the record written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Row

from tuner.domain.candidate import Candidate
from tuner.domain.launch import LaunchPlan
from tuner.domain.load import LoadPoint
from tuner.domain.measurement import LevelResult, Measured, MeasuredInPart, Measurement, Metric, SpreadKind
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.output import OutputReport
from tuner.domain.space import Space
from tuner.domain.study import ArtifactRecord, AttemptRecord, AttemptState, ExportRecord, StudyRecord, StudyState
from tuner.domain.trial import KnobActivity, LaunchKind, Outcome, Purpose, TrialReport
from tuner.errors import StudyError
from tuner.store.tables import ArtifactRow, AttemptRow, ExportRow, LevelRow, MeasurementRow, StudyRow

_PLAN = TypeAdapter(LaunchPlan | None)
_CANDIDATE = TypeAdapter(Candidate)
_ACTIVITY = TypeAdapter(tuple[KnobActivity, ...])
_OUTPUT = TypeAdapter(OutputReport | None)
_PHASES = TypeAdapter(Mapping[Phase, float])


def study_to_row(record: StudyRecord) -> StudyRow:
    """A new row; it belongs to no coordinator yet."""
    return StudyRow(
        name=record.name,
        space_text=record.space_text,
        space=record.space.model_dump(mode="json", by_alias=True),  # defaults too: they may change
        space_hash=record.space_hash,
        overrides=dict(record.overrides),
        sampler=record.sampler,
        seed=record.seed,
        simulated=record.simulated,
        tuner_version=record.tuner_version,
        created_at=record.created_at,
        state=record.state.value,
        stop_requested=record.stop_requested,
        reason=record.reason,
    )


def study_from_row(row: StudyRow) -> StudyRecord:
    """The study as it was stored.

    Raises:
        StudyError: its space no longer fits this version's definition of a space.
    """
    try:
        space = Space.model_validate(row.space)
    except ValidationError as error:
        message = f"study {row.name} was made by tuner {row.tuner_version}; this version cannot read its space"
        raise StudyError(message, hint="use that version to export it, then start a new study") from error
    return StudyRecord(
        name=row.name,
        space=space,
        space_text=row.space_text,
        space_hash=row.space_hash,
        overrides=dict(row.overrides),
        sampler=row.sampler,
        seed=row.seed,
        simulated=row.simulated,
        tuner_version=row.tuner_version,
        created_at=row.created_at,
        state=StudyState(row.state),
        stop_requested=row.stop_requested,
        reason=row.reason,
    )


def candidate_document(candidate: Candidate) -> dict[str, Any]:
    """The JSON form of a candidate."""
    return {"engine": candidate.engine, "values": dict(candidate.values)}


def write_report(row: AttemptRow, report: TrialReport, artifacts: tuple[ArtifactRecord, ...]) -> None:
    """Fill a row with everything that a worker reported, and set its state."""
    outcome = report.outcome
    row.worker_started_at, row.worker_finished_at = report.started_at, report.finished_at
    row.plan = _PLAN.dump_python(report.plan, mode="json")
    row.phase_seconds = _PHASES.dump_python(report.phase_seconds, mode="json")
    row.activity = _ACTIVITY.dump_python(report.activity, mode="json")
    row.versions, row.machine, row.notes = dict(report.versions), dict(report.machine), list(report.notes)
    row.output = _OUTPUT.dump_python(report.output, mode="json")
    row.launch_kind = report.kind.value
    row.artifacts = [ArtifactRow(kind=a.kind, path=a.path, sha256=a.sha256, size_bytes=a.size_bytes) for a in artifacts]
    if isinstance(outcome, Measured):
        row.state = AttemptState.MEASURED.value
        row.simulated = outcome.simulated
        row.warnings = list(outcome.warnings)
        row.levels = [_level_row(position, level) for position, level in enumerate(outcome.levels)]
    elif isinstance(outcome, MeasuredInPart):
        row.state = AttemptState.PARTIAL.value
        row.simulated = outcome.simulated
        row.detail = outcome.reason
        row.levels = [_level_row(position, level) for position, level in enumerate(outcome.levels)]
    else:
        row.state = AttemptState.FAILED.value
        row.failure_class, row.failure_phase = outcome.failure_class.value, outcome.phase.value
        row.evidence, row.blames = list(outcome.evidence), list(outcome.blames)
        row.detail, row.exit_code = outcome.detail, outcome.exit_code


def _level_row(position: int, level: LevelResult) -> LevelRow:
    return LevelRow(
        position=position,
        level=level.load.level or level.in_flight or 0,
        asked=level.asked,
        completed=level.completed,
        errors=dict(level.errors),
        duration_s=level.duration_s,
        client_cpu_share=level.client_cpu_share,
        client_lag_ms=level.client_lag_ms,
        warnings=list(level.warnings),
        rate=level.load.rate,
        client_processes=level.client_processes,
        prompt_tokens=level.prompt_tokens,
        cached_share=level.cached_share,
        measurements=[
            MeasurementRow(
                position=index,
                metric=m.metric.value,
                level=m.load.level or 0,
                repeats=list(m.repeats),
                center=m.center,
                low=m.low,
                high=m.high,
                spread_kind=m.spread_kind.value,
                samples=m.samples,
                rate=m.load.rate,
            )
            for index, m in enumerate(level.measurements)
        ],
    )


def attempt_from_row(row: AttemptRow | Row[Any], study: str, report: TrialReport | None) -> AttemptRecord:
    """The attempt as it was stored; its report, once it has one, is read apart."""
    return AttemptRecord(
        id=row.id,
        study=study,
        trial=row.trial,
        attempt=row.attempt,
        purpose=Purpose(row.purpose),
        candidate=_CANDIDATE.validate_python(row.candidate),
        state=AttemptState(row.state),
        run_dir=row.run_dir,
        lease_owner=row.lease_owner,
        lease_expires_at=row.lease_expires_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        told=row.told,
        block=row.block,
        report=report,
    )


def report_from_row(row: Row[Any], levels: Sequence[LevelResult], artifacts: Mapping[str, str]) -> TrialReport:
    """What the worker of a finished attempt reported.

    Args:
        row: every column of the attempt.
        levels: what it measured.
        artifacts: kind → path.
    """
    return TrialReport(
        outcome=_outcome(row, tuple(levels)),
        plan=_PLAN.validate_python(row.plan),
        phase_seconds=_PHASES.validate_python(row.phase_seconds),
        activity=_ACTIVITY.validate_python(row.activity),
        versions=row.versions,
        machine=row.machine,
        artifacts=artifacts,
        started_at=row.worker_started_at,
        finished_at=row.worker_finished_at,
        notes=tuple(row.notes),
        output=_OUTPUT.validate_python(row.output),
        kind=LaunchKind(row.launch_kind),
    )


def _outcome(row: Row[Any], levels: tuple[LevelResult, ...]) -> Outcome:
    if row.state == AttemptState.PARTIAL.value:
        return MeasuredInPart(levels, simulated=row.simulated, reason=row.detail or "")
    if row.failure_class is None:
        return Measured(levels, simulated=row.simulated, warnings=tuple(row.warnings))
    return Failure(
        failure_class=FailureClass(row.failure_class),
        phase=Phase(row.failure_phase),
        evidence=tuple(row.evidence),
        blames=tuple(row.blames),
        detail=row.detail or "",
        exit_code=row.exit_code,
    )


def level_from_row(row: Row[Any], measurements: Sequence[Measurement]) -> LevelResult:
    """One load as it was stored, with what was read of its measurements."""
    return LevelResult(
        load=_load(row.level, row.rate),
        asked=row.asked,
        completed=row.completed,
        errors=row.errors,
        measurements=tuple(measurements),
        duration_s=row.duration_s,
        client_cpu_share=row.client_cpu_share,
        client_lag_ms=row.client_lag_ms,
        warnings=tuple(row.warnings),
        in_flight=None if row.rate is None else row.level,
        client_processes=row.client_processes,
        prompt_tokens=row.prompt_tokens,
        cached_share=row.cached_share,
    )


def measurement_of(
    metric: str,
    level: int,
    rate: float | None,
    repeats: list[float],
    center: float,
    low: float | None,
    high: float | None,
    spread_kind: str,
    samples: int,
) -> Measurement:
    """One metric at one load from its columns."""
    load = _load(level, rate)
    return Measurement(Metric(metric), load, tuple(repeats), center, low, high, SpreadKind(spread_kind), samples)


@lru_cache(maxsize=1024)
def _load(level: int, rate: float | None) -> LoadPoint:
    """The column `level` of a row at a rate does not say the load. A study has few loads and a great many rows."""
    return LoadPoint(level=level) if rate is None else LoadPoint(rate=rate)


def artifact_from_row(row: ArtifactRow) -> ArtifactRecord:
    """The artifact as it was stored."""
    return ArtifactRecord(kind=row.kind, path=row.path, sha256=row.sha256, size_bytes=row.size_bytes)


def export_from_row(row: ExportRow, study: str) -> ExportRecord:
    """The export as it was stored."""
    return ExportRecord(
        study=study, trial=row.trial, format=row.format, path=row.path, sha256=row.sha256, created_at=row.created_at
    )
