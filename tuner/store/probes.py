"""The all-reduce probe of a study: at most one, measured before its first launch."""

from __future__ import annotations

from pydantic import TypeAdapter
from sqlalchemy import select
from sqlalchemy.orm import Session

from tuner.domain.probe import ProbeReport
from tuner.store.tables import ProbeRow
from tuner.store.transactions import Transactions, find_study

_REPORT = TypeAdapter(ProbeReport)


class Probes(Transactions):
    """The part of the store that knows probes."""

    def record_probe(self, study: str, report: ProbeReport) -> None:
        """Remember what a study's probe measured, in place of an earlier one.

        Raises:
            StudyError: no such study.
        """
        document = _REPORT.dump_python(report, mode="json")

        def work(session: Session) -> None:
            row = find_study(session, study)
            found = session.scalar(select(ProbeRow).where(ProbeRow.study_id == row.id))
            if found is None:
                session.add(ProbeRow(study_id=row.id, report=document, recorded_at=self._clock()))
            else:
                found.report, found.recorded_at = document, self._clock()

        self._database.write(work)

    def probe(self, study: str) -> ProbeReport | None:
        """What a study's probe measured; None when it had none.

        Raises:
            StudyError: no such study.
        """

        def work(session: Session) -> ProbeReport | None:
            row = find_study(session, study)
            found = session.scalar(select(ProbeRow).where(ProbeRow.study_id == row.id))
            return None if found is None else _REPORT.validate_python(found.report)

        return self._database.read(work)
