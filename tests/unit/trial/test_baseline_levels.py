"""What the baseline measures, at any time of a study."""

from __future__ import annotations

import math

import pytest
from support import records

from tuner.domain.load import LoadPoint
from tuner.domain.measurement import Measured, Metric, MetricAt
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Purpose
from tuner.trial.baseline_levels import BaselineLevels, wanted_metrics

SPACE = records.rates_space()
SPEED = MetricAt(Metric.OUTPUT_TOK_S, LoadPoint(level=1))
ALONE = MetricAt(Metric.TTFT_P99_MS, LoadPoint(rate=1))
LOADED = MetricAt(Metric.TTFT_P99_MS, LoadPoint(rate=5))
STEADY = (100.0, 101.0, 99.0)


def launch(
    when: float, speed: float, purpose: Purpose = Purpose.BASELINE, *, alone: float = 50.0, loaded: float = 450.0
) -> AttemptRecord:
    levels = (records.level(1, speed), records.at_rate(1, alone), records.at_rate(5, loaded))
    report = records.measured_report(outcome=Measured(levels, simulated=True))
    return records.attempt(int(when), records.candidate(), report, purpose=purpose, started_at=when)


def slower(*later: tuple[float, float]) -> BaselineLevels:
    first = [launch(when, speed) for when, speed in enumerate(STEADY)]
    return BaselineLevels(SPACE, [*first, *(launch(when, speed, Purpose.SENTINEL) for when, speed in later)])


def test_every_metric_at_every_load_is_wanted_once() -> None:
    assert wanted_metrics(SPACE) == (SPEED, LOADED, ALONE)


def test_without_drift_a_baseline_is_the_median_of_its_launches_at_the_loads_asked_for() -> None:
    times = (400.0, 500.0, 450.0)
    levels = BaselineLevels(SPACE, [launch(when, 60.0, loaded=loaded) for when, loaded in enumerate(times)])
    expected = {SPEED: 60.0, LOADED: 450.0, ALONE: 50.0}
    assert levels.at(0.0) == levels.at(math.inf) == expected
    assert levels.around(1.0) == (expected,)
    assert not levels.is_drifting
    assert levels.doubt(SPEED, 1.0) == 0.0


def test_launches_within_what_the_first_ones_differ_by_are_no_drift() -> None:
    levels = slower((20.0, 98.7), (30.0, 101.1))
    assert not levels.is_drifting
    assert levels.at(25.0)[SPEED] == levels.at(0.0)[SPEED] == 100.0


def test_once_the_machine_is_slower_its_baseline_is_the_one_of_the_time_asked_for() -> None:
    levels = slower((20.0, 100.0), (30.0, 70.0), (40.0, 70.0))
    assert levels.is_drifting
    assert levels.at(1.0)[SPEED] == pytest.approx(math.exp(sum(map(math.log, STEADY)) / 3))
    assert levels.at(20.0)[SPEED] == pytest.approx(100.0, rel=0.001)
    assert levels.at(25.0)[SPEED] == pytest.approx(math.sqrt(100.0 * 70.0), rel=0.001), "halfway, on a scale of factors"
    assert levels.at(35.0)[SPEED] == levels.at(math.inf)[SPEED] == pytest.approx(70.0)
    assert levels.at(35.0)[LOADED] == pytest.approx(450.0)


def test_between_two_launches_that_differ_nobody_knows_when_the_change_came() -> None:
    levels = slower((20.0, 100.0), (30.0, 70.0), (40.0, 70.0))
    assert [found[SPEED] for found in levels.around(25.0)] == pytest.approx([100.0, 70.0], rel=0.001)
    assert all(found[SPEED] == pytest.approx(70.0) for found in levels.around(45.0))
    noise = levels.doubt(SPEED, 35.0)
    assert noise == pytest.approx(0.01, rel=0.01), "how the first launches scatter"
    assert levels.doubt(SPEED, 25.0) == pytest.approx(math.hypot(noise, math.log(100 / 70) / math.sqrt(12)), rel=0.001)


def test_one_launch_moves_nothing_until_another_agrees_but_a_limit_may_be_kept_by_it() -> None:
    levels = slower((20.0, 70.0))
    assert levels.is_drifting
    assert levels.at(25.0)[SPEED] == levels.at(0.0)[SPEED] == pytest.approx(100.0, rel=0.001)
    assert {round(found[SPEED]) for found in levels.around(25.0)} == {100, 70}
    assert slower((20.0, 70.0), (30.0, 71.0)).at(25.0)[SPEED] == pytest.approx(71.0, rel=0.02)


def test_a_single_odd_launch_neither_hides_a_step_nor_moves_the_level() -> None:
    levels = slower((20.0, 100.0), (30.0, 70.0), (40.0, 30.0), (50.0, 70.5), (60.0, 69.5))
    assert levels.is_drifting
    assert levels.at(40.0)[SPEED] == pytest.approx(70.0, rel=0.01)
    assert not slower((20.0, 100.0), (30.0, 60.0), (40.0, 101.0), (50.0, 99.5)).is_drifting


def test_a_steady_loss_is_followed_to_its_end() -> None:
    levels = slower((20.0, 95.0), (30.0, 90.0), (40.0, 85.5), (50.0, 80.0))
    assert levels.at(35.0)[SPEED] == pytest.approx(87.7, rel=0.01)
    assert levels.at(math.inf)[SPEED] == pytest.approx(80.0, rel=0.01)


def test_a_metric_whose_noise_hides_the_change_follows_its_own_launches_as_well() -> None:
    first = [launch(when, 100.0 + when, alone=50 + 30 * when) for when in (0.0, 1.0, 2.0)]
    later = [launch(when, 70.0, Purpose.SENTINEL, alone=140.0) for when in (20.0, 30.0, 40.0)]
    levels = BaselineLevels(SPACE, [*first, *later])
    assert levels.at(math.inf)[ALONE] == pytest.approx(140.0)


def test_limits_that_follow_the_baseline_are_named_and_absolute_ones_never_follow_it() -> None:
    first = [launch(when, 60.0, alone=50 + when / 10, loaded=400 + when) for when in (0.0, 1.0, 2.0)]
    later = [launch(when, 60.0, Purpose.SENTINEL, alone=80.0, loaded=600.0) for when in (20.0, 30.0)]
    levels = BaselineLevels(SPACE, [*first, *later])
    assert levels.is_drifting
    assert levels.limits_of_their_time == {"ttft_p99_ms@1/s max"}


def test_a_baseline_that_was_launched_at_the_start_only_tells_nothing_of_later_times() -> None:
    levels = BaselineLevels(SPACE, [launch(when, 100.0 - 5 * when) for when in range(6)])
    assert not levels.is_drifting
