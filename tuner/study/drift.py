"""Did the machine become faster or slower in the course of a study? Its baseline, launched again and again, tells.

Two tests of the baseline's launches, each with half of the chance of a false alarm: a steady trend over all of them,
and a step between the first ones, which limits are drawn from, and those among the later ones that were launched in the
same way (a warm launch may differ from a plain one; see `warmth`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.domain.space import Objective, Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Purpose
from tuner.domain.warnings import Caution, WarningCode
from tuner.study.series import measured_value
from tuner.study.summary import baselines_of
from tuner.trial.statistics import pooled_ratio_interval
from tuner.trial.trend import drift

_FALSE_ALARM = 0.05
_LEAST = 0.02
"""A smaller change is of no consequence."""


def machine_drift(space: Space, measured: Sequence[AttemptRecord]) -> Iterator[Caution]:
    """How much each objective of a baseline changed, where that is beyond chance and more than 2 %."""
    changes = []
    for goal in space.goals:
        for engine, baseline in baselines_of(measured).items():
            own = [a for a in measured if a.candidate.fingerprint == baseline.fingerprint]
            whose = f"{goal.label} ({engine})" if len(space.engines) > 1 else goal.label
            if (trend := _trend(own, goal)) is not None:
                changes.append(f"{whose}: {trend:+.1%}")
            elif (step := _step(own, goal)) is not None:
                changes.append(f"{whose}: {step:+.1%} after its first launches")
    if changes:
        yield Caution(WarningCode.MACHINE_DRIFTS, ", ".join(changes))


def _values(launches: Sequence[AttemptRecord], goal: Objective) -> list[tuple[float, float]]:
    """Time and result of each launch that has one."""
    found = [(a.started_at, measured_value(a, goal.at)) for a in launches]
    return [(at, value) for at, value in found if value is not None and value > 0]


def _trend(launches: Sequence[AttemptRecord], goal: Objective) -> float | None:
    """Change (a share) from the first to the last launch."""
    points = _values(launches, goal)
    found = drift([value for _, value in points], [at for at, _ in points])
    if found is None or found.p_value > _FALSE_ALARM / 2 or abs(found.relative) <= _LEAST:
        return None
    return found.relative


def _step(launches: Sequence[AttemptRecord], goal: Objective) -> float | None:
    """Change (a share) from the first launches to later ones of the same kind."""
    first = [a for a in launches if a.purpose is Purpose.BASELINE]
    kinds = {a.report.kind for a in first if a.report is not None}
    later = [a for a in launches if a not in first and a.report is not None and kinds == {a.report.kind}]
    before, after = ([value for _, value in _values(group, goal)] for group in (first, later))
    found = pooled_ratio_interval(after, before, 1 - _FALSE_ALARM / 2)
    if found is None or found.low <= 0 <= found.high or abs(found.center) <= _LEAST:
        return None
    return found.center
