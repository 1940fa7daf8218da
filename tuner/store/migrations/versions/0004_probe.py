"""What the all-reduce probe of a study measured."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table; studies of before were not probed."""
    op.create_table(
        "tuner_probe",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column(
            "study_id", sa.Integer(), sa.ForeignKey("tuner_study.id", ondelete="CASCADE"), nullable=False, unique=True
        ),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("recorded_at", sa.Double(), nullable=False),
    )
