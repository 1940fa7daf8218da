"""Launches as they would have been measured at the machine's present speed, for a search that compares them.

What a launch measured stays as it was measured, wherever it is stored or told. But a search that takes a slower machine
for the effect of a setting learns something wrong. So while the machine drifts, it sees each launch relative to the
baseline of its time, times what the baseline measures now (docs/adr/0005).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tuner.domain.measurement import Measured, MeasuredInPart, MetricAt
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Purpose
from tuner.search.base import Restated
from tuner.study.verdict import violations
from tuner.trial.baseline_levels import BaselineLevels


def restated(space: Space, attempts: Sequence[AttemptRecord]) -> Mapping[int, Restated]:
    """Trial → how the search is to see it, for every trial that was measured; empty as long as nothing drifts.

    All of it follows from the stored attempts, so that a resumed study sees the same. The change is taken to be the
    machine's, and so the same share for every configuration and engine.
    """
    levels = BaselineLevels(space, attempts)
    if not levels.is_drifting:
        return {}
    last = {attempt.trial: attempt for attempt in attempts if attempt.state.finished}
    found = {}
    for trial, attempt in last.items():
        if isinstance(attempt.outcome, Measured | MeasuredInPart):
            found[trial] = _restated(space, attempt, attempt.outcome, levels)
    return found


def _restated(
    space: Space, attempt: AttemptRecord, outcome: Measured | MeasuredInPart, levels: BaselineLevels
) -> Restated:
    is_ruler = attempt.purpose is Purpose.SENTINEL

    def seen(at: MetricAt) -> float | None:
        value = outcome.value(at)
        # The line runs through these launches: laid on themselves they would seem to have no noise at all.
        if value is None or is_ruler:
            return None
        return levels.now(at, value, attempt.started_at)

    known = isinstance(outcome, Measured) and not is_ruler
    broken = violations(space.limits, seen, levels.at(math.inf)) if known else {}
    either = [violations(space.limits, outcome.value, baseline) for baseline in levels.around(attempt.started_at)]
    return Restated(
        values=tuple(seen(goal.at) for goal in space.goals),
        violations={
            label: excess
            for label, excess in broken.items()
            # Whether a limit was kept whose level is not known so well is nothing to learn from.
            if label not in levels.limits_of_their_time or len({one[label] > 0 for one in either}) == 1
        },
        doubt=tuple(levels.doubt(goal.at, attempt.started_at) for goal in space.goals),
    )
