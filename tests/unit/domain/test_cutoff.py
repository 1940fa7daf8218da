"""When a launch may end before its last loads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.scripted import measured

from tuner.domain.load import LoadPoint
from tuner.domain.measurement import LevelResult, Metric, MetricAt
from tuner.domain.trial import Cutoff, CutoffBound

ALONE = CutoffBound(MetricAt(Metric.OUTPUT_TOK_S, LoadPoint(level=1)), 40.0)
LOADED = CutoffBound(MetricAt(Metric.OUTPUT_TOK_S, LoadPoint(level=16)), 300.0)


def levels(values: dict[int, float]) -> tuple[LevelResult, ...]:
    return measured(values).levels


def test_a_value_at_its_bound_is_not_beaten() -> None:
    assert not Cutoff(3, (ALONE,)).beats(levels({1: 40.0}))
    assert Cutoff(3, (ALONE,)).beats(levels({1: 39.9}))


def test_every_bound_must_be_missed() -> None:
    both = Cutoff(3, (ALONE, LOADED))
    assert both.beats(levels({1: 30.0, 16: 200.0}))
    assert not both.beats(levels({1: 30.0, 16: 400.0}))


def test_what_was_not_measured_yet_misses_nothing() -> None:
    assert not Cutoff(3, (ALONE, LOADED)).beats(levels({1: 30.0}))
    assert not Cutoff(3, (ALONE,)).beats(())
    assert not Cutoff(3, ()).beats(levels({1: 30.0}))


@pytest.mark.parametrize(("value", "beaten"), [(9.0, False), (12.0, True)])
def test_of_a_latency_the_larger_value_is_the_worse_one(value: float, beaten: bool) -> None:
    (level,) = levels({1: value})
    rows = tuple(replace(row, metric=Metric.TTFT_P50_MS) for row in level.measurements)
    slow = Cutoff(3, (CutoffBound(MetricAt(Metric.TTFT_P50_MS, LoadPoint(level=1)), 10.0),))
    assert slow.beats([replace(level, measurements=rows)]) is beaten


def test_a_bound_at_a_level_says_nothing_of_a_rate_of_that_number() -> None:
    (level,) = levels({1: 30.0})
    rate = LoadPoint(rate=1)
    arrivals = replace(level, load=rate, measurements=tuple(replace(row, load=rate) for row in level.measurements))
    assert not Cutoff(3, (ALONE,)).beats([arrivals])
    assert Cutoff(3, (CutoffBound(MetricAt(Metric.OUTPUT_TOK_S, rate), 40.0),)).beats([arrivals])
