"""Attempts: opened with a lease, then finished with a report or abandoned."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from sqlalchemy import ColumnElement, case, func, select, update
from sqlalchemy.orm import Session

from tuner.domain.candidate import Candidate
from tuner.domain.measurement import Metric
from tuner.domain.study import ArtifactRecord, AttemptRecord, AttemptState, Tally
from tuner.domain.trial import Purpose, TrialReport
from tuner.errors import StudyError
from tuner.store import codec
from tuner.store.artifacts import fingerprint_files
from tuner.store.database import Database
from tuner.store.owner import is_gone
from tuner.store.reading import chunks, read_attempts
from tuner.store.tables import ArtifactRow, AttemptRow
from tuner.store.transactions import Transactions, find_study


class Attempts(Transactions):
    """The half of the store that knows attempts."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        super().__init__(database, clock)
        self._ended: dict[int, AttemptRecord] = {}

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
            return codec.attempt_from_row(row, study, report=None)

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
        return self._database.read(lambda session: next(read_attempts(session, [attempt_id])))

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
        self,
        study: str,
        *,
        purpose: Purpose | None = None,
        state: AttemptState | None = None,
        trial: int | None = None,
        metrics: Collection[Metric] | None = None,
    ) -> list[AttemptRecord]:
        """The attempts of a study in the order in which they were opened, each with its report.

        Args:
            study: study name.
            purpose: only those with this purpose.
            state: only those in this state.
            trial: only those of this trial.
            metrics: leave all other measurements out of the reports: a long study has dozens for each that is needed.

        Raises:
            StudyError: no such study.
        """
        wanted = []
        if purpose is not None:
            wanted.append(AttemptRow.purpose == purpose.value)
        if state is not None:
            wanted.append(AttemptRow.state == state.value)
        if trial is not None:
            wanted.append(AttemptRow.trial == trial)
        return self._attempts(study, *wanted, metrics=metrics)

    def each_measured(self, study: str) -> Iterator[AttemptRecord]:
        """The measured attempts of a study, one after the other: memory holds only some of a long study at a time.

        Raises:
            StudyError: no such study.
        """

        def numbers(session: Session) -> Sequence[int]:
            measured = select(AttemptRow.id).where(*_is_measured(session, study))
            return session.scalars(measured.order_by(AttemptRow.id)).all()

        for some in chunks(self._database.read(numbers)):
            yield from self._database.read(partial(_read, ids=some))

    def settings_measured(self, study: str) -> tuple[str, ...]:
        """Names of the knobs that measured attempts of a study set, in the order in which they came.

        Raises:
            StudyError: no such study.
        """

        def work(session: Session) -> tuple[str, ...]:
            measured = select(AttemptRow.candidate).where(*_is_measured(session, study))
            documents = session.scalars(measured.order_by(AttemptRow.id))
            return tuple(dict.fromkeys(name for document in documents for name in document["values"]))

        return self._database.read(work)

    def untold(self, study: str) -> list[AttemptRecord]:
        """Attempts with an outcome of which the sampler has not heard.

        Raises:
            StudyError: no such study.
        """
        finished = [state.value for state in AttemptState if state.finished]
        return self._attempts(study, AttemptRow.state.in_(finished), AttemptRow.told.is_(False))

    def expired(self, study: str, now: float | None = None) -> list[AttemptRecord]:
        """Running attempts whose lease ran out, or whose owner was a process of this machine that is gone.

        Raises:
            StudyError: no such study.
        """
        moment = self._clock() if now is None else now
        running = self.attempts(study, state=AttemptState.RUNNING)
        return [a for a in running if _is_lost(a.lease_owner, a.lease_expires_at, moment)]

    def tally(self, study: str) -> Tally:
        """How many trials of a study are where; counted by the database, so that a long study is told as fast.

        Raises:
            StudyError: no such study.
        """

        def work(session: Session) -> Tally:
            mine = AttemptRow.study_id == find_study(session, study).id
            last = AttemptRow.id.in_(select(func.max(AttemptRow.id)).where(mine).group_by(AttemptRow.trial))
            kinds = (AttemptRow.state, AttemptRow.purpose)
            counts = {
                (AttemptState(state), Purpose(purpose)): many
                for state, purpose, many in session.execute(select(*kinds, func.count()).where(last).group_by(*kinds))
            }
            leases = select(AttemptRow.lease_owner, AttemptRow.lease_expires_at)
            running = session.execute(leases.where(last, AttemptRow.state == AttemptState.RUNNING.value)).all()
            now = self._clock()
            return _tally(counts, interrupted=sum(_is_lost(owner, until, now) for owner, until in running))

        return self._database.read(work)

    def last_ended(self, study: str) -> float | None:
        """When a launch of a study ended last, in seconds since the epoch; None before the first end.

        Raises:
            StudyError: no such study.
        """

        def work(session: Session) -> float | None:
            mine = AttemptRow.study_id == find_study(session, study).id
            return session.scalar(select(func.max(AttemptRow.finished_at)).where(mine))

        return self._database.read(work)

    def _attempts(
        self, study: str, *wanted: ColumnElement[bool], metrics: Collection[Metric] | None = None
    ) -> list[AttemptRecord]:
        columns = (AttemptRow.id, AttemptRow.started_at, AttemptRow.state, AttemptRow.told)

        def work(session: Session) -> list[AttemptRecord]:
            mine = AttemptRow.study_id == find_study(session, study).id
            rows = session.execute(select(*columns).where(mine, *wanted).order_by(AttemptRow.id))
            found = [_Identity(*row) for row in rows]
            if metrics is not None:
                return list(read_attempts(session, [one.id for one in found], metrics))
            unread = [one.id for one in found if not one.is_of(self._ended.get(one.id))]
            fresh = {record.id: record for record in read_attempts(session, unread)}
            self._ended |= {n: record for n, record in fresh.items() if record.state is not AttemptState.RUNNING}
            known = (fresh.get(one.id) or self._ended.get(one.id) for one in found)
            return [record for record in known if record is not None]

        return self._database.read(work)

    def artifacts(self, attempt_id: int) -> list[ArtifactRecord]:
        """The files of one attempt."""
        query = select(ArtifactRow).where(ArtifactRow.attempt_id == attempt_id).order_by(ArtifactRow.id)
        return self._database.read(lambda session: [codec.artifact_from_row(row) for row in session.scalars(query)])


