"""What the parts of the store share: a database, a clock, and how a study is found by its name."""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import Update, select
from sqlalchemy.orm import Session

from tuner.errors import StudyError
from tuner.store.database import Database
from tuner.store.tables import StudyRow


class Transactions:
    """Base of the store's parts. Each public method is one transaction.

    A change that is asked for twice is made once, so that a transaction whose commit was cut off can run again.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def _change(self, change: Update) -> bool:
        """Run one UPDATE; whether it met a row."""
        return self._database.write(lambda session: session.connection().execute(change).rowcount > 0)


def find_study(session: Session, name: str, *, lock: bool = False) -> StudyRow:
    """The row of a study; `lock` keeps other writers from it until the transaction ends.

    Raises:
        StudyError: no such study.
    """
    query = select(StudyRow).where(StudyRow.name == name)
    row = session.scalar(query.with_for_update() if lock else query)
    if row is None:
        raise StudyError(f"there is no study {name}", hint="`tuner study list` shows those that are stored")
    return row
