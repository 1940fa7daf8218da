"""Whether a launch left anything behind: processes, ports, GPU memory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner.trial import ports as port_tools
from tuner.trial.gpu import DirtyGpu
from tuner.trial.proctree import ProcessStat, read_stat


@dataclass(frozen=True, slots=True)
class LeftProcess:
    """A process of the launch that outlived SIGKILL; state `D` hangs in the kernel, mostly in the GPU driver."""

    pid: int
    name: str
    state: str

    @classmethod
    def of(cls, stat: ProcessStat) -> LeftProcess:
        """From a look at the process."""
        return cls(stat.pid, stat.name, stat.state)

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.name}, state {self.state})"


@dataclass(frozen=True, slots=True)
class HeldPort:
    """A port of the launch on which somebody still listens; `pid` is None where the system does not say who."""

    port: int
    pid: int | None
    is_foreign: bool

    def __str__(self) -> str:
        if self.pid is None:
            return f"port {self.port} (holder unknown)"
        stat = read_stat(self.pid)
        owner = "not of this launch" if self.is_foreign else "of this launch"
        return f"port {self.port} (pid {self.pid} {stat.name if stat else ''}, {owner})"


@dataclass(frozen=True, slots=True)
class TeardownProof:
    """What was looked for after a launch, and what was found.

    Attributes:
        processes: processes of the launch that are still there.
        ports: ports of the plan that are still listened on, by whomever.
        gpus: GPUs whose memory is above its floor; the caller keeps away from them and tells the user who holds them.
        seconds: how long the tear-down took, GPU memory included.
        notes: what could not be looked at, and what went differently from usual.
    """

    processes: tuple[LeftProcess, ...] = ()
    ports: tuple[HeldPort, ...] = ()
    gpus: tuple[DirtyGpu, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether the launch left nothing; a port that a stranger holds is not the launch's."""
        return not self.processes and not self.gpus and all(port.is_foreign for port in self.ports)

    def __str__(self) -> str:
        found = [*map(str, self.processes), *map(str, self.ports), *map(str, self.gpus)]
        return "left behind: " + "; ".join(found) if found else "nothing left behind"


def check_ports(ports: Sequence[int], members: Iterable[int], *, timeout_s: float) -> tuple[HeldPort, ...]:
    """Wait until none of the launch listens on its ports; those still held, by strangers too.

    Args:
        ports: ports of the launch.
        members: process ids that belong or belonged to it.
        timeout_s: how long to wait.
    """
    ours = set(members)
    deadline = time.monotonic() + timeout_s
    while True:
        held = tuple(_look_at(port, ours) for port in ports if not port_tools.is_free(port))
        if all(port.is_foreign for port in held) or time.monotonic() >= deadline:
            return held
        time.sleep(0.05)


def _look_at(port: int, ours: set[int]) -> HeldPort:
    pid = port_tools.holder_of_port(port)
    return HeldPort(port, pid, is_foreign=pid is not None and pid not in ours)