class _Identity(NamedTuple):
    """What tells one state of an attempt from all others: once it has ended, nothing changes but whether it was told.

    SQLite may give the number of a deleted attempt to a new one; never with the same start.
    """

    id: int
    started_at: float
    state: str
    told: bool

    def is_of(self, record: AttemptRecord | None) -> bool:
        return record is not None and self == (record.id, record.started_at, record.state.value, record.told)


def _is_measured(session: Session, study: str) -> tuple[ColumnElement[bool], ...]:
    return AttemptRow.study_id == find_study(session, study).id, AttemptRow.state == AttemptState.MEASURED.value


def _read(session: Session, ids: Sequence[int]) -> list[AttemptRecord]:
    return list(read_attempts(session, ids))


def _is_lost(owner: str, expires_at: float, now: float) -> bool:
    """Whether nobody looks after a running attempt any more."""
    return expires_at <= now or is_gone(owner)


def _tally(counts: Mapping[tuple[AttemptState, Purpose], int], *, interrupted: int) -> Tally:
    def trials(*states: AttemptState, purposes: Collection[Purpose] = tuple(Purpose)) -> int:
        return sum(many for (state, purpose), many in counts.items() if state in states and purpose in purposes)

    verified = trials(AttemptState.PARTIAL, purposes=[Purpose.VERIFY])
    return Tally(
        trials=trials(*AttemptState),
        beside_budget=trials(*AttemptState, purposes=[p for p in Purpose if p.is_beside_the_budget]),
        measured=trials(AttemptState.MEASURED),
        measured_in_part=trials(AttemptState.PARTIAL) - verified,
        verified=verified,
        failed=trials(AttemptState.FAILED),
        running=trials(AttemptState.RUNNING) - interrupted,
        interrupted=interrupted,
    )


def _attempt(session: Session, attempt_id: int) -> AttemptRow:
    row = session.get(AttemptRow, attempt_id)
    if row is None:
        raise StudyError(f"there is no attempt {attempt_id}: was the study deleted?")
    return row
