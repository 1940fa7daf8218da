"""From a study's launches to its front: launches of one configuration are pooled, and noise is what launches show."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.domain.front import Estimate, Front, Standing
from tuner.domain.load import LoadPoint
from tuner.domain.measurement import Measured, Measurement, Metric, MetricAt, SpreadKind, row_at
from tuner.domain.space import Limit, Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import BASELINE_PURPOSES
from tuner.trial.baseline_levels import BaselineLevels
from tuner.trial.statistics import CONFIDENCE, pooled_scatter, t_quantile

# Below this many degrees of freedom Student's factor (4.3 at two) says more about the sample than about the noise.
_ENOUGH_TO_POOL = 2


@dataclass(frozen=True, slots=True)
class LaunchNoise:
    """Standard deviation of a metric's logarithm from launch to launch, pooled over configurations.

    Assumes that all configurations scatter alike in relative terms; `df` are its degrees of freedom.
    """

    deviation: float
    df: int


def front_of(space: Space, attempts: Sequence[AttemptRecord]) -> Front:
    """The front of a study.

    The baseline that gains and relative limits are reckoned from is that of the space's first engine.
    """
    launches = launches_by_candidate(attempts)
    noise = launch_noise(space, launches)
    first_engine = next(iter(space.engines))
    baseline = next(
        (
            key
            for key, group in launches.items()
            if group[0].candidate.engine == first_engine and any(a.purpose in BASELINE_PURPOSES for a in group)
        ),
        None,
    )
    levels = BaselineLevels(space, attempts)
    reference = [] if baseline is None else launches[baseline]
    standings = [
        Standing(
            trials=tuple(dict.fromkeys(a.trial for a in group)),
            candidate=group[0].candidate,
            values=tuple(_estimate(_rows(group, goal.at), noise.get(goal.at)) for goal in space.goals),
            broken=_broken(space.limits, group, reference, levels),
            of_its_time=levels.limits_of_their_time,
            is_baseline=key == baseline,
            simulated=any(a.simulated for a in group),
        )
        for key, group in launches.items()
        if all(_rows(group, goal.at) for goal in space.goals)
    ]
    starts = {a.candidate.engine: a.candidate for a in attempts if a.purpose in BASELINE_PURPOSES}
    return Front.of(space.goals, standings, starts)


def launches_by_candidate(attempts: Sequence[AttemptRecord]) -> Mapping[str, list[AttemptRecord]]:
    """Fingerprint → the measured launches of that configuration, in the order in which they were made."""
    groups: dict[str, list[AttemptRecord]] = defaultdict(list)
    for attempt in attempts:
        if attempt.measured is not None:
            groups[attempt.candidate.fingerprint].append(attempt)
    return groups


def launch_noise(space: Space, launches: Mapping[str, Sequence[AttemptRecord]]) -> Mapping[MetricAt, LaunchNoise]:
    """What repeated launches of the same configuration tell about each objective's noise."""
    return {goal.at: noise for goal in space.goals if (noise := _pooled_noise(launches, goal.at)) is not None}


def _pooled_noise(launches: Mapping[str, Sequence[AttemptRecord]], at: MetricAt) -> LaunchNoise | None:
    logs = [[math.log(row.center) for row in _rows(group, at) if row.center > 0] for group in launches.values()]
    found, df = pooled_scatter(logs)
    return LaunchNoise(math.sqrt(found), df) if df >= _ENOUGH_TO_POOL else None


def _estimate(
    rows: Sequence[Measurement],
    noise: LaunchNoise | None,
    middle_of: Callable[[Iterable[float]], float] = statistics.median,
) -> Estimate:
    """The middle launch, with an interval from launch-to-launch noise where it is known.

    Else the interval is that from within the launch; of two launches it reaches over both of theirs, since their middle
    may lie in neither.
    """
    center = middle_of(row.center for row in rows)
    if noise is not None and center > 0:
        half = t_quantile(0.5 + CONFIDENCE / 2, noise.df) * noise.deviation / math.sqrt(len(rows))
        low, high = center * math.exp(-half), center * math.exp(half)
        return Estimate(center, low, high, len(rows), SpreadKind.BETWEEN_LAUNCHES)
    if all(row.low is None or row.high is None for row in rows):
        return Estimate(center, None, None, len(rows), rows[0].spread_kind)
    low = min(row.center if row.low is None else row.low for row in rows)
    high = max(row.center if row.high is None else row.high for row in rows)
    return Estimate(center, low, high, len(rows), rows[0].spread_kind)


def estimates_by_load(
    group: Sequence[AttemptRecord], metric: Metric, launches: Mapping[str, Sequence[AttemptRecord]]
) -> Mapping[LoadPoint, Estimate]:
    """Load → estimate (geometric mean) of a metric over some launches of one configuration, in the order of loads.

    Args:
        group: measured launches of the configuration.
        metric: which.
        launches: see `launches_by_candidate`; all configurations together tell the noise from launch to launch.
    """
    loads = sorted({level.load for a in group for level in _measured(a).levels})
    found = {at: rows for at in (MetricAt(metric, load) for load in loads) if (rows := _rows(group, at))}
    return {at.load: _estimate(rows, _pooled_noise(launches, at), geometric_mean) for at, rows in found.items()}


def geometric_mean(values: Iterable[float]) -> float:
    """Of values that scatter by factors; the ratio of two is what comparisons of logarithms find. 0 where one is."""
    known = list(values)
    return statistics.geometric_mean(known) if min(known) > 0 else 0.0


def _broken(
    limits: Sequence[Limit],
    group: Sequence[AttemptRecord],
    reference: Sequence[AttemptRecord],
    levels: BaselineLevels,
) -> dict[str, float]:
    """Limits that the median launch breaks; a metric that was not measured breaks its limit wholly.

    While the machine drifts, launches are compared with the baseline of their time.
    """
    broken: dict[str, float] = {}
    for limit in limits:
        if limit.label in levels.limits_of_their_time:
            excess = _middle_excess(limit, group, levels)
        else:
            own, base = _median(group, limit.at), _median(reference, limit.at)
            excess = 1.0 if own is None else limit.violation(own, base)
        if excess > 0:
            broken[limit.label] = max(excess, broken.get(limit.label, 0.0))
    return broken


def _middle_excess(limit: Limit, group: Sequence[AttemptRecord], levels: BaselineLevels) -> float:
    """How far the middle launch breaks a limit that is laid on the baseline of its time."""
    excesses = [
        min(limit.violation(value, baseline[limit.at]) for baseline in levels.around(a.started_at))
        for a in group
        if (value := a.value(limit.at)) is not None
    ]
    return statistics.median(excesses) if excesses else 1.0


def _median(group: Sequence[AttemptRecord], at: MetricAt) -> float | None:
    centers = [row.center for row in _rows(group, at)]
    return statistics.median(centers) if centers else None


def _rows(group: Sequence[AttemptRecord], at: MetricAt) -> list[Measurement]:
    """One row per launch that measured a metric at a load."""
    return [row for attempt in group if (row := row_at(_measured(attempt).levels, at)) is not None]


def _measured(attempt: AttemptRecord) -> Measured:
    assert attempt.measured is not None
    return attempt.measured
