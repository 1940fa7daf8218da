"""Watch a ready server while it is measured: the load client sees stalled streams, this sees a dead process.

Time in which a busy host gave the server no CPU is not held against it, as while it starts (`watchdog`). That is looked
at only once the time is up or a stream stalls: the kernel counts all along, and a look at all threads disturbs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from tuner.domain.outcome import Phase
from tuner.trial.evidence import collect_evidence
from tuner.trial.gpu import GpuProbe
from tuner.trial.neighbours import Strangers
from tuner.trial.phases import PATIENCE, STARVED_SHARE
from tuner.trial.process import ServerHandle
from tuner.trial.starvation import StarvationWatch
from tuner.trial.watchdog import LaunchFailed, LaunchTrouble, after_fatal_line, how_it_ended

_LOG_EVERY_S = 0.1
_LOOK_EVERY_S = 0.05
_SETTLE_S = 3.0


class ServingWatch:
    """Says when a measurement makes no sense any more; cheap enough to be asked twenty times a second.

    Give `is_over` to the load client as its stop question, and call `check` when it comes back: a client that lost its
    connections does not know why.
    """

    def __init__(
        self,
        handle: ServerHandle,
        *,
        timeout_s: float,
        is_fatal: Callable[[str], bool] | None = None,
        is_compiling: Callable[[str], bool] | None = None,
        gpus: GpuProbe | None = None,
        strangers: Strangers | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to watch.

        Args:
            handle: the server.
            timeout_s: longest time for everything measured on this launch, `budget.benchmark_timeout_s`.
            is_fatal: whether a log line means that the server cannot go on.
            is_compiling: whether a log line says that something was compiled while requests waited.
            gpus: the driver's probe, for the evidence.
            strangers: tells when others come to the GPUs.
            clock: seconds of a steady clock.
        """
        self._handle = handle
        self._is_fatal = is_fatal
        self._is_compiling = is_compiling
        self._compiled: list[tuple[float, float]] = []
        self._gpus = gpus
        self._strangers = strangers
        self._clock = clock
        self._began = clock()
        self._timeout_s = timeout_s
        self._starvation = StarvationWatch(handle.seen_processes, clock)
        self._read_at = -math.inf
        self._failure: LaunchFailed | None = None

    def is_over(self) -> bool:
        """Whether the server died, wrote a fatal line, shares its GPUs with others, or the time is up."""
        if self._failure is None:
            self._failure = self._look()
        return self._failure is not None

    def check(self) -> None:
        """Raise what was noticed.

        Raises:
            LaunchFailed: if the server is no longer good for a measurement.
        """
        if self.is_over() and self._failure is not None:
            raise self._failure

    def settle(self) -> None:
        """Give a server whose streams broke a moment to show that it died of something: that is then the cause.

        Raises:
            LaunchFailed: if it died.
        """
        deadline = time.monotonic() + _SETTLE_S
        while not self.is_over() and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
        self.check()

    def compiled_between(self, start: float, end: float) -> bool:
        """Whether the server said so in that time for certain: after the last look before it, no line may have come.

        Args:
            start: seconds of the clock.
            end: the same, not in the future.
        """
        if self._failure is None:
            self._failure = self._look(read=True)
        return any(start <= before and after <= end for before, after in self._compiled)

    def stalled(self, observation: str) -> LaunchFailed:
        """The failure for streams that the load client saw stall; keeps evidence of the server, which still runs."""
        if self._failure is None:
            self._failure = self._stuck(LaunchTrouble.HUNG, observation)
        return self._failure

    def _look(self, *, read: bool = False) -> LaunchFailed | None:
        code = self._handle.poll()
        if code is not None:
            kind, words, exit_code = how_it_ended(self._handle, code)
            return LaunchFailed(kind, Phase.SERVING, words, exit_code=exit_code)
        now = self._clock()
        if self._time_is_up(now):
            words = f"the measurement was not done after {now - self._began:.0f} s"
            return self._stuck(LaunchTrouble.DEADLINE, f"{words} (budget.benchmark_timeout_s: {self._timeout_s:.0f})")
        if read or now >= self._read_at + _LOG_EVERY_S:
            lines, before, self._read_at = self._handle.log.lines(), self._read_at, now
            if self._is_compiling is not None and any(map(self._is_compiling, lines)):
                self._compiled.append((before, self._clock()))
            fatal = None if self._is_fatal is None else next(filter(self._is_fatal, lines), None)
            if fatal is not None:
                kind, line, exit_code = after_fatal_line(self._handle, fatal)
                return LaunchFailed(kind, Phase.SERVING, line, exit_code=exit_code)
        who = None if self._strangers is None else self._strangers.seen(self._own_pids)
        if who is not None:
            return LaunchFailed(LaunchTrouble.GPU_SHARED, Phase.SERVING, who)
        return None

    def _own_pids(self) -> set[int]:
        # The second look is dearer, and sees also what the guard has not met yet.
        return {p.pid for p in self._handle.seen_processes()} | {stat.pid for stat in self._handle.members()}

    def _time_is_up(self, now: float) -> bool:
        spent = now - self._began
        if spent <= self._timeout_s:
            return False
        return spent > PATIENCE * self._timeout_s or spent - self._starvation.look() > self._timeout_s

    def _stuck(self, kind: LaunchTrouble, observation: str) -> LaunchFailed:
        spent, starved = self._clock() - self._began, self._starvation.look()
        if starved > STARVED_SHARE * spent:
            kind = LaunchTrouble.STARVED
            observation += f"; for {starved:.0f} of {spent:.0f} s the server was ready to run and others had the CPU"
        self._handle.is_hung = kind is LaunchTrouble.HUNG
        evidence = collect_evidence(self._handle, self._gpus)
        return LaunchFailed(kind, Phase.SERVING, observation, evidence=evidence)
