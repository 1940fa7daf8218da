"""What a study's baseline measures, at any time of the study: the ruler that limits are laid on.

As long as nothing shows that the machine became faster or slower, that is the median of the baseline's launches. Once
two tests say that it did, it is the level of the time asked for, on straight lines (of logarithms) between running
medians of the baseline's launches: what was launched on a slower machine is compared with the baseline on that machine.
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
from tuner.trial.change import change_of, points_of


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
        known = {at: [value for a in launches if (value := a.value(at)) is not None] for at in wanted_metrics(space)}
        self._medians = {at: statistics.median(values) for at, values in known.items() if values}
        again = any(a.purpose is not Purpose.BASELINE for a in launches)
        drifts = again and any(change_of(points_of(launches, at)) is not None for at in self._medians)
        # It is one machine: a metric whose noise hides the change follows its own launches as well.
        self._lines = {at: _Line.through(launches, at) for at in self._medians if drifts and min(known[at]) > 0}

    @property
    def is_drifting(self) -> bool:
        """Whether the machine became faster or slower."""
        return bool(self._lines)

    @property
    def limits_of_their_time(self) -> frozenset[str]:
        """Labels of the limits that are judged by the baseline's level at each launch's time."""
        return frozenset(limit.label for limit in self._limits if limit.is_relative and limit.at in self._lines)

    def at(self, when: float) -> Mapping[MetricAt, float]:
        """Metric → what the baseline measures at a time (seconds since the epoch), in the metric's unit.

        Metrics that no launch of the baseline measured are left out. After the last launch, its level holds.
        """
        return {at: self._level(at, when) for at in self._medians}

    def around(self, when: float) -> tuple[Mapping[MetricAt, float], ...]:
        """The levels that it may be: those next to that time, and that of a last launch that none has confirmed yet.

        Where these differ nobody knows when the change came, so that a limit is broken for sure only against all.
        """
        lines = {at: line.around(when) for at, line in self._lines.items()}
        sides = max(map(len, lines.values()), default=1)
        return tuple(
            {**self._medians, **{at: ends[min(side, len(ends) - 1)] for at, ends in lines.items()}}
            for side in range(sides)
        )

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
        last: logarithm of the last launch itself.
        deviation: of the first launches' logarithms; 0 for a single one.
    """

    times: tuple[float, ...]
    logs: tuple[float, ...]
    last: float
    deviation: float

    @classmethod
    def through(cls, launches: Sequence[AttemptRecord], at: MetricAt) -> _Line:
        points = points_of(launches, at)
        first = [point for point in points if point.is_first]
        logs = [math.log(point.value) for point in first]
        corners = [(point.when, math.log(point.value)) for point in points if not point.is_first]
        if first:
            corners.append((statistics.fmean(point.when for point in first), statistics.fmean(logs)))
        times, levels = zip(*sorted(corners), strict=True)
        return cls(times, _smooth(levels), levels[-1], statistics.stdev(logs) if len(logs) > 1 else 0.0)

    def level(self, when: float) -> float:
        after = bisect.bisect_right(self.times, when)
        if after in (0, len(self.times)):
            return math.exp(self.logs[max(after - 1, 0)])
        start, end = self.times[after - 1 : after + 1]
        share = (when - start) / (end - start)
        return math.exp((1 - share) * self.logs[after - 1] + share * self.logs[after])

    def around(self, when: float) -> tuple[float, ...]:
        """The levels of the corners before and after a time; next to the last corner also that launch's own."""
        after = bisect.bisect_right(self.times, when)
        last = len(self.times) - 1
        own = [self.last] if after >= last else []
        return tuple(map(math.exp, (self.logs[max(after - 1, 0)], self.logs[min(after, last)], *own)))

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


def _smooth(values: Sequence[float]) -> tuple[float, ...]:
    """Running medians of three, the first value as it is: a single odd one moves nothing, steps and trends stay.

    The last is the median of itself, its neighbour, and what the two before it lead to expect (Tukey's end-point rule,
    Exploratory Data Analysis, 1977, chapter 7); of two values, the first stands for both.
    """
    if len(values) < 3:
        return (values[0],) * len(values)
    smooth = [values[0], *(statistics.median(values[place - 1 : place + 2]) for place in range(1, len(values) - 1))]
    expected = 3 * smooth[-1] - 2 * smooth[-2]
    return (*smooth, statistics.median((values[-1], smooth[-1], expected)))
