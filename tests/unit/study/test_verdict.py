"""What the search hears of a launch: each objective at its own load, with its error."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support import records

from tuner.domain.load import LoadPoint
from tuner.domain.measurement import LevelResult, Measured, MeasuredInPart, Measurement, Metric, MetricAt
from tuner.errors import InternalError
from tuner.search.base import Partial, Scored
from tuner.study.verdict import sound, verdict_of, violations

SPACE = records.rates_space()
LEVELS = (records.level(1, 60.0), records.level(5, 250.0), records.at_rate(1, 50.0), records.at_rate(5, 450.0))


def scored(*levels: LevelResult) -> Scored:
    baseline = {MetricAt(Metric.TTFT_P99_MS, LoadPoint(rate=1)): 40.0}
    report = records.measured_report(outcome=Measured(levels, simulated=True))
    found = verdict_of(SPACE, report, baseline)
    assert isinstance(found, Scored)
    return found


def test_a_level_and_a_rate_of_the_same_number_are_not_mistaken_for_each_other() -> None:
    found = scored(*LEVELS)
    assert found.values == (60.0, 450.0)
    assert found.metrics["output_tok_s@1"] == 60.0
    assert found.metrics["output_tok_s@1/s"] == 640.0
    assert len(found.metrics) == 8


def test_limits_at_a_rate_are_absolute_or_against_the_baseline_at_that_rate() -> None:
    broken = scored(*LEVELS).violations
    assert broken == {"ttft_p99_ms@5/s max": pytest.approx(-0.1), "ttft_p99_ms@1/s max": pytest.approx(-10 / 60)}


@pytest.mark.parametrize("order", [1, -1])
def test_of_an_absolute_and_a_relative_bound_on_the_same_metric_both_must_be_kept(order: int) -> None:
    bounds = ({"max": 50}, {"max_of_baseline": 1.5})[::order]
    limits = [{"metric": "ttft_p99_ms", "rate": 1, **bound} for bound in bounds]
    space = SPACE.model_validate({**SPACE.model_dump(exclude={"limits"}, exclude_defaults=True), "limits": limits})
    measured = Measured(LEVELS, simulated=True)
    broken = violations(space.limits, measured.value, {MetricAt(Metric.TTFT_P99_MS, LoadPoint(rate=1)): 20.0})
    assert broken == {"ttft_p99_ms@1/s max": pytest.approx(50 / 30 - 1)}


def test_a_launch_that_did_not_measure_an_objectives_rate_is_a_defect() -> None:
    with pytest.raises(InternalError, match="measured no ttft_p99_ms at 5 req/s"):
        scored(*LEVELS[:3])


def test_a_launch_cut_short_before_its_rates_tells_the_level_only() -> None:
    part = MeasuredInPart(LEVELS[:2], simulated=True, reason="beaten")
    found = verdict_of(SPACE, records.measured_report(outcome=part), {})
    assert isinstance(found, Partial)
    assert found.values == (60.0, None)


def test_what_is_no_number_is_told_with_its_load() -> None:
    odd = records.at_rate(5, math.nan)
    failure = sound(records.measured_report(outcome=Measured((odd,), simulated=True))).outcome
    assert failure.evidence == ("ttft_p99_ms at 5 req/s: nan",)  # type: ignore[union-attr]


@pytest.mark.parametrize(("repeats", "factor"), [(1, 1.96), (2, 12.706), (5, 2.776)])
def test_the_error_of_a_value_allows_for_how_few_repeats_its_interval_rests_on(repeats: int, factor: float) -> None:
    """Two repeats make a very wide interval of a small scatter."""
    error = 0.03
    half = math.exp(factor * error)
    row = Measurement(Metric.OUTPUT_TOK_S, LoadPoint(level=1), (60.0,) * repeats, 60.0, 60.0 / half, 60.0 * half)
    found = scored(replace(LEVELS[0], measurements=(row,)), *LEVELS[1:])
    assert found.spread[0] == pytest.approx(60.0 * error, rel=1e-3)
    assert found.spread[1] is None
