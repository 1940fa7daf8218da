"""From what a launch measured to what the search hears."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tuner.domain.measurement import Measured, MeasuredInPart, Measurement, MetricAt
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.space import Limit, Space
from tuner.domain.trial import TrialReport
from tuner.errors import InternalError
from tuner.search.base import Infeasible, Partial, Scored, Verdict
from tuner.trial.statistics import CONFIDENCE, t_quantile

_NORMAL = 1.96
"""Half-width of a normal 95 % interval in standard errors."""


def violations(
    limits: Sequence[Limit], measured: Callable[[MetricAt], float | None], *baselines: Mapping[MetricAt, float]
) -> dict[str, float]:
    """Limit → how far it is broken, as a share of the bound; ≤ 0 keeps it. An unmeasured metric breaks its limit.

    Args:
        limits: of the space.
        measured: what a launch measured of a metric.
        baselines: what the baseline measures, as many as it may be (`BaselineLevels.around`); the kindest counts.
    """
    found: dict[str, float] = {}
    for limit in limits:
        value = measured(limit.at)
        excess = 1.0 if value is None else min(limit.violation(value, base.get(limit.at)) for base in baselines)
        # An absolute bound and one against the baseline have the same label: the worse of them counts.
        found[limit.label] = max(excess, found.get(limit.label, excess))
    return found


def _standard_error(row: Measurement | None) -> float | None:
    """Standard error from a 95 % interval of the logarithm, in the metric's unit; None without an interval.

    Half the width over Student's factor for as many repeats: that of two is 12.7, and says nothing about their scatter.
    """
    if row is None or row.low is None or row.high is None or row.low <= 0:
        return None
    factor = t_quantile(0.5 + CONFIDENCE / 2, len(row.repeats) - 1) if len(row.repeats) > 1 else _NORMAL
    return row.center * math.log(row.high / row.low) / (2 * factor)


def _rows(measured: Measured) -> Mapping[MetricAt, Measurement]:
    return {row.at: row for level in measured.levels for row in level.measurements}


def sound(report: TrialReport) -> TrialReport:
    """The report itself, unless a metric of it is no number: then nothing of the launch can be compared."""
    outcome = report.outcome
    if isinstance(outcome, Failure):
        return report
    odd = [row for level in outcome.levels for row in level.measurements if not math.isfinite(row.center)]
    if not odd:
        return report
    lines = tuple(f"{row.at}: {row.center}" for row in odd)
    return replace(
        report, outcome=Failure(FailureClass.SHORT_OUTPUT, Phase.SERVING, lines, detail="a metric is no number")
    )


def verdict_of(space: Space, report: TrialReport, *baselines: Mapping[MetricAt, float]) -> Verdict:
    """What the search is told about one launch.

    Args:
        space: of the study.
        report: of the launch.
        baselines: see `violations`.

    Raises:
        InternalError: when a measured launch lacks an objective's metric.
    """
    seconds = max(0.0, report.finished_at - report.started_at)
    if isinstance(report.outcome, Failure):
        return Infeasible(report.outcome.failure_class, seconds)
    if isinstance(report.outcome, MeasuredInPart):
        part = report.outcome
        return Partial(tuple(part.value(goal.at) for goal in space.goals), part.reason, seconds)
    rows = _rows(report.outcome)
    values = []
    for goal in space.goals:
        row = rows.get(goal.at)
        if row is None:
            raise InternalError(f"the launch measured no {goal.at}")
        values.append(row.center)
    return Scored(
        values=tuple(values),
        violations=violations(space.limits, report.outcome.value, *baselines),
        spread=tuple(_standard_error(rows.get(goal.at)) for goal in space.goals),
        metrics={at.label: row.center for at, row in rows.items()},
        seconds=seconds,
    )
