"""The first schema. Constraints get their names from the naming convention of `tuner.store.tables`."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make every table."""
    op.create_table(
        "tuner_study",
        _id(),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("space_text", sa.Text(), nullable=False),
        sa.Column("space", sa.JSON(), nullable=False),
        sa.Column("space_hash", sa.Text(), nullable=False),
        sa.Column("overrides", sa.JSON(), nullable=False),
        sa.Column("sampler", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("tuner_version", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("stop_requested", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("coordinator", sa.Text()),
        sa.Column("coordinator_expires_at", sa.Double()),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "tuner_attempt",
        _id(),
        _parent("study"),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("candidate", sa.JSON(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("told", sa.Boolean(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("run_dir", sa.Text(), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=False),
        sa.Column("lease_expires_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double()),
        sa.Column("worker_started_at", sa.Double()),
        sa.Column("worker_finished_at", sa.Double()),
        sa.Column("plan", sa.JSON()),
        sa.Column("phase_seconds", sa.JSON()),
        sa.Column("activity", sa.JSON()),
        sa.Column("versions", sa.JSON()),
        sa.Column("machine", sa.JSON()),
        sa.Column("notes", sa.JSON()),
        sa.Column("warnings", sa.JSON()),
        sa.Column("failure_class", sa.Text()),
        sa.Column("failure_phase", sa.Text()),
        sa.Column("evidence", sa.JSON()),
        sa.Column("blames", sa.JSON()),
        sa.Column("detail", sa.Text()),
        sa.Column("exit_code", sa.Integer()),
        sa.UniqueConstraint("study_id", "trial", "attempt"),
    )
    op.create_index("ix_tuner_attempt_fingerprint", "tuner_attempt", ["fingerprint"])
    op.create_table(
        "tuner_level",
        _id(),
        _parent("attempt"),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("asked", sa.Integer(), nullable=False),
        sa.Column("completed", sa.Integer(), nullable=False),
        sa.Column("errors", sa.JSON(), nullable=False),
        sa.Column("duration_s", sa.Double(), nullable=False),
        sa.Column("client_cpu_share", sa.Double()),
        sa.Column("client_lag_ms", sa.Double()),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.Column("rate", sa.Double()),
        sa.Column("client_processes", sa.Integer(), nullable=False),
        sa.Column("prompt_tokens", sa.Double()),
        sa.Column("cached_share", sa.Double()),
        sa.UniqueConstraint("attempt_id", "position"),
    )
    op.create_table(
        "tuner_measurement",
        _id(),
        _parent("level"),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("repeats", sa.JSON(), nullable=False),
        sa.Column("center", sa.Double(), nullable=False),
        sa.Column("low", sa.Double()),
        sa.Column("high", sa.Double()),
        sa.Column("spread_kind", sa.Text(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("rate", sa.Double()),
        sa.UniqueConstraint("level_id", "position"),
    )
    op.create_table(
        "tuner_artifact",
        _id(),
        _parent("attempt"),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text()),
        sa.Column("size_bytes", sa.BigInteger()),
        sa.UniqueConstraint("attempt_id", "kind"),
    )
    op.create_table(
        "tuner_export",
        _id(),
        _parent("study"),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
    )
    op.create_index("ix_tuner_export_study_id", "tuner_export", ["study_id"])


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer(), primary_key=True)


def _parent(name: str) -> sa.Column[int]:
    return sa.Column(f"{name}_id", sa.Integer(), sa.ForeignKey(f"tuner_{name}.id", ondelete="CASCADE"), nullable=False)
