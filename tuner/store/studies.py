"""Studies, the lease of the coordinator that runs one, and the exports made from one."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import delete, exists, select, update
from sqlalchemy.orm import Session

from tuner.domain.study import ExportRecord, Lease, StudyRecord, StudyState, study_name_fault
from tuner.errors import StudyError
from tuner.store import codec
from tuner.store.owner import is_gone
from tuner.store.tables import ExportRow, StudyRow
from tuner.store.transactions import Transactions, find_study

_DAY_S = 86_400.0


def _taken(name: str) -> StudyError:
    hint = f"`tuner study resume {name}` goes on with it; or choose another --name"
    return StudyError(f"there is a study {name} already", hint=hint)


class Studies(Transactions):
    """The half of the store that knows studies."""

    def create_study(self, record: StudyRecord) -> None:
        """Remember a new study.

        Raises:
            StudyError: the name is taken, or cannot be one.
        """
        if fault := study_name_fault(record.name):
            raise StudyError(f"no study can be called {record.name!r}: {fault}", hint="choose another --name")

        def work(session: Session) -> None:
            taken = session.scalar(select(StudyRow).where(StudyRow.name == record.name))
            if taken is None:
                session.add(codec.study_to_row(record))
            elif (taken.created_at, taken.space_hash) != (record.created_at, record.space_hash):
                raise _taken(record.name)

        self._database.write(work)

    def refuse_taken(self, name: str) -> None:
        """Say early what `create_study` would say in the end.

        Raises:
            StudyError: there is a study of this name.
        """
        query = select(StudyRow.id).where(StudyRow.name == name)
        if self._database.read(lambda session: session.scalar(query)) is not None:
            raise _taken(name)

    def refuse_running(self, name: str) -> None:
        """Say early what `acquire_coordinator` would say in the end.

        Raises:
            StudyError: no such study, or a coordinator is running it.
        """
        self._database.read(lambda session: _refuse_if_led(find_study(session, name), None, self._clock()))

    def change_study(self, record: StudyRecord) -> None:
        """Store what may change when a study goes on: its budget, its sampler, and what the command line said.

        Raises:
            StudyError: no such study.
        """
        changed = codec.study_to_row(record)

        def work(session: Session) -> None:
            row = find_study(session, record.name)
            row.space, row.sampler, row.overrides = changed.space, changed.sampler, changed.overrides

        self._database.write(work)

    def study(self, name: str) -> StudyRecord:
        """One study; `interrupted` when nobody runs it any more, although nobody said that it ended.

        Raises:
            StudyError: no such study, or this version cannot read its space.
        """
        return self._database.read(lambda session: _as_it_is(find_study(session, name), self._clock()))

    def studies(self) -> list[StudyRecord]:
        """Every study, oldest first.

        Raises:
            StudyError: this version cannot read the space of one.
        """
        query = select(StudyRow).order_by(StudyRow.id)
        return self._database.read(lambda session: [_as_it_is(row, self._clock()) for row in session.scalars(query)])

    def delete_study(self, name: str) -> None:
        """Forget a study with its attempts, measurements, artifacts and exports (the files stay).

        Raises:
            StudyError: no such study, or a coordinator is running it.
        """

        def work(session: Session) -> None:
            row = find_study(session, name)
            _refuse_if_led(row, None, self._clock())
            session.execute(delete(StudyRow).where(StudyRow.id == row.id))

        self._database.write(work)

    def set_state(self, name: str, state: StudyState, reason: str = "") -> None:
        """Say where a study is, and why. Starting it forgets an old request to stop.

        Raises:
            StudyError: no such study.
        """

        def work(session: Session) -> None:
            row = find_study(session, name)
            row.state, row.reason = state.value, reason
            if state is StudyState.RUNNING:
                row.stop_requested = False

        self._database.write(work)

    def request_stop(self, name: str) -> None:
        """Ask the coordinator, wherever it runs, to end after the running trial.

        Raises:
            StudyError: no such study.
        """

        def work(session: Session) -> None:
            find_study(session, name).stop_requested = True

        self._database.write(work)

    def stop_requested(self, name: str) -> bool:
        """Whether somebody asked for a stop.

        Raises:
            StudyError: no such study.
        """
        return self._database.read(lambda session: find_study(session, name).stop_requested)

    # The coordinator's lease: at most one process runs a study

    def acquire_coordinator(self, name: str, owner: str, ttl: float) -> Lease:
        """Become the study's coordinator for `ttl` seconds, or stay it: call it again before the time is over.

        A lease passes on when it ran out, or when its owner was a process of this machine that is gone.

        Args:
            name: study.
            owner: from `tuner.store.owner.this_process`.
            ttl: seconds.

        Raises:
            StudyError: no such study, or another coordinator runs it.
        """

        def work(session: Session) -> Lease:
            row = find_study(session, name, lock=True)
            now = self._clock()
            _refuse_if_led(row, owner, now)
            row.coordinator, row.coordinator_expires_at = owner, now + ttl
            return Lease(owner, now + ttl)

        return self._database.write(work)

    def release_coordinator(self, name: str, owner: str) -> None:
        """Give the lease back; nothing happens when it is not (or no longer) the owner's."""
        mine = (StudyRow.name == name) & (StudyRow.coordinator == owner)
        change = update(StudyRow).where(mine).values(coordinator=None, coordinator_expires_at=None)
        self._change(change)

    def coordinator(self, name: str) -> Lease | None:
        """Who runs the study now; None when nobody does.

        Raises:
            StudyError: no such study.
        """

        def work(session: Session) -> Lease | None:
            return _live_lease(find_study(session, name), self._clock())

        return self._database.read(work)

    def record_export(self, record: ExportRecord) -> None:
        """Remember an export that was written.

        Raises:
            StudyError: no such study.
        """

        def work(session: Session) -> None:
            parent = find_study(session, record.study)
            fields = {
                "study_id": parent.id,
                "trial": record.trial,
                "format": record.format,
                "path": record.path,
                "sha256": record.sha256,
                "created_at": record.created_at,
            }
            if not session.scalar(select(exists(select(ExportRow.id).filter_by(**fields)))):
                session.add(ExportRow(**fields))

        self._database.write(work)

    def exports(self, study: str) -> list[ExportRecord]:
        """The exports of a study, oldest first.

        Raises:
            StudyError: no such study.
        """

        def work(session: Session) -> list[ExportRecord]:
            query = select(ExportRow).where(ExportRow.study_id == find_study(session, study).id).order_by(ExportRow.id)
            return [codec.export_from_row(row, study) for row in session.scalars(query)]

        return self._database.read(work)


