"""`launch.json`: what a later process needs to recognise, and end, the processes of a launch that was cut off."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tuner.trial.proctree import Marks, ProcessId, identify
from tuner.trial.sharedmemory import Segment

FILE = "launch.json"


def boot_id() -> str:
    """Changes with every start of the machine; process ids of an earlier boot mean nothing."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """One launch as written beside its log.

    Attributes:
        worker: the tuner process that owns the launch.
        guard: the launch's guard.
        server: the process that the plan named; None before it was started.
        log_pipe: inode of the pipe that holds the server's output.
        cgroup: directory of its cgroup, if it has one.
        ports: ports that the plan gave it.
        scratch: its own temporary folder, if it has one.
        segments: shared memory that its processes made, as far as the guard has seen.
        members: every process seen below the guard so far.
        ended: whether the launch was torn down and nothing was left.
    """

    launch_id: str
    boot: str
    worker: ProcessId
    guard: ProcessId
    server: ProcessId | None = None
    log_pipe: int | None = None
    cgroup: str | None = None
    ports: tuple[int, ...] = ()
    scratch: str | None = None
    segments: frozenset[Segment] = frozenset()
    members: frozenset[ProcessId] = frozenset()
    ended: bool = False

    def with_members(self, members: Iterable[ProcessId]) -> LaunchRecord:
        """A copy that remembers more processes."""
        return dataclasses.replace(self, members=self.members.union(members))

    @property
    def marks(self) -> Marks:
        """What its processes are known by while the worker that made the record lives."""
        leader = self.server
        # Once the server's number belongs to somebody else, its session is gone.
        is_same = leader is not None and identify(leader.pid) in (None, leader)
        return Marks(
            launch_id=self.launch_id,
            guard=self.guard,
            session=leader.pid if leader is not None and is_same else None,
            log_pipe=self.log_pipe,
            cgroup=self.cgroup,
            remembered=self.members | ({leader} if leader else set()),
        )

    def write(self, run_dir: Path) -> None:
        """Replace the file in one step, so that a reader never sees half of it."""
        content = dataclasses.asdict(self)
        content["members"] = sorted(dataclasses.astuple(member) for member in self.members)
        content["segments"] = sorted(dataclasses.astuple(segment) for segment in self.segments)
        for name in ("worker", "guard", "server"):
            value = getattr(self, name)
            content[name] = None if value is None else dataclasses.astuple(value)
        unfinished = run_dir / f".{FILE}.{os.getpid()}"
        unfinished.write_text(json.dumps(content))
        unfinished.replace(run_dir / FILE)

    @classmethod
    def read(cls, path: Path) -> LaunchRecord | None:
        """The record in a file, or None if it cannot be understood."""
        try:
            content = json.loads(path.read_text())
            server = content["server"]
            return cls(
                launch_id=content["launch_id"],
                boot=content["boot"],
                worker=ProcessId(*content["worker"]),
                guard=ProcessId(*content["guard"]),
                server=None if server is None else ProcessId(*server),
                log_pipe=content["log_pipe"],
                cgroup=content["cgroup"],
                ports=tuple(content["ports"]),
                scratch=content.get("scratch"),
                segments=frozenset(Segment(*segment) for segment in content.get("segments", ())),
                members=frozenset(ProcessId(*member) for member in content["members"]),
                ended=content["ended"],
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
