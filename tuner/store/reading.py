"""Attempts read as columns, a chunk at a time.

A study of 10,000 launches has some 400,000 measurements: an object of the mapper's for each of them takes half a minute
and more than a gigabyte, their columns a few seconds.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sqlalchemy import select
from sqlalchemy.orm import Session

from tuner.domain.measurement import LevelResult, Measurement, Metric
from tuner.domain.study import AttemptRecord, AttemptState
from tuner.store import codec
from tuner.store.tables import ArtifactRow, AttemptRow, LevelRow, MeasurementRow, StudyRow

_CHUNK = 500
"""Rows of one question: databases allow so many values in it, and memory holds so many documents beside the result."""

_MEASUREMENT = (
    MeasurementRow.level_id,
    MeasurementRow.metric,
    MeasurementRow.level,
    MeasurementRow.rate,
    MeasurementRow.repeats,
    MeasurementRow.center,
    MeasurementRow.low,
    MeasurementRow.high,
    MeasurementRow.spread_kind,
    MeasurementRow.samples,
)


def read_attempts(
    session: Session, ids: Sequence[int], metrics: Collection[Metric] | None = None
) -> Iterator[AttemptRecord]:
    """The attempts of these numbers, by number, each with its report.

    Args:
        session: of the transaction.
        ids: numbers in the database.
        metrics: the only ones to be read; None for all.
    """
    for some in chunks(sorted(ids)):
        with _uncollected():
            found = list(_chunk(session, some, metrics))
        yield from found


def chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """As many numbers at a time as one question takes."""
    for begin in range(0, len(ids), _CHUNK):
        yield ids[begin : begin + _CHUNK]


@contextmanager
def _uncollected() -> Iterator[None]:
    """Nothing that is read becomes garbage, and Python's collector would look for some in it again and again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _chunk(session: Session, ids: Sequence[int], metrics: Collection[Metric] | None) -> Iterator[AttemptRecord]:
    columns = [*AttemptRow.__table__.columns, StudyRow.name.label("study_name")]
    query = select(*columns).join(StudyRow, StudyRow.id == AttemptRow.study_id).where(AttemptRow.id.in_(ids))
    levels, files = _levels(session, ids, metrics), _files(session, ids)
    for row in session.execute(query.order_by(AttemptRow.id)):
        ended = AttemptState(row.state).finished
        report = codec.report_from_row(row, levels[row.id], files[row.id]) if ended else None
        yield codec.attempt_from_row(row, row.study_name, report)


def _levels(
    session: Session, ids: Sequence[int], metrics: Collection[Metric] | None
) -> Mapping[int, list[LevelResult]]:
    """Attempt → its loads in the order in which they were measured."""
    rows: dict[int, list[Measurement]] = defaultdict(list)
    of_these = LevelRow.attempt_id.in_(ids)
    query = select(*_MEASUREMENT).join(LevelRow, LevelRow.id == MeasurementRow.level_id).where(of_these)
    if metrics is not None:
        query = query.where(MeasurementRow.metric.in_([metric.value for metric in metrics]))
    for level_id, *columns in session.execute(query.order_by(MeasurementRow.level_id, MeasurementRow.position)):
        rows[level_id].append(codec.measurement_of(*columns))
    found: dict[int, list[LevelResult]] = defaultdict(list)
    loads = select(*LevelRow.__table__.columns).where(of_these).order_by(LevelRow.attempt_id, LevelRow.position)
    for row in session.execute(loads):
        found[row.attempt_id].append(codec.level_from_row(row, rows.get(row.id, ())))
    return found


def _files(session: Session, ids: Sequence[int]) -> Mapping[int, dict[str, str]]:
    """Attempt → kind of file → path."""
    files: dict[int, dict[str, str]] = defaultdict(dict)
    columns = (ArtifactRow.attempt_id, ArtifactRow.kind, ArtifactRow.path)
    query = select(*columns).where(ArtifactRow.attempt_id.in_(ids)).order_by(ArtifactRow.id)
    for attempt, kind, path in session.execute(query):
        files[attempt][kind] = path
    return files
