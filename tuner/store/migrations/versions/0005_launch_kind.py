"""How each server was launched, as a fact of its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_WARM_NOTE = "launch: warm"


def upgrade() -> None:
    """Add the column; of launches so far a note says which were warm."""
    op.add_column("tuner_attempt", sa.Column("launch_kind", sa.Text()))
    attempts = sa.table(
        "tuner_attempt",
        sa.column("id", sa.Integer()),
        sa.column("worker_started_at", sa.Double()),
        sa.column("notes", sa.JSON()),
        sa.column("launch_kind", sa.Text()),
    )
    reported = attempts.c.worker_started_at.is_not(None)
    launches = op.get_bind().execute(sa.select(attempts.c.id, attempts.c.notes).where(reported))
    warm = [launch.id for launch in launches if _WARM_NOTE in launch.notes]
    op.execute(attempts.update().where(reported).values(launch_kind="plain"))
    op.execute(attempts.update().where(attempts.c.id.in_(warm)).values(launch_kind="warm"))
