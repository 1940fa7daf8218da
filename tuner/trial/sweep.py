"""End what launches of an earlier run left behind: only processes that we started, known by more than their number."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tuner.trial import cgroup as cgroups
from tuner.trial import sharedmemory
from tuner.trial.guard import KILL_WAIT_S, ORPHAN_GRACE_S
from tuner.trial.logfile import join_segments
from tuner.trial.process import LOG
from tuner.trial.proctree import Marks, find_members, is_alive, kill_members, send
from tuner.trial.proof import LeftProcess
from tuner.trial.record import FILE, LaunchRecord, boot_id
from tuner.trial.scratch import remove


@dataclass(frozen=True, slots=True)
class Swept:
    """One launch that had been cut off.

    Attributes:
        run_dir: the attempt's directory.
        launch_id: its mark.
        ended: processes of it that were still there and are gone now.
        left: processes that even SIGKILL did not end.
    """

    run_dir: Path
    launch_id: str
    ended: tuple[LeftProcess, ...]
    left: tuple[LeftProcess, ...]


def sweep(run_root: Path) -> list[Swept]:
    """Find every launch below a directory that was never torn down, and end what is left of it.

    A launch whose worker still lives is in use and is left alone. Processes are matched by identity (number and start
    time), by the launch's mark, by its cgroup or by its log pipe, all of the present boot; never by name, and never by
    a number alone. Launches that left no process are closed quietly and not reported.

    Returns:
        The launches of which processes were still there.
    """
    found = []
    for path in sorted(run_root.rglob(FILE)):
        record = LaunchRecord.read(path)
        if record is None or record.ended or is_alive(record.worker):
            continue
        is_of_this_boot = record.boot == boot_id()
        swept = _sweep_one(path.parent, record) if is_of_this_boot else None
        join_segments(path.parent / LOG)
        if record.scratch:
            remove(Path(record.scratch))
        if is_of_this_boot:
            sharedmemory.remove(record.segments)
        if swept is not None:
            found.append(swept)
        if swept is None or not swept.left:
            with contextlib.suppress(OSError):
                dataclasses.replace(record, ended=True).write(path.parent)
    return found


def _sweep_one(run_dir: Path, record: LaunchRecord) -> Swept | None:
    marks = Marks(
        launch_id=record.launch_id,
        guard=record.guard,
        log_pipe=record.log_pipe,
        cgroup=record.cgroup,
        remembered=record.members | ({record.server} if record.server else set()),
    )
    before = find_members(marks)
    if not before and not is_alive(record.guard):
        _remove_cgroup(record)
        return None
    _let_guard_finish(record)
    left = kill_members(marks, timeout_s=KILL_WAIT_S)
    send(record.guard, signal.SIGKILL)
    _remove_cgroup(record)
    return Swept(
        run_dir=run_dir,
        launch_id=record.launch_id,
        ended=tuple(LeftProcess.of(stat) for process, stat in before.items() if process not in left),
        left=tuple(map(LeftProcess.of, left.values())),
    )


def _let_guard_finish(record: LaunchRecord) -> None:
    """A guard whose worker died takes its tree down by itself; interfering would only spoil the log."""
    deadline = time.monotonic() + ORPHAN_GRACE_S + KILL_WAIT_S
    while is_alive(record.guard) and time.monotonic() < deadline:
        time.sleep(0.05)


def _remove_cgroup(record: LaunchRecord) -> None:
    if record.cgroup:
        cgroups.remove(record.cgroup)
