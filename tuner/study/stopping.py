"""When a study ends, and how the user ends it earlier."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from tuner.domain.space import Budget
from tuner.domain.study import AttemptRecord
from tuner.domain.values import counted
from tuner.search.base import RemainingGain


class Urgency(IntEnum):
    """How soon the study must end."""

    NONE = 0
    FINISH_TRIAL = 1
    NOW = 2


class StopSwitch:
    """Raised by Ctrl-C: once finishes the running trial, twice tears it down now. Never lowered."""

    def __init__(self) -> None:
        self._urgency = Urgency.NONE

    @property
    def urgency(self) -> Urgency:
        """How soon to end."""
        return self._urgency

    def press(self) -> Urgency:
        """One step more urgent."""
        self._urgency = Urgency(min(self._urgency + 1, Urgency.NOW))
        return self._urgency

    def at_least(self, urgency: Urgency) -> None:
        """Raise to at least this urgency."""
        self._urgency = max(self._urgency, urgency)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a study has used so far: trials told, wall-clock hours of this run, GPU-hours of all launches."""

    trials: int
    hours: float
    gpu_hours: float


def trials_spent(attempts: Sequence[AttemptRecord]) -> int:
    """Trials that the budget has paid for: those that are told, but for what the user asks for one by one."""
    return len({a.trial for a in attempts if a.told and not a.purpose.is_beside_the_budget})


def _in_words(hours: float) -> str:
    """`2 hours`, `12 minutes`, `30 seconds`: in the largest unit of which it is at least one."""
    units = (("hour", 1), ("minute", 60), ("second", 3600))
    noun, share = next((unit for unit in units if hours * unit[1] >= 1), units[-1])
    return counted(hours * share, noun)


def spent_reason(budget: Budget, spent: Spent) -> str | None:
    """Which part of the budget is used up, in words, or None."""
    if spent.trials >= budget.trials:
        return f"the budget of {counted(budget.trials, 'trial')} is used up"
    if budget.hours is not None and spent.hours >= budget.hours:
        return f"the budget of {_in_words(budget.hours)} is used up"
    if budget.gpu_hours is not None and spent.gpu_hours >= budget.gpu_hours:
        return f"the budget of {counted(budget.gpu_hours, 'GPU-hour')} is used up"
    return None


def ends_when(budget: Budget, objective: str) -> str:
    """When a study with this budget ends, in words; `objective` is the label of the first one."""
    limits = [counted(budget.trials, "launch")]
    limits += [_in_words(budget.hours)] if budget.hours is not None else []
    limits += [counted(budget.gpu_hours, "GPU-hour")] if budget.gpu_hours is not None else []
    if budget.stop_below_gain is not None:
        limits.append(
            f"once no candidate is expected to be {budget.stop_below_gain:.2%} better than the best found in "
            f"{objective} ({budget.stop_confidence:.0%} confidence)"
        )
    return "after " + ", or ".join(limits)


def nothing_left(budget: Budget, gain: RemainingGain | None, objective: str) -> str | None:
    """Why going on would not pay, in words, or None: both the expected gain and its bound are below what was asked.

    Args:
        budget: of the space.
        gain: what may be left to win; None while too little is known to say.
        objective: label of the first objective, of which `gain` is a share.
    """
    least = budget.stop_below_gain
    if least is None or gain is None or max(gain.expected, gain.upper) >= least:
        return None
    return (
        f"no candidate is expected to be {least:.2%} better than the best found in {objective}: "
        f"{gain.expected:.2%} expected, below {gain.upper:.2%} with {gain.confidence:.0%} confidence"
    )


class Stopwatch:
    """Hours since it was made, by a clock that a changed system time does not move."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()

    @property
    def hours(self) -> float:
        """Elapsed hours."""
        return (self._clock() - self._start) / 3600
