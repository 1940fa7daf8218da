"""Launches that are compared with each other say which block they belong to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the block, empty for every launch so far."""
    with op.batch_alter_table("tuner_attempt") as table:
        table.add_column(sa.Column("block", sa.Integer()))