def _as_it_is(row: StudyRow, now: float) -> StudyRecord:
    """The study, not as running when only its last coordinator said so."""
    record = codec.study_from_row(row)
    # A new study has no coordinator for a moment; one that lost its coordinator before the first launch is not new.
    begun = record.state is StudyState.RUNNING or (record.state is StudyState.CREATED and row.coordinator is not None)
    if not begun or _live_lease(row, now) is not None:
        return record
    reason = f"nobody runs it any more; `tuner study resume {record.name}` goes on with it"
    return replace(record, state=StudyState.INTERRUPTED, reason=reason)


def _live_lease(row: StudyRow, now: float) -> Lease | None:
    if row.coordinator is None or row.coordinator_expires_at is None or row.coordinator_expires_at <= now:
        return None
    return None if is_gone(row.coordinator) else Lease(row.coordinator, row.coordinator_expires_at)


def _refuse_if_led(row: StudyRow, owner: str | None, now: float) -> None:
    lease = _live_lease(row, now)
    if lease is not None and lease.owner != owner:
        left = lease.expires_at - now
        hint = f"`tuner study stop {row.name}` ends it; a dead one's claim runs out in {left:.0f} s"
        if left > _DAY_S:
            takes_over = f"`tuner study resume {row.name}` takes the study over unless it gives a sign of life"
            hint = f"its clock is ahead: {takes_over}"
        raise StudyError(f"study {row.name} is being run by {lease.owner}", hint=hint)
