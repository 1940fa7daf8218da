"""How processes ended that are not our children; standard library only, because the guard imports it.

An engine's parent process collects its own children, and may then end with 0 as if all were well. From Linux 6.15 on,
the kernel tells the exit status to whoever held a pidfd (`PIDFD_GET_INFO` in `linux/pidfd.h`); before that, nothing is
known.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from tuner.trial.proctree import ProcessId, ProcessStat

# struct pidfd_info: mask and cgroup id (u64), eleven ids (u32), exit status (s32).
_INFO = struct.Struct("=QQ11Ii")
_GET_INFO = 0xC000_0000 | _INFO.size << 16 | 0xFF << 8 | 11
_WANTS_EXIT = 1 << 3


@dataclass(frozen=True, slots=True)
class Death:
    """A process that a signal ended."""

    pid: int
    name: str
    signal: int


class DeathWatch:
    """Holds on to processes in order to learn what ended them."""

    def __init__(self) -> None:
        self._held: dict[ProcessId, tuple[int, str]] = {}

    def follow(self, members: Iterable[ProcessStat]) -> None:
        """Hold on to these processes too; names are kept up to date, since engines set them late."""
        for stat in members:
            if stat.identity in self._held:
                self._held[stat.identity] = (self._held[stat.identity][0], stat.name)
                continue
            try:
                self._held[stat.identity] = (os.pidfd_open(stat.pid), stat.name)
            except OSError:
                continue

    def killed(self) -> list[Death]:
        """Processes that a signal has ended since the last call; those that ended in another way are let go."""
        deaths = []
        for process, (descriptor, name) in list(self._held.items()):
            status = _exit_status(descriptor)
            if status is None:
                continue
            os.close(descriptor)
            del self._held[process]
            if os.WIFSIGNALED(status):
                deaths.append(Death(process.pid, name, os.WTERMSIG(status)))
        return deaths

    def close(self) -> None:
        """Let go of all."""
        for descriptor, _ in self._held.values():
            os.close(descriptor)
        self._held.clear()


def _exit_status(descriptor: int) -> int | None:
    """Wait status of a process that was collected by its parent; None while it runs, or where the kernel is older."""
    request = bytearray(_INFO.pack(_WANTS_EXIT, *[0] * 12, 0))
    try:
        fcntl.ioctl(descriptor, _GET_INFO, request)
    except OSError:
        return None
    fields = _INFO.unpack(request)
    return fields[-1] if fields[0] & _WANTS_EXIT else None
