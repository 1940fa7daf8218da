"""Run by alembic for every migration; the connection, in its transaction, comes from `tuner.store.migrate`."""

from alembic import context

from tuner.store.migrate import VERSION_TABLE
from tuner.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,  # SQLite cannot alter most things in place
)
context.run_migrations()
