"""Wait until a server generates a token, and no longer than is sensible."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tuner.domain.outcome import Phase
from tuner.errors import OwnShortage
from tuner.trial.deadlines import PhaseDeadlines
from tuner.trial.evidence import collect_evidence
from tuner.trial.gpu import GpuProbe
from tuner.trial.phases import Clock, LaunchClocks, Overdue, PhaseOfLine
from tuner.trial.ports import holder_of_port
from tuner.trial.process import ServerHandle
from tuner.trial.starvation import StarvationWatch

_LOOK_EVERY_S = 0.05
_PROBE_EVERY_S = 0.2
_LAST_WORDS_S = 10.0


class LaunchTrouble(StrEnum):
    """How supervision noticed that a launch failed; the class of the failure comes from the log."""

    EXITED = "exited"
    HUNG = "hung"
    DEADLINE = "deadline"
    FATAL_LINE = "fatal_line"
    FOREIGN_PORT = "foreign_port"
    GUARD_LOST = "guard_lost"
    STARVED = "starved"
    GPU_SHARED = "gpu_shared"


class LaunchFailed(Exception):
    """A server that did not become ready, or died or stalled later; the trial turns it into a `Failure`.

    No `TunerError`: it ends a launch, never a command.

    Attributes:
        kind: what was noticed.
        phase: where the launch was.
        exit_code: of the server, negative for a signal; None if it still ran.
        observation: one sentence.
        evidence: paths of the evidence that was kept, under the run directory.
    """

    def __init__(
        self,
        kind: LaunchTrouble,
        phase: Phase,
        observation: str,
        *,
        exit_code: int | None = None,
        evidence: Mapping[str, str] | None = None,
        phase_seconds: Mapping[Phase, float] | None = None,
    ) -> None:
        super().__init__(observation)
        self.kind = kind
        self.phase = phase
        self.exit_code = exit_code
        self.observation = observation
        self.evidence = dict(evidence or {})
        self.phase_seconds = dict(phase_seconds or {})


class WaitCancelled(Exception):
    """The caller no longer wants the server that it waited for."""


@dataclass(frozen=True, slots=True)
class ReadyReport:
    """A server that generated a token: how long each phase took, in order, and the whole, in seconds."""

    phase_seconds: Mapping[Phase, float]
    seconds: float


def wait_ready(
    handle: ServerHandle,
    probe: Callable[[], bool],
    phase_of_line: PhaseOfLine,
    deadlines: PhaseDeadlines,
    is_fatal: Callable[[str], bool] | None = None,
    *,
    gpus: GpuProbe | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> ReadyReport:
    """Wait until the server generates one token.

    A health page is no sign of readiness: engines answer 200 while generation hangs. The log is followed meanwhile;
    the end of the process, a fatal line, or one of the three clocks (see `phases`) ends the wait at once. Of a server
    that hangs, evidence is kept before this returns; ending it is left to `handle.close()`. Time in which a busy host
    gave the server no CPU is not held against it.

    Args:
        handle: the launched server.
        probe: asks for one token; True when it came. May block, runs in a thread of its own.
        phase_of_line: the phase that a log line belongs to, or None.
        deadlines: the limits.
        is_fatal: whether a log line means that the launch cannot succeed.
        gpus: the driver's probe, for the evidence.
        is_cancelled: asked twenty times a second, also while the log is silent.

    Raises:
        LaunchFailed: with what was noticed.
        OwnShortage: the probe could not ask, for want of files, memory or ports.
        WaitCancelled: when `is_cancelled` said so.
    """
    clocks = LaunchClocks(deadlines, handle.started_at)
    starvation = StarvationWatch(handle.seen_processes)
    prober = _Prober(probe)
    try:
        while True:
            if is_cancelled():
                raise WaitCancelled
            prober.raise_shortage()
            has_token = prober.succeeded
            exit_code = handle.poll()
            lines = handle.log.lines()
            now = time.monotonic()
            clocks.observe(lines, handle.log.seen_bytes, phase_of_line, now)
            if exit_code is not None:
                clocks.observe(handle.log.rest(), handle.log.seen_bytes, phase_of_line, now)
                raise _failed(clocks, now, *how_it_ended(handle, exit_code))
            if is_fatal is not None and (fatal := next(filter(is_fatal, lines), None)) is not None:
                raise _failed(clocks, now, *after_fatal_line(handle, fatal))
            if has_token:
                _refuse_foreign_server(handle, clocks, now)
                return ReadyReport(clocks.close(now), now - handle.started_at)
            clocks.starved(starvation.look())
            if (overdue := clocks.overdue(now)) is not None:
                handle.is_hung = not overdue.by_host
                evidence = collect_evidence(handle, gpus)
                raise _failed(clocks, now, _kind_of(overdue), str(overdue), evidence=evidence)
            time.sleep(_LOOK_EVERY_S)
    finally:
        prober.stop()


def _kind_of(overdue: Overdue) -> LaunchTrouble:
    if overdue.by_host:
        return LaunchTrouble.STARVED
    return LaunchTrouble.HUNG if overdue.clock in (Clock.SILENCE, Clock.TOKENS) else LaunchTrouble.DEADLINE


def how_it_ended(handle: ServerHandle, code: int) -> tuple[LaunchTrouble, str, int | None]:
    """Kind, words and exit code of a death."""
    if handle.guard_lost:
        return LaunchTrouble.GUARD_LOST, "the guard of the launch was killed, and the server with it", None
    if code == 0 and handle.killed:
        # The named process noticed that a child was gone, and ended in good order.
        victim = handle.killed[0]
        words = f"process {victim.name} (pid {victim.pid}) of the server was killed by signal {victim.signal}"
        return LaunchTrouble.EXITED, words, -victim.signal
    words = f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
    return LaunchTrouble.EXITED, f"the server {words}", code


def after_fatal_line(handle: ServerHandle, line: str) -> tuple[LaunchTrouble, str, int | None]:
    """Let a doomed server finish its traceback and exit, so that the log is whole and tells how it ended."""
    deadline = time.monotonic() + _LAST_WORDS_S
    while (code := handle.poll()) is None and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)
    return LaunchTrouble.FATAL_LINE, line, None if code is None else how_it_ended(handle, code)[2]


class _Prober:
    """Calls the probe again and again in a thread, so that a probe that blocks cannot blind the watchdog."""

    def __init__(self, probe: Callable[[], bool]) -> None:
        self._probe = probe
        self._stopped = threading.Event()
        self._succeeded = threading.Event()
        self._shortage: OwnShortage | None = None
        threading.Thread(target=self._run, name="readiness-probe", daemon=True).start()

    @property
    def succeeded(self) -> bool:
        return self._succeeded.is_set()

    def raise_shortage(self) -> None:
        if self._shortage is not None:
            raise self._shortage

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                answered = self._probe()
            except OwnShortage as shortage:
                self._shortage = shortage
                return
            except Exception:
                if self._stopped.is_set():
                    return  # its connection was closed under it: nobody wants to know any more
                raise
            if answered:
                self._succeeded.set()
                return
            self._stopped.wait(_PROBE_EVERY_S)


def _failed(
    clocks: LaunchClocks,
    now: float,
    kind: LaunchTrouble,
    observation: str,
    exit_code: int | None = None,
    evidence: Mapping[str, str] | None = None,
) -> LaunchFailed:
    return LaunchFailed(
        kind,
        clocks.phase,
        observation,
        exit_code=exit_code,
        evidence=evidence,
        phase_seconds=clocks.close(now),
    )


def _refuse_foreign_server(handle: ServerHandle, clocks: LaunchClocks, now: float) -> None:
    """The token must come from our own server: engines print that they are up before a failed bind shows."""
    holder = holder_of_port(handle.plan.port)
    # One that was seen in this launch may be dying, and no living member any more: the watch names that death.
    own = {member.pid for member in handle.members()} | {process.pid for process in handle.seen_processes()}
    if holder is None or holder in own:
        return
    text = f"port {handle.plan.port} is answered by pid {holder}, which is not part of this launch"
    raise _failed(clocks, now, LaunchTrouble.FOREIGN_PORT, text)
