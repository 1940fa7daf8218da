"""The tables `tuner_*`. A change here needs a migration in `migrations/versions/`; a test compares the two.

Times are seconds since the epoch on the coordinator's clock, except `worker_*`, which are the worker's own.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Double, ForeignKey, MetaData, UniqueConstraint
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedColumn,
    mapped_column,
    relationship,
)

from tuner.store.columns import CleanDocument, CleanText

Document = Any
"""What a JSON column holds; `codec` gives it its type back."""

_CASCADE = "all, delete-orphan"
_REPORT = "report"


def _reported(kind: type[CleanDocument] | None = None) -> MappedColumn[Any]:
    """A column that is read only when it is asked for."""
    return mapped_column(kind, nullable=True, deferred=True, deferred_group=_REPORT)


class Base(DeclarativeBase):
    """Base of tuner's tables; text is always `CleanText`."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {str: CleanText, float: Double}  # noqa: RUF012 - read by SQLAlchemy as a class variable


class StudyRow(Base):
    """One study, and the lease of the coordinator that runs it."""

    __tablename__ = "tuner_study"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    space_text: Mapped[str]
    space: Mapped[Document] = mapped_column(CleanDocument, nullable=False)
    space_hash: Mapped[str]
    overrides: Mapped[Document] = mapped_column(CleanDocument, nullable=False)
    sampler: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    simulated: Mapped[bool]
    tuner_version: Mapped[str]
    created_at: Mapped[float]
    state: Mapped[str]
    stop_requested: Mapped[bool]
    reason: Mapped[str]
    coordinator: Mapped[str | None]
    coordinator_expires_at: Mapped[float | None]

    attempts: Mapped[list[AttemptRow]] = relationship(
        back_populates="study", cascade=_CASCADE, passive_deletes=True, order_by="AttemptRow.id"
    )


class AttemptRow(Base):
    """One launch: opened with a lease, then finished with a report or abandoned."""

    __tablename__ = "tuner_attempt"
    __table_args__ = (UniqueConstraint("study_id", "trial", "attempt"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("tuner_study.id", ondelete="CASCADE"))
    trial: Mapped[int]
    attempt: Mapped[int]
    purpose: Mapped[str]
    engine: Mapped[str]
    candidate: Mapped[Document] = mapped_column(CleanDocument, nullable=False)
    fingerprint: Mapped[str] = mapped_column(index=True)
    state: Mapped[str]
    told: Mapped[bool]
    simulated: Mapped[bool]
    run_dir: Mapped[str]
    lease_owner: Mapped[str]
    lease_expires_at: Mapped[float]
    started_at: Mapped[float]
    finished_at: Mapped[float | None]
    block: Mapped[int | None]

    # What the worker reported; empty until the attempt is finished, and read only when a report is asked for.
    worker_started_at: Mapped[float | None] = _reported()
    worker_finished_at: Mapped[float | None] = _reported()
    plan: Mapped[Document] = _reported(CleanDocument)
    phase_seconds: Mapped[Document] = _reported(CleanDocument)
    activity: Mapped[Document] = _reported(CleanDocument)
    versions: Mapped[Document] = _reported(CleanDocument)
    machine: Mapped[Document] = _reported(CleanDocument)
    notes: Mapped[Document] = _reported(CleanDocument)
    warnings: Mapped[Document] = _reported(CleanDocument)
    output: Mapped[Document] = _reported(CleanDocument)
    launch_kind: Mapped[str | None] = _reported()
    failure_class: Mapped[str | None] = _reported()
    failure_phase: Mapped[str | None] = _reported()
    evidence: Mapped[Document] = _reported(CleanDocument)
    blames: Mapped[Document] = _reported(CleanDocument)
    detail: Mapped[str | None] = _reported()
    exit_code: Mapped[int | None] = _reported()

    study: Mapped[StudyRow] = relationship(back_populates="attempts", lazy="joined", innerjoin=True)
    levels: Mapped[list[LevelRow]] = relationship(cascade=_CASCADE, passive_deletes=True, order_by="LevelRow.position")
    artifacts: Mapped[list[ArtifactRow]] = relationship(
        cascade=_CASCADE, passive_deletes=True, order_by="ArtifactRow.id"
    )


class LevelRow(Base):
    """One load of a measured attempt: `level` is the closed loop's, at a `rate` the most requests in flight at once."""

    __tablename__ = "tuner_level"
    __table_args__ = (UniqueConstraint("attempt_id", "position"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    attempt_id: Mapped[int] = mapped_column(ForeignKey("tuner_attempt.id", ondelete="CASCADE"))
    position: Mapped[int]
    level: Mapped[int]
    asked: Mapped[int]
    completed: Mapped[int]
    errors: Mapped[Document] = mapped_column(CleanDocument, nullable=False)
    duration_s: Mapped[float]
    client_cpu_share: Mapped[float | None]
    client_lag_ms: Mapped[float | None]
    warnings: Mapped[Document] = mapped_column(CleanDocument, nullable=False)
    rate: Mapped[float | None]
    client_processes: Mapped[int]
    prompt_tokens: Mapped[float | None]
    cached_share: Mapped[float | None]

    measurements: Mapped[list[MeasurementRow]] = relationship(
        cascade=_CASCADE, passive_deletes=True, order_by="MeasurementRow.position"
    )


class MeasurementRow(Base):
    """One metric at one load; `level` says nothing where there is a `rate`."""

    __tablename__ = "tuner_measurement"
    __table_args__ = (UniqueConstraint("level_id", "position"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    level_id: Mapped[int] = mapped_column(ForeignKey("tuner_level.id", ondelete="CASCADE"))
    position: Mapped[int]
    metric: Mapped[str]
    level: Mapped[int]
    repeats: Mapped[Document] = mapped_column(CleanDocument, nullable=False)
    center: Mapped[float]
    low: Mapped[float | None]
    high: Mapped[float | None]
    spread_kind: Mapped[str]
    samples: Mapped[int]
    rate: Mapped[float | None]


class ArtifactRow(Base):
    """One file of an attempt's run directory."""

    __tablename__ = "tuner_artifact"
    __table_args__ = (UniqueConstraint("attempt_id", "kind"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    attempt_id: Mapped[int] = mapped_column(ForeignKey("tuner_attempt.id", ondelete="CASCADE"))
    kind: Mapped[str]
    path: Mapped[str]
    sha256: Mapped[str | None]
    size_bytes: Mapped[int | None] = mapped_column(BigInteger)


class ExportRow(Base):
    """One export that was written."""

    __tablename__ = "tuner_export"

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("tuner_study.id", ondelete="CASCADE"), index=True)
    trial: Mapped[int]
    format: Mapped[str]
    path: Mapped[str]
    sha256: Mapped[str]
    created_at: Mapped[float]


class ProbeRow(Base):
    """What the all-reduce probe of a study measured."""

    __tablename__ = "tuner_probe"

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("tuner_study.id", ondelete="CASCADE"), unique=True)
    report: Mapped[Document] = mapped_column(CleanDocument, nullable=False)
    recorded_at: Mapped[float]
