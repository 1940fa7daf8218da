"""Did launches of one configuration become faster or slower in the course of a study?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tuner.domain.measurement import MetricAt
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import LaunchKind, Purpose
from tuner.trial.statistics import pooled_ratio_interval
from tuner.trial.trend import drift

_FALSE_ALARM = 0.02
"""Each time that it is asked; over all launches of a study on a steady machine about one in twenty (docs/adr/0005)."""
_LEAST = 0.02
"""A smaller change is of no consequence."""
_ENOUGH_TO_BE_ODD = 3


@dataclass(frozen=True, slots=True)
class Change:
    """How launches changed: by which share, and from which trial on; None where they did so steadily."""

    share: float
    since: int | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One launch: when, what it measured (above zero), and what tells which launches may be compared."""

    when: float
    value: float
    trial: int
    is_first: bool
    kind: LaunchKind


def points_of(launches: Iterable[AttemptRecord], at: MetricAt) -> tuple[Point, ...]:
    """The launches that measured a metric, as far as that has a logarithm."""
    return tuple(
        Point(a.started_at, value, a.trial, a.purpose is Purpose.BASELINE, a.report.kind)
        for a in launches
        if a.report is not None and (value := a.value(at)) is not None and value > 0
    )


def change_of(points: tuple[Point, ...]) -> Change | None:
    """How launches changed, where that is beyond chance and more than 2 %.

    What was shown once stays shown: later launches, noisier perhaps, are not asked whether an earlier change is still
    beyond their noise. Their median tells how large it is, and whether it was but an odd launch.

    Args:
        points: launches of one configuration, in the order in which they were made.
    """
    for count in range(len(points), 1, -1):
        found = _beyond_chance(points[:count])
        if found is not None and count < len(points):
            found = _as_of_now(found, points)
        if found is not None and abs(found.share) > _LEAST:
            return found
    return None


def _as_of_now(found: Change, points: Sequence[Point]) -> Change:
    if found.since is None:
        return found
    start = next(place for place, point in enumerate(points) if point.trial == found.since)
    before, after = (statistics.median(point.value for point in side) for side in (points[:start], points[start:]))
    return Change(after / before - 1, found.since)


@lru_cache(maxsize=4096)
def _beyond_chance(points: tuple[Point, ...]) -> Change | None:
    """Two tests, each with half of the chance of a false alarm: a steady trend, and a step after the first launches."""
    trend = drift([point.value for point in points], [point.when for point in points])
    if trend is not None and trend.p_value <= _FALSE_ALARM / 2 and abs(trend.relative) > _LEAST:
        return Change(trend.relative)
    return _step(points)


def _step(points: Sequence[Point]) -> Change | None:
    """The clearest of the steps between all launches before a moment and all after it (Student's, Bonferroni's).

    Later ones count that were launched as the first were: a warm launch may differ from a plain one. Of several, the
    one furthest from the others is left out for a second look, since a single odd launch would hide any step.
    """
    first = [point for point in points if point.is_first]
    kinds = {point.kind for point in first}
    later = [point for point in points if not point.is_first and kinds == {point.kind}]
    looks = [later, *([_without_the_oddest(later)] if len(later) >= _ENOUGH_TO_BE_ODD else [])]
    confidence = 1 - _FALSE_ALARM / 2 / max(1, sum(map(len, looks)))
    found: list[tuple[float, Change]] = []
    for some in looks:
        for place, since in enumerate(some):
            before, after = ([point.value for point in side] for side in ((*first, *some[:place]), some[place:]))
            step = pooled_ratio_interval(after, before, confidence)
            if step is not None and not step.low <= 0 <= step.high and abs(step.center) > _LEAST:
                clear = min(abs(math.log1p(step.low)), abs(math.log1p(step.high)))
                found.append((clear, Change(step.center, since.trial)))
    return max(found, key=lambda one: one[0])[1] if found else None


def _without_the_oddest(points: Sequence[Point]) -> list[Point]:
    middle = statistics.median(point.value for point in points)
    odd = max(points, key=lambda point: abs(math.log(point.value / middle)))
    return [point for point in points if point is not odd]
