"""Which processes belong to a launch, however they hide; standard library only, because the guard imports it.

A server's children change their session, double-fork, re-parent to PID 1 and overwrite their title (and with it
their visible environment). No single mark survives all of that, so membership is the union of several: descent from
the guard (which is their subreaper), session, the environment mark, a file descriptor of the launch's log pipe, the
cgroup, and processes remembered from an earlier look. A process id alone is never trusted: identity is the id and the
kernel's start time.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

MARK = "TUNER_LAUNCH_ID"
"""Environment variable that every process of a launch inherits."""

_PROC = Path("/proc")
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that cannot be confused with a later one of the same number; `start` is in clock ticks since boot."""

    pid: int
    start: int


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """What `/proc/<pid>/stat` says; `state` is the kernel's letter (`R`, `S`, `D`, `T`, `Z` …)."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    start: int

    @property
    def identity(self) -> ProcessId:
        """The process as a `ProcessId`."""
        return ProcessId(self.pid, self.start)

    @property
    def is_dead(self) -> bool:
        """Whether it has ended and only waits to be collected by its parent."""
        return self.state in "ZX"


@dataclass(frozen=True, slots=True)
class Marks:
    """What the processes of one launch can be known by; a mark that does not exist is None.

    Attributes:
        launch_id: value of `TUNER_LAUNCH_ID`.
        guard: the guard process, whose descendants all belong to the launch.
        session: session id of the server.
        log_pipe: inode of the pipe that the server writes its output to.
        cgroup: directory of the launch's cgroup.
        remembered: processes seen earlier in the launch.
    """

    launch_id: str
    guard: ProcessId | None = None
    session: int | None = None
    log_pipe: int | None = None
    cgroup: str | None = None
    remembered: frozenset[ProcessId] = frozenset()


def read_stat(pid: int) -> ProcessStat | None:
    """The state of a process, or None if it does not exist."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (OSError, ValueError):
        return None
    # The name stands in parentheses and may hold spaces and parentheses itself, so cut at the last one.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return ProcessStat(
        pid=pid,
        name=head.partition("(")[2],
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        start=int(fields[19]),
    )


def identify(pid: int) -> ProcessId | None:
    """A process as it is now, or None if it does not exist."""
    stat = read_stat(pid)
    return stat.identity if stat else None


def is_alive(process: ProcessId) -> bool:
    """Whether exactly this process still runs (a zombie does not)."""
    stat = read_stat(process.pid)
    return stat is not None and stat.start == process.start and not stat.is_dead


def process_table() -> dict[int, ProcessStat]:
    """Every process of the machine that can be seen."""
    pids = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
    return {pid: stat for pid in pids if (stat := read_stat(pid)) is not None}


def descendants(root: ProcessId, table: Mapping[int, ProcessStat]) -> set[ProcessId]:
    """All processes below `root`, without itself."""
    if (stat := table.get(root.pid)) is None or stat.start != root.start:
        return set()
    children: dict[int, list[ProcessStat]] = {}
    for entry in table.values():
        children.setdefault(entry.parent, []).append(entry)
    found: set[ProcessId] = set()
    pending = [root.pid]
    while pending:
        for child in children.get(pending.pop(), ()):
            if child.identity not in found:
                found.add(child.identity)
                pending.append(child.pid)
    return found


def cgroup_members(cgroup: str) -> set[int]:
    """Process ids in a cgroup; empty when it is gone."""
    try:
        return {int(line) for line in (Path(cgroup) / "cgroup.procs").read_text().split()}
    except (OSError, ValueError):
        return set()


def find_members(marks: Marks, spare: Iterable[int] = ()) -> dict[ProcessId, ProcessStat]:
    """The living processes of a launch.

    The guard itself and the ids in `spare` are left out. Processes of other users whose environment and descriptors
    cannot be read are found by the other marks only.
    """
    table = process_table()
    in_cgroup = cgroup_members(marks.cgroup) if marks.cgroup else set()
    below = descendants(marks.guard, table) if marks.guard else set()
    spared = {*spare, *((marks.guard.pid,) if marks.guard else ())}

    def belongs(stat: ProcessStat) -> bool:
        return (
            stat.identity in below
            or stat.identity in marks.remembered
            or stat.pid in in_cgroup
            or (marks.session is not None and stat.session == marks.session)
            or _carries_mark(stat.pid, marks.launch_id)
            or (marks.log_pipe is not None and _holds_pipe(stat.pid, marks.log_pipe))
        )

    return {
        stat.identity: stat for stat in table.values() if stat.pid not in spared and not stat.is_dead and belongs(stat)
    }


def _carries_mark(pid: int, launch_id: str) -> bool:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={launch_id}".encode() in environment.split(b"\0")


def _holds_pipe(pid: int, inode: int) -> bool:
    wanted = f"pipe:[{inode}]"
    folder = _PROC / str(pid) / "fd"
    try:
        return any(str(path.readlink()) == wanted for name in ("1", "2") if (path := folder / name).is_symlink())
    except OSError:
        return False


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Signal exactly this process; False if it is gone or not ours to signal.

    A pidfd pins the process between the check of its start time and the signal.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def kill_members(marks: Marks, *, timeout_s: float, spare: Iterable[int] = ()) -> dict[ProcessId, ProcessStat]:
    """SIGKILL every process of a launch until none is left or the time is over; returns what is left.

    Looks again after each round, so that a process forked in the meantime is caught.
    """
    spared = tuple(spare)
    deadline = time.monotonic() + timeout_s
    while True:
        if marks.cgroup:
            _kill_cgroup(marks.cgroup)
        members = find_members(marks, spared)
        if not members or time.monotonic() >= deadline:
            return members
        for process in members:
            send(process, signal.SIGKILL)
        time.sleep(_POLL_S)


def _kill_cgroup(cgroup: str) -> None:
    try:
        (Path(cgroup) / "cgroup.kill").write_text("1")
    except OSError:
        return  # gone, or a kernel before 5.14; the other marks do the work
