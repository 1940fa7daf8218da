"""Shared memory of a launch, which goes with the launch.

POSIX shared memory and named semaphores are files below /dev/shm (shm_overview(7), sem_overview(7)), and their memory
stays taken until they are removed. Engines pass messages between their processes through them and remove them when
they end by themselves; killed ones leave them behind, until a night of launches has filled the folder and new ones die
of it.

A file belongs to a launch that was not there when the launch began and that one of its processes maps. Inodes tell,
since a named semaphore is made and mapped under a temporary name and linked to its own afterwards (glibc, sem_open).
Removing a file takes nothing from whoever has it mapped; it can only not be opened anew.

Standard library only: the guard looks, and removes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("/dev/shm")


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """One file, which a later one of the same name is not."""

    name: str
    inode: int


class SegmentWatch:
    """Finds out what the processes of one launch make there.

    Costs a listing of the folder; the processes' maps are read only when something new is in it.
    """

    def __init__(self) -> None:
        self._known = present()
        self._doubtful: frozenset[Segment] = frozenset()
        self.made: frozenset[Segment] = frozenset()

    def look(self, pids: Iterable[int]) -> bool:
        """Whether the processes map files that were not seen before; `made` holds all of them."""
        new = present() - self._known
        if not new:
            return False
        mapped = frozenset[int]().union(*map(mapped_by, pids))
        ours = frozenset(segment for segment in new if segment.inode in mapped)
        # A file may be seen between its making and its mapping, so only the second look calls it somebody else's.
        foreign = (new - ours) & self._doubtful
        self._doubtful = new - ours - foreign
        self._known |= ours | foreign
        self.made |= ours
        return bool(ours)


def present() -> frozenset[Segment]:
    """Every file of the folder; empty where there is none."""
    try:
        with os.scandir(FOLDER) as entries:
            return frozenset(Segment(e.name, e.inode()) for e in entries if e.is_file(follow_symlinks=False))
    except OSError:
        return frozenset()


def mapped_by(pid: int) -> frozenset[int]:
    """Inodes of the folder's files that a process maps; empty when it is gone or may not be looked into."""
    prefix = f"{FOLDER}/"
    found = set()
    try:
        with Path(f"/proc/{pid}/maps").open(errors="replace") as maps:
            for line in maps:
                # proc_pid_maps(5): address, permissions, offset, device, inode, path
                fields = line.rstrip("\n").split(maxsplit=5)
                if len(fields) == 6 and fields[5].startswith(prefix):
                    found.add(int(fields[4]))
    except OSError:
        return frozenset()
    return frozenset(found)


def remove(segments: Iterable[Segment]) -> None:
    """Remove files that are still the ones that were seen."""
    for segment in segments:
        path = FOLDER / segment.name
        with contextlib.suppress(OSError):
            if path.lstat().st_ino == segment.inode:
                path.unlink()
