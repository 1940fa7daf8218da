"""Whether somebody else uses the GPUs of a launch: their memory before it, strange processes while it is measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from tuner.trial.gpu import DirtyGpu, GpuProbe, GpuState, above
from tuner.trial.proctree import read_stat

_LOOK_EVERY_S = 1.0
_TELL_EVERY_S = 30.0
ROOM_MIB = 1024
"""So much more than before is no matter: what a display uses changes all day, and a server takes more than that."""


def wait_until_free(
    probe: GpuProbe,
    usual: Mapping[int, int],
    *,
    timeout_s: float,
    tell: Callable[[str], None],
    is_cancelled: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[DirtyGpu, ...]:
    """Wait until no more memory is in use than before earlier launches; the GPUs on which more still is.

    Whoever has come to a GPU since takes memory from the server and time from its measurement. What was always there
    (a display, another service) is not waited for.

    Args:
        probe: the driver.
        usual: GPU → MiB in use before earlier launches; only these GPUs are looked at.
        timeout_s: longest wait.
        tell: gets what is waited for, now and then.
        is_cancelled: ends the wait.
        clock: seconds of a steady clock.
        sleep: waits so many seconds.
    """
    began, told_at = clock(), -math.inf
    while True:
        taken = above(probe, usual, ROOM_MIB)
        now = clock()
        if not taken or now - began >= timeout_s or is_cancelled():
            return taken
        if now - told_at >= _TELL_EVERY_S:
            tell(f"waiting for memory: {'; '.join(map(str, taken))}")
            told_at = now
        sleep(_LOOK_EVERY_S)


class Strangers:
    """Processes that came to the GPUs of a launch and are not its own.

    The driver may count processes as the host does and not as a container sees them. Its numbers are believed only
    while it names one of the launch's own, and of the others only those that can be seen here.
    """

    def __init__(
        self, probe: GpuProbe | None, gpus: Sequence[int], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Remember who is there; to be made before the launch.

        Args:
            probe: the driver; None on a machine without GPUs, where nobody is ever seen.
            gpus: the launch's GPUs.
            clock: seconds of a steady clock.
        """
        self._probe = probe
        self._gpus = tuple(gpus)
        self._clock = clock
        self._looked_at = -math.inf
        self._before = {pid for state in self._states() for pid in _pids(state)}

    def seen(self, own: Callable[[], set[int]]) -> str | None:
        """Who is there besides the launch, in words; asks the driver once a second at most.

        Args:
            own: ids of the launch's processes at this moment.
        """
        now = self._clock()
        if now < self._looked_at + _LOOK_EVERY_S:
            return None
        self._looked_at = now
        states = self._states()
        if not any(_pids(state) - self._before for state in states):
            return None
        ours = own()
        if not any(_pids(state) & ours for state in states):
            return None
        for state in states:
            for pid in sorted(_pids(state) - self._before - ours):
                stat = read_stat(pid)
                if stat is not None and not stat.is_dead:
                    return f"pid {pid} ({stat.name}), no process of this launch, came to GPU {state.index}"
        return None

    def _states(self) -> tuple[GpuState, ...]:
        return () if self._probe is None or not self._gpus else self._probe.states(self._gpus)


def _pids(state: GpuState) -> set[int]:
    return {holder.pid for holder in state.holders}
