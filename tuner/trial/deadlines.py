"""How long each phase of a launch may take, before and after good launches were seen."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.domain.outcome import Phase

LEARN_FROM = 3
"""Good launches needed before limits follow them."""

MARGIN_S = 45.0
"""Added to twice the median. A hang is to cost at most twice the median good launch plus a minute; the other 15 s of
that minute are for evidence and tear-down."""

# Before anything was seen: share of the launch time-out. Weights and compile may rightly take most of a launch.
_SHARES: Mapping[Phase, float] = {
    Phase.SPAWN: 0.3,
    Phase.IMPORT: 0.3,
    Phase.PARSE: 0.2,
    Phase.NCCL_INIT: 0.25,
    Phase.WEIGHTS: 0.9,
    Phase.PROFILE: 0.4,
    Phase.COMPILE: 0.9,
    Phase.GRAPH_CAPTURE: 0.6,
    Phase.WARMUP: 0.4,
}
_SILENCE_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class PhaseDeadlines:
    """The limits of one launch, in seconds.

    Attributes:
        launch_timeout_s: nothing extends a launch beyond this.
        silence_s: longest time without a byte in the log.
        learned: limits that follow good launches, by phase; empty until there were enough.
    """

    launch_timeout_s: float
    silence_s: float
    learned: Mapping[Phase, float]

    @classmethod
    def of(cls, launch_timeout_s: float, learned: Mapping[Phase, float] | None = None) -> PhaseDeadlines:
        """The limits for a launch time-out, with those that a study has learned."""
        return cls(launch_timeout_s, launch_timeout_s * _SILENCE_SHARE, dict(learned or {}))

    def limit(self, phase: Phase) -> float:
        """Longest duration of one phase, counted from its beginning or from its last counted progress.

        A phase that no good launch had (a first compile, say) may take as long as two good launches.
        """
        if (learned := self.learned.get(phase)) is not None:
            return min(learned, self.launch_timeout_s)
        return min(_SHARES.get(phase, 1.0) * self.launch_timeout_s, self._known())

    def total(self, entered: Sequence[Phase]) -> float:
        """Longest duration of the launch, given the phases entered so far; a new phase brings its own limit with it."""
        new = sum(self.limit(phase) for phase in entered if phase not in self.learned) if self.learned else 0.0
        return min(self._known() + new, self.launch_timeout_s)

    def _known(self) -> float:
        """Twice the sum of the learned medians plus one margin, so that several slow phases do not add up margins."""
        if not self.learned:
            return self.launch_timeout_s
        return sum(max(0.0, limit - MARGIN_S) for limit in self.learned.values()) + MARGIN_S


def learn_limits(good: Sequence[Mapping[Phase, float]]) -> dict[Phase, float]:
    """Limits that follow the phase durations of good launches: twice the median plus a margin; empty if too few.

    Only phases that at least half of the launches went through are learned: one launch that compiled for a minute
    says little about the others.

    Args:
        good: phase → seconds of each launch that became ready, the benchmark's and the tear-down's are ignored.
    """
    if len(good) < LEARN_FROM:
        return {}
    durations: dict[Phase, list[float]] = {}
    for launch in good:
        for phase, seconds in launch.items():
            durations.setdefault(phase, []).append(seconds)
    return {
        phase: 2 * statistics.median(seen) + MARGIN_S
        for phase, seen in durations.items()
        if phase in _SHARES and 2 * len(seen) >= len(good)
    }
