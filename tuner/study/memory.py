"""What a study's failures say about what to launch next."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.domain.candidate import Candidate
from tuner.domain.failure_memory import FailureMemory, SetAside, Tried
from tuner.domain.outcome import Failure
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import BASELINE_PURPOSES, Purpose
from tuner.domain.values import Value, spell
from tuner.trial.baseline_levels import BaselineLevels


def memory_of(attempts: Sequence[AttemptRecord]) -> FailureMemory:
    """The memory of a study, from the last finished launch of each trial."""
    last = {attempt.trial: attempt for attempt in attempts if attempt.state.finished}
    return FailureMemory(
        Tried(
            trial=trial,
            candidate=attempt.candidate,
            failure=attempt.outcome if isinstance(attempt.outcome, Failure) else None,
            attempts=attempt.attempt,
            is_baseline=attempt.purpose in BASELINE_PURPOSES,
            second_chance=attempt.purpose is Purpose.SECOND_CHANCE,
        )
        for trial, attempt in sorted(last.items())
    )


def second_chance(space: Space, aside: SetAside, attempts: Sequence[AttemptRecord]) -> Candidate | None:
    """The best configuration so far (by the first objective, as it would be measured now) with those values put in.

    None when nothing was measured, a rule forbids the result, or the values are inactive there.
    """
    goal, levels = space.goals[0], BaselineLevels(space, attempts)
    sign = 1 if goal.maximize else -1
    measured = [
        (sign * levels.now(goal.at, value, attempt.started_at), attempt.trial, attempt.candidate)
        for attempt in attempts
        if attempt.candidate.engine == aside.engine and (value := attempt.value(goal.at)) is not None
    ]
    if not measured:
        return None
    best = max(measured, key=lambda item: item[:2])[2]
    values = {name: _read(space, aside.engine, name, text) for name, text in aside.settings}
    candidate = Candidate.of(space, aside.engine, {**best.values, **values})
    forbidden = any(space.broken_rules(aside.engine, candidate.values))
    return candidate if aside.covers(candidate) and not forbidden else None


def _read(space: Space, engine: str, knob: str, text: str) -> Value:
    """The knob's value that is spelled like this."""
    return next(value for value in space.knobs_of(engine)[knob].grid if spell(value) == text)
