"""What the output check of a launch found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; launches of before were not checked."""
    op.add_column("tuner_attempt", sa.Column("output", sa.JSON()))
