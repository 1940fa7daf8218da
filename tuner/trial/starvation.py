"""Whether a server waits for the CPU because others use it, rather than for something that never comes.

A launch on a starved host is slow in everything, and silent for long. Seen by its log alone it looks like a hang, and
the candidate would be blamed for the host. The scheduler knows better: for each thread it counts the time that it ran
and the time that it was ready to run and waited for a core (`/proc/<pid>/task/<tid>/schedstat`, Linux
`Documentation/scheduler/sched-stats.rst`). A process that hangs sleeps, or runs; only one that is starved waits.

A server with more busy threads than cores makes its own queue. That is its setting's fault, so no more is counted as
taken from it than the share of its cores that others used (`/proc/stat`; time stolen by a hypervisor included).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tuner.trial.proctree import ProcessId, identify

LOOK_EVERY_S = 2.0
_PROC = Path("/proc")
_NS = 1e-9
# Columns of a cpu line of /proc/stat: user nice system idle iowait irq softirq steal.
_BUSY_COLUMNS = (0, 1, 2, 5, 6, 7)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Thread = tuple[ProcessId, int]


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Seconds that threads ran, and waited for a core while ready to run."""

    ran: float
    waited: float


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    threads: dict[Thread, CpuTime]
    busy: dict[int, float]


class StarvationWatch:
    """Adds up how much of the passing time others took from the processes of a server.

    Args:
        processes: the processes that count, asked at every look.
        clock: seconds of a steady clock.
    """

    def __init__(
        self, processes: Callable[[], Iterable[ProcessId]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._processes = processes
        self._clock = clock
        self._first = self._last = self._look()
        self._spent = CpuTime(0.0, 0.0)
        self._busy = 0.0
        self._queued: dict[Thread, float] = {}
        self.starved_s = 0.0

    def look(self) -> float:
        """Seconds taken from the server so far; looks anew when the last look is `LOOK_EVERY_S` old."""
        if self._clock() - self._last.at >= LOOK_EVERY_S:
            before, self._last = self._last, self._look()
            spent = _difference(before.threads, self._last.threads)
            self._spent = CpuTime(self._spent.ran + spent.ran, self._spent.waited + spent.waited)
            cores = self._last.busy
            self._busy += sum(max(0.0, seconds - before.busy.get(core, seconds)) for core, seconds in cores.items())
            # Over the whole time: the kernel counts a wait when it is over, and a long one may span several looks.
            elapsed = self._last.at - self._first.at
            spent = CpuTime(self._spent.ran, self._spent.waited + self._still_waiting(before))
            self.starved_s = taken_by_others(spent, self._busy, cores=len(cores), elapsed=elapsed)
        return self.starved_s

    def _still_waiting(self, before: _Look) -> float:
        """Seconds of waits that are not over: of ready threads, the time in which they neither ran nor waited.

        One that slept until a moment ago is taken for waiting until the next look, which sees what was counted.
        """
        queued: dict[Thread, float] = {}
        pending = 0.0
        for thread, now in self._last.threads.items():
            if not _is_ready(thread):
                continue
            then = before.threads.get(thread, now)
            since = self._queued.get(thread, before.at) if now == then else before.at
            queued[thread] = since
            pending += max(0.0, self._last.at - since - (now.ran - then.ran) - (now.waited - then.waited))
        self._queued = queued
        return pending

    def _look(self) -> _Look:
        processes = [process for process in self._processes() if identify(process.pid) == process]
        threads = {thread: spent for process in processes for thread, spent in _threads_of(process)}
        cores = {core for process in processes for core in _cores_of(process)}
        busy = {core: seconds for core, seconds in _busy_cores().items() if core in cores}
        return _Look(self._clock(), threads, busy)


def taken_by_others(spent: CpuTime, busy: float, *, cores: int, elapsed: float) -> float:
    """Seconds of `elapsed` in which a server was ready to run and others had the cores.

    Args:
        spent: what all threads of the server ran and waited together.
        busy: CPU seconds that the server's cores worked for anybody.
        cores: cores that the server may use.
        elapsed: length of the interval in seconds.

    Returns:
        The smaller of two: the time in which threads were ready, by the share of it that they waited; and the share of
        the cores that others used.
    """
    ready = spent.ran + spent.waited
    if ready <= 0 or cores == 0 or elapsed <= 0:
        return 0.0
    waiting = spent.waited / ready * min(1.0, ready / elapsed)
    others = (busy - spent.ran) / (cores * elapsed)
    return max(0.0, min(waiting, others, 1.0)) * elapsed


def _difference(before: dict[Thread, CpuTime], after: dict[Thread, CpuTime]) -> CpuTime:
    """What threads spent between two looks; what ended threads spent since the first is not known."""
    none = CpuTime(0.0, 0.0)
    pairs = [(before.get(thread, none), now) for thread, now in after.items()]
    return CpuTime(sum(now.ran - then.ran for then, now in pairs), sum(now.waited - then.waited for then, now in pairs))


def _threads_of(process: ProcessId) -> Iterable[tuple[Thread, CpuTime]]:
    try:
        tasks = list((_PROC / str(process.pid) / "task").iterdir())
    except OSError:
        return
    for task in tasks:
        try:
            ran, waited, _ = (task / "schedstat").read_text().split()
        except (OSError, ValueError):
            continue  # the thread ended, or a kernel without this file: nothing is then taken for starvation
        yield (process, int(task.name)), CpuTime(int(ran) * _NS, int(waited) * _NS)


def _is_ready(thread: Thread) -> bool:
    process, number = thread
    try:
        text = (_PROC / str(process.pid) / "task" / str(number) / "stat").read_text(errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] == "R"


def _cores_of(process: ProcessId) -> Iterable[int]:
    try:
        return os.sched_getaffinity(process.pid)
    except OSError:
        return ()


def _busy_cores() -> dict[int, float]:
    """Core → seconds that it has worked since boot."""
    found = {}
    for line in (_PROC / "stat").read_text().splitlines():
        name, *columns = line.split()
        if name.startswith("cpu") and name != "cpu":
            found[int(name[3:])] = sum(int(columns[column]) for column in _BUSY_COLUMNS) / _TICKS_PER_S
    return found
