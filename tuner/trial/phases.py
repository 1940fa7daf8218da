"""The three clocks of a launch, as plain state: fed with what happened and when, asked whether time is up.

1. silence: no further byte in a log that has begun;
2. tokens: the server says that it is up, and writes, but generates nothing;
3. phase: each phase has a deadline of its own, and the launch has one. Only counted progress *in the present phase*
   moves it, and never beyond the launch time-out. Chatter does not, and neither do late lines of an earlier phase.

Time in which the host gave the server no CPU (`starvation`) does not count, within bounds: no clock waits longer than
`PATIENCE` times its limit, nor beyond the launch time-out. When such a bound ends a launch, the host is to blame.

Nothing here reads a clock: every call is given the time, in seconds of any steady clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tuner.domain.outcome import Phase
from tuner.trial.deadlines import PhaseDeadlines

PhaseOfLine = Callable[[str], Phase | None]

_ORDER = {phase: number for number, phase in enumerate(Phase)}
# Phases whose lines count work done: shards, kernels, graph sizes.
_COUNTED = frozenset({Phase.WEIGHTS, Phase.COMPILE, Phase.GRAPH_CAPTURE})
_REMEMBERED_LINES = 10_000

PATIENCE = 3.0
"""Longest wait on a starved host, as a multiple of a limit."""
STARVED_SHARE = 0.5
"""Whoever waited for the CPU for more than this share of its time was made late by the host."""


class Clock(StrEnum):
    """Which clock ran out."""

    SILENCE = "silence"
    TOKENS = "tokens"
    PHASE = "phase"
    LAUNCH = "launch"


@dataclass(frozen=True, slots=True)
class Overdue:
    """A clock that ran out: after how many seconds, and in which phase.

    Attributes:
        waited_s: seconds since the clock's beginning.
        starved_s: those of them in which others had the CPU.
        limit_s: seconds that the server may take by itself.
    """

    clock: Clock
    phase: Phase
    waited_s: float
    limit_s: float
    starved_s: float = 0.0

    @property
    def by_host(self) -> bool:
        """Whether the host's load made it late: it had less than its time, and waited for the CPU for most of it."""
        return self.waited_s - self.starved_s <= self.limit_s and self.starved_s > STARVED_SHARE * self.waited_s

    def __str__(self) -> str:
        what = {
            Clock.SILENCE: "no log output",
            Clock.TOKENS: "the server says it is up, but generated no token",
            Clock.PHASE: f"no progress out of phase {self.phase.value}",
            Clock.LAUNCH: "the launch did not become ready",
        }[self.clock]
        late = f"{what} for {self.waited_s:.0f} s (limit {self.limit_s:.0f} s), in phase {self.phase.value}"
        if not self.by_host:
            return late
        return f"{late}; for {self.starved_s:.0f} s of them the server was ready to run and other processes had the CPU"


@dataclass(frozen=True, slots=True)
class _Moment:
    """When something happened, and how long the server had been starved by then."""

    at: float
    starved: float


@dataclass(slots=True)
class LaunchClocks:
    """Where a launch is and when it is too late; `began` is the time of its start.

    Attributes:
        phase: the furthest phase seen so far.
    """

    deadlines: PhaseDeadlines
    began: float
    phase: Phase = Phase.SPAWN
    _starved: float = 0.0
    _entered: dict[Phase, float] = field(default_factory=dict)
    _seconds: dict[Phase, float] = field(default_factory=dict)
    _progress: _Moment = field(init=False)
    _last_byte: _Moment | None = None
    _bytes: int = 0
    _counted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._entered[self.phase] = self.began
        self._progress = _Moment(self.began, 0.0)

    def starved(self, seconds: float) -> None:
        """Say for how long, since the beginning, others had the CPU while the server was ready to run."""
        self._starved = seconds

    def observe(self, lines: Sequence[str], seen_bytes: int, phase_of: PhaseOfLine, now: float) -> None:
        """Take in new log lines and the number of bytes that the log has had so far."""
        if seen_bytes > self._bytes:
            self._bytes, self._last_byte = seen_bytes, self._moment(now)
        for line in lines:
            if (phase := phase_of(line)) is not None:
                # A launch ends with its first token. What the server says about serving before that is a claim.
                self._observe_phase(Phase.WARMUP if phase is Phase.SERVING else phase, line, now)

    def _observe_phase(self, phase: Phase, line: str, now: float) -> None:
        is_new = phase in _COUNTED and self._is_new(line)
        if _ORDER[phase] > _ORDER[self.phase]:
            self._enter(phase, now)
        elif phase is self.phase and is_new:
            self._progress = self._moment(now)

    def _moment(self, now: float) -> _Moment:
        return _Moment(now, self._starved)

    def _enter(self, phase: Phase, now: float) -> None:
        self._leave(now)
        self.phase = phase
        self._entered[phase] = now
        self._progress = self._moment(now)

    def _leave(self, now: float) -> None:
        self._seconds[self.phase] = now - self._entered[self.phase]

    def _is_new(self, line: str) -> bool:
        # A line printed again and again is a complaint, not progress. The set is bounded; a launch has few such lines.
        mark = hash(line)
        if mark in self._counted or len(self._counted) >= _REMEMBERED_LINES:
            return False
        self._counted.add(mark)
        return True

    def overdue(self, now: float) -> Overdue | None:
        """The first clock that ran out, or None."""
        says_up = self.phase is Phase.WARMUP
        checks = [
            # An empty log says nothing about silence: interpreters and their imports are silent, too.
            (Clock.SILENCE, self._last_byte, self.deadlines.silence_s),
            (Clock.TOKENS if says_up else Clock.PHASE, self._progress, self.deadlines.limit(self.phase)),
            (Clock.LAUNCH, _Moment(self.began, 0.0), self._launch_limit()),
        ]
        for clock, since, limit in checks:
            if since is None:
                continue
            late = Overdue(clock, self.phase, now - since.at, limit, self._starved - since.starved)
            longest = min(PATIENCE * limit, self.deadlines.launch_timeout_s)
            if late.waited_s - late.starved_s > limit or late.waited_s > longest:
                return late
        return None

    def _launch_limit(self) -> float:
        limit = self.deadlines.total(list(self._entered))
        if self.phase in _COUNTED and self._progress.at > self._entered[self.phase]:
            limit = max(limit, self._progress.at - self.began + self.deadlines.limit(self.phase))
        return min(limit, self.deadlines.launch_timeout_s)

    def close(self, now: float) -> Mapping[Phase, float]:
        """End the present phase, because a token was generated or the launch failed. Phase → seconds, in order."""
        self._leave(now)
        return dict(self._seconds)
