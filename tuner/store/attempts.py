"""Attempts: opened with a lease, then finished with a report or abandoned."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sqlalchemy import Select, case, select, update
from sqlalchemy.orm import Session

from tuner.domain.candidate import Candidate
from tuner.domain.study import ArtifactRecord, AttemptRecord, AttemptState
from tuner.domain.trial import Purpose, TrialReport
from tuner.errors import StudyError
from tuner.store import codec
from tuner.store.artifacts import fingerprint_files
from tuner.store.database import Database
from tuner.store.owner import is_gone
from tuner.store.tables import WHOLE_REPORT, ArtifactRow, AttemptRow
from tuner.store.transactions import Transactions, find_study


class Attempts(Transactions):
    """The half of the store that knows attempts."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        super().__init__(database, clock)
        self._reports: dict[tuple[int, float], TrialReport] = {}

    def open_attempt(
        self,
        study: str,
        *,
        trial: int,
        attempt: int,
        purpose: Purpose,
        candidate: Candidate,
        run_dir: str,
        owner: str,
        ttl: float,
        block: int | None = None,
    ) -> AttemptRecord:
        """Remember a launch before it begins, with a lease that `heartbeat` prolongs.

        Args:
            study: study name.
            trial: number of the trial within the study.
            attempt: 1 for the trial's first launch.
            purpose: why it is launched.
            candidate: what is launched.
            run_dir: where its files go.
            owner: who runs it.
            ttl: seconds until the lease runs out.
            block: round of interleaved launches that it belongs to, if to any.

        Raises:
            StudyError: no such study, or this attempt of the trial was opened before.
        """
        now = self._clock()

        def work(session: Session) -> AttemptRecord:
            parent = find_study(session, study)
            same = (AttemptRow.study_id == parent.id, AttemptRow.trial == trial, AttemptRow.attempt == attempt)
            row = session.scalar(select(AttemptRow).where(*same))
            if row is None:
                row = AttemptRow(
                    study=parent,
                    trial=trial,
                    attempt=attempt,
                    purpose=purpose.value,
                    engine=candidate.engine,
                    candidate=codec.candidate_document(candidate),
                    fingerprint=candidate.fingerprint,
                    state=AttemptState.RUNNING.value,
                    told=False,
                    simulated=parent.simulated,
                    run_dir=run_dir,
                    lease_owner=owner,
                    lease_expires_at=now + ttl,
                    started_at=now,
                    block=block,
                )
                session.add(row)
                session.flush()
            elif (row.lease_owner, row.started_at) != (owner, now):
                raise StudyError(f"attempt {attempt} of trial {trial} of study {study} was opened before")
            return codec.attempt_from_row(row, report=None)

        return self._database.write(work)

    def heartbeat(self, attempt_id: int, ttl: float) -> bool:
        """Prolong the lease of a running attempt; False when it is no longer running (somebody abandoned it)."""
        running = (AttemptRow.id == attempt_id) & (AttemptRow.state == AttemptState.RUNNING.value)
        return self._change(update(AttemptRow).where(running).values(lease_expires_at=self._clock() + ttl))

    def finish_attempt(self, attempt_id: int, report: TrialReport) -> AttemptRecord:
        """Store everything that a worker reported, in one transaction.

        Returns:
            The attempt as it is stored now. An attempt that was finished or abandoned before stays as it was: look
            at its state.

        Raises:
            StudyError: no such attempt.
        """
        now = self._clock()

        def run_dir(session: Session) -> str:
            return _attempt(session, attempt_id).run_dir

        # Hashing may take seconds; nobody waits for the database meanwhile.
        files = fingerprint_files(self._database.read(run_dir), report.artifacts)

        def work(session: Session) -> None:
            row = _attempt(session, attempt_id)
            if row.state == AttemptState.RUNNING.value:
                codec.write_report(row, report, files)
                row.finished_at = now

        self._database.write(work)
        return self._database.read(lambda session: self._records(session, [_attempt(session, attempt_id)])[0])

    def abandon(self, attempt_id: int) -> None:
        """Give a running attempt up, because whoever ran it died; finished ones stay as they are.

        It counts as long as it was looked after: it may be found days later, and the time between cost nobody a GPU.
        """
        running = (AttemptRow.id == attempt_id) & (AttemptRow.state == AttemptState.RUNNING.value)
        now = self._clock()
        ended = case((AttemptRow.lease_expires_at < now, AttemptRow.lease_expires_at), else_=now)
        state = {"state": AttemptState.ABANDONED.value, "finished_at": ended}
        self._change(update(AttemptRow).where(running).values(state))

    def mark_told(self, attempt_id: int) -> None:
        """Remember that the sampler heard of this attempt's outcome."""
        change = update(AttemptRow).where(AttemptRow.id == attempt_id).values(told=True)
        self._change(change)

    def attempts(
        self, study: str, *, purpose: Purpose | None = None, state: AttemptState | None = None, trial: int | None = None
    ) -> list[AttemptRecord]:
        """The attempts of a study in the order in which they were opened, each with its whole report.

        Raises:
            StudyError: no such study.
        """
        query = select(AttemptRow).order_by(AttemptRow.id)
        if purpose is not None:
            query = query.where(AttemptRow.purpose == purpose.value)
        if state is not None:
            query = query.where(AttemptRow.state == state.value)
        if trial is not None:
            query = query.where(AttemptRow.trial == trial)
        return self._attempts(study, query)

    def untold(self, study: str) -> list[AttemptRecord]:
        """Attempts with an outcome of which the sampler has not heard.

        Raises:
            StudyError: no such study.
        """
        finished = [state.value for state in AttemptState if state.finished]
        query = select(AttemptRow).where(AttemptRow.state.in_(finished), AttemptRow.told.is_(False))
        return self._attempts(study, query.order_by(AttemptRow.id))

    def expired(self, study: str, now: float | None = None) -> list[AttemptRecord]:
        """Running attempts whose lease ran out, or whose owner was a process of this machine that is gone.

        Raises:
            StudyError: no such study.
        """
        moment = self._clock() if now is None else now
        running = self.attempts(study, state=AttemptState.RUNNING)
        return [a for a in running if a.lease_expires_at <= moment or is_gone(a.lease_owner)]

    def _attempts(self, study: str, query: Select[AttemptRow]) -> list[AttemptRecord]:
        def work(session: Session) -> list[AttemptRecord]:
            mine = query.where(AttemptRow.study_id == find_study(session, study).id)
            return self._records(session, session.scalars(mine).all())

        return self._database.read(work)

    def _records(self, session: Session, rows: Sequence[AttemptRow]) -> list[AttemptRecord]:
        """The attempts of some rows. A report never changes once it is stored, so each is read and decoded once."""
        finished = [row for row in rows if AttemptState(row.state).finished]
        unread = [row.id for row in finished if _identity(row) not in self._reports]
        if unread:
            query = select(AttemptRow).where(AttemptRow.id.in_(unread)).options(*WHOLE_REPORT)
            for row in session.scalars(query.execution_options(populate_existing=True)):
                self._reports[_identity(row)] = codec.report_from_row(row)
        return [codec.attempt_from_row(row, self._reports.get(_identity(row))) for row in rows]

    def artifacts(self, attempt_id: int) -> list[ArtifactRecord]:
        """The files of one attempt."""
        query = select(ArtifactRow).where(ArtifactRow.attempt_id == attempt_id).order_by(ArtifactRow.id)
        return self._database.read(lambda session: [codec.artifact_from_row(row) for row in session.scalars(query)])


def _identity(row: AttemptRow) -> tuple[int, float]:
    """SQLite may give the number of a deleted attempt to a new one; never with the same start."""
    return row.id, row.started_at


def _attempt(session: Session, attempt_id: int) -> AttemptRow:
    row = session.get(AttemptRow, attempt_id)
    if row is None:
        raise StudyError(f"there is no attempt {attempt_id}: was the study deleted?")
    return row
