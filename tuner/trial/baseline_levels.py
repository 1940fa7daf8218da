"""What a study's baseline measures, at any time of the study: the ruler that limits are laid on.

As long as nothing shows that the machine became faster or slower, that is the median of the baseline's launches. Once
two tests say that it did, it is the level of the time asked for, on straight lines (of logarithms) between the
baseline's launches: what was launched on a slower machine is compared with the baseline on that machine.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.domain.measurement import MetricAt
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import BASELINE_PURPOSES, Purpose
from tuner.trial.statistics import pooled_ratio_interval
from tuner.trial.trend import drift

_FALSE_ALARM = 0.05
_LEAST = 0.02
"""A smaller change is of no consequence."""


@dataclass(frozen=True, slots=True)
class Change:
    """How a baseline changed: by which share, and from which launch on; None where it did so steadily."""

    share: float
    since: AttemptRecord | None = None


def change_of(launches: Sequence[AttemptRecord], at: MetricAt) -> Change | None:
    """How launches of one configuration changed in a metric, where that is beyond chance and more than 2 %.

    Two tests, each with half of the chance of a false alarm: a steady trend over all of them, and a step at some moment
    after the first ones (`Purpose.BASELINE`).
    """
    points = _points(launches, at)
    trend = drift([value for _, value in points], [when for when, _ in points])
    if trend is not None and trend.p_value <= _FALSE_ALARM / 2 and abs(trend.relative) > _LEAST:
        return Change(trend.relative)
    return _step(launches, at)


def _step(launches: Sequence[AttemptRecord], at: MetricAt) -> Change | None:
    """The clearest of the steps between all launches before a moment and all after it (Student's, Bonferroni's).

    Later ones count that were launched as the first were: a warm launch may differ from a plain one.
    """
    positive = [a for a in launches if (value := a.value(at)) is not None and value > 0]
    first = [a for a in positive if a.purpose is Purpose.BASELINE]
    kinds = {a.report.kind for a in first if a.report is not None}
    later = [a for a in positive if a not in first and a.report is not None and kinds == {a.report.kind}]
    found: list[tuple[float, Change]] = []
    for place, since in enumerate(later):
        before, after = ([v for _, v in _points(group, at)] for group in ((*first, *later[:place]), later[place:]))
        step = pooled_ratio_interval(after, before, 1 - _FALSE_ALARM / 2 / len(later))
        if step is not None and not step.low <= 0 <= step.high and abs(step.center) > _LEAST:
            found.append((min(abs(math.log1p(step.low)), abs(math.log1p(step.high))), Change(step.center, since)))
    return max(found, key=lambda one: one[0])[1] if found else None


def wanted_metrics(space: Space) -> tuple[MetricAt, ...]:
    """Every metric that objectives or limits need, without repetition."""
    return tuple(dict.fromkeys(wanted.at for wanted in (*space.goals, *space.limits)))


class BaselineLevels:
    """The levels of a study's baseline: that of the first engine in the space file.

    Args:
        space: of the study.
        attempts: its launches so far; what they show decides anew each time, and nothing else is remembered.
    """

    def __init__(self, space: Space, attempts: Iterable[AttemptRecord]) -> None:
        self._limits = space.limits
        engine = next(iter(space.engines))
        launches = [a for a in attempts if a.purpose in BASELINE_PURPOSES and a.candidate.engine == engine]
        self._medians: dict[MetricAt, float] = {}
        self._lines: dict[MetricAt, _Line] = {}
        for at in wanted_metrics(space):
            values = [value for a in launches if (value := a.value(at)) is not None]
            if values:
                self._medians[at] = statistics.median(values)
            later = any(a.purpose is not Purpose.BASELINE and a.value(at) is not None for a in launches)
            if later and change_of(launches, at) is not None:
                self._lines[at] = _Line.through(launches, at)

    @property
    def drifting(self) -> frozenset[MetricAt]:
        """Metrics in which the machine became faster or slower."""
        return frozenset(self._lines)

    @property
    def limits_of_their_time(self) -> frozenset[str]:
        """Labels of the limits that are judged by the baseline's level at each launch's time."""
        return frozenset(limit.label for limit in self._limits if limit.is_relative and limit.at in self._lines)

    def at(self, when: float) -> Mapping[MetricAt, float]:
        """Metric → what the baseline measures at a time (seconds since the epoch), in the metric's unit.

        Metrics that no launch of the baseline measured are left out. After the last launch, its level holds.
        """
        return {at: self._level(at, when) for at in self._medians}

    def around(self, when: float) -> tuple[Mapping[MetricAt, float], Mapping[MetricAt, float]]:
        """The same before and after that time: at the baseline's launches next to it.

        Where these differ nobody knows when the change came, so that a limit is broken for sure only against both.
        """
        lines = {at: line.around(when) for at, line in self._lines.items()}
        before, after = ({at: ends[side] for at, ends in lines.items()} for side in (0, 1))
        return {**self._medians, **before}, {**self._medians, **after}

    def _level(self, at: MetricAt, when: float) -> float:
        return self._lines[at].level(when) if at in self._lines else self._medians[at]

    def now(self, at: MetricAt, value: float, when: float) -> float:
        """What a value of that time would be now, in the metric's unit: the same share of the baseline's level."""
        return value * self._level(at, math.inf) / self._level(at, when) if at in self._lines else value

    def doubt(self, at: MetricAt, when: float) -> float:
        """How far the level of a time may be off (standard deviation, as a share); 0 where nothing drifts."""
        return self._lines[at].doubt(when) if at in self._lines else 0.0


@dataclass(frozen=True, slots=True)
class _Line:
    """A baseline's level over time.

    Attributes:
        times: of its corners: the middle of the first launches, then each later one.
        logs: the level's logarithm there.
        deviation: of the first launches' logarithms; 0 for a single one.
    """

    times: tuple[float, ...]
    logs: tuple[float, ...]
    deviation: float

    @classmethod
    def through(cls, launches: Sequence[AttemptRecord], at: MetricAt) -> _Line:
        first = _points([a for a in launches if a.purpose is Purpose.BASELINE], at)
        later = _points([a for a in launches if a.purpose is not Purpose.BASELINE], at)
        logs = [math.log(value) for _, value in first]
        corners = [(when, math.log(value)) for when, value in later]
        if first:
            corners.append((statistics.fmean(when for when, _ in first), statistics.fmean(logs)))
        times, levels = zip(*sorted(corners), strict=True)
        return cls(times, levels, statistics.stdev(logs) if len(logs) > 1 else 0.0)

    def level(self, when: float) -> float:
        after = bisect.bisect_right(self.times, when)
        if after in (0, len(self.times)):
            return self.around(when)[0]
        start, end = self.times[after - 1 : after + 1]
        share = (when - start) / (end - start)
        return math.exp((1 - share) * self.logs[after - 1] + share * self.logs[after])

    def around(self, when: float) -> tuple[float, float]:
        """The levels of the corners before and after a time; at the ends, the same twice."""
        after = bisect.bisect_right(self.times, when)
        last = len(self.times) - 1
        return math.exp(self.logs[max(after - 1, 0)]), math.exp(self.logs[min(after, last)])

    def doubt(self, when: float) -> float:
        """A launch's own noise, and between two corners that of a step which may have come at any time between them.

        A step at a moment nobody knows is half of the time above the line and half below: the deviation is that of a
        uniform distribution, its height over √12.
        """
        after = bisect.bisect_right(self.times, when)
        if after == 0:
            return 0.0
        step = self.logs[after] - self.logs[after - 1] if after < len(self.times) else 0.0
        return math.hypot(self.deviation, step / math.sqrt(12))


def _points(launches: Iterable[AttemptRecord], at: MetricAt) -> list[tuple[float, float]]:
    """Time and result of each launch that has one."""
    found = [(a.started_at, a.value(at)) for a in launches]
    return [(when, value) for when, value in found if value is not None and value > 0]
