"""The three clocks of a launch, as plain state: fed with what happened and when, asked whether time is up.

1. silence: no byte in the log;
2. tokens: the server says that it is up, and writes, but generates nothing;
3. phase: each phase has a deadline of its own, and the launch has one. Only counted progress *in the present phase*
   moves it, and never beyond the launch time-out. Chatter does not, and neither do late lines of an earlier phase.

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


class Clock(StrEnum):
    """Which clock ran out."""

    SILENCE = "silence"
    TOKENS = "tokens"
    PHASE = "phase"
    LAUNCH = "launch"


@dataclass(frozen=True, slots=True)
class Overdue:
    """A clock that ran out: after how many seconds, and in which phase."""

    clock: Clock
    phase: Phase
    waited_s: float
    limit_s: float

    def __str__(self) -> str:
        what = {
            Clock.SILENCE: "no log output",
            Clock.TOKENS: "the server says it is up, but generated no token",
            Clock.PHASE: f"no progress out of phase {self.phase.value}",
            Clock.LAUNCH: "the launch did not become ready",
        }[self.clock]
        return f"{what} for {self.waited_s:.0f} s (limit {self.limit_s:.0f} s), in phase {self.phase.value}"


@dataclass(slots=True)
class LaunchClocks:
    """Where a launch is and when it is too late; `began` is the time of its start.

    Attributes:
        phase: the furthest phase seen so far.
    """

    deadlines: PhaseDeadlines
    began: float
    phase: Phase = Phase.SPAWN
    _entered: dict[Phase, float] = field(default_factory=dict)
    _seconds: dict[Phase, float] = field(default_factory=dict)
    _progress: float = 0.0
    _last_byte: float = 0.0
    _bytes: int = 0
    _counted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._entered[self.phase] = self._progress = self._last_byte = self.began

    def observe(self, lines: Sequence[str], seen_bytes: int, phase_of: PhaseOfLine, now: float) -> None:
        """Take in new log lines and the number of bytes that the log has had so far."""
        if seen_bytes > self._bytes:
            self._bytes, self._last_byte = seen_bytes, now
        for line in lines:
            if (phase := phase_of(line)) is not None:
                # A launch ends with its first token. What the server says about serving before that is a claim.
                self._observe_phase(Phase.WARMUP if phase is Phase.SERVING else phase, line, now)

    def _observe_phase(self, phase: Phase, line: str, now: float) -> None:
        is_new = phase in _COUNTED and self._is_new(line)
        if _ORDER[phase] > _ORDER[self.phase]:
            self._enter(phase, now)
        elif phase is self.phase and is_new:
            self._progress = now

    def _enter(self, phase: Phase, now: float) -> None:
        self._leave(now)
        self.phase = phase
        self._entered[phase] = self._progress = now

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
            (Clock.SILENCE, self._last_byte, self.deadlines.silence_s),
            (Clock.TOKENS if says_up else Clock.PHASE, self._progress, self.deadlines.limit(self.phase)),
            (Clock.LAUNCH, self.began, self._launch_limit()),
        ]
        for clock, since, limit in checks:
            if now - since > limit:
                return Overdue(clock, self.phase, now - since, limit)
        return None

    def _launch_limit(self) -> float:
        limit = self.deadlines.total(list(self._entered))
        if self.phase in _COUNTED and self._progress > self._entered[self.phase]:
            limit = max(limit, self._progress - self.began + self.deadlines.limit(self.phase))
        return min(limit, self.deadlines.launch_timeout_s)

    def close(self, now: float) -> Mapping[Phase, float]:
        """End the present phase, because a token was generated or the launch failed. Phase → seconds, in order."""
        self._leave(now)
        return dict(self._seconds)
