"""What a benchmark came to."""

from __future__ import annotations

from dataclasses import replace

from support.scripted import measured

from tuner.domain.load import LoadPoint
from tuner.domain.measurement import Measured, MeasuredInPart, Metric, MetricAt
from tuner.domain.outcome import Failure, FailureClass
from tuner.domain.trial import Cutoff, CutoffBound
from tuner.trial.judging import judged

CUTOFF = Cutoff(7, (CutoffBound(MetricAt(Metric.OUTPUT_TOK_S, LoadPoint(level=1)), 40.0),))


def test_all_levels_are_a_whole_measurement_even_of_a_beaten_launch() -> None:
    levels = measured({1: 30.0, 16: 200.0}).levels
    assert judged(levels, planned=2, cutoffs=[CUTOFF], simulated=True) == Measured(levels, simulated=True)


def test_a_launch_that_was_beaten_early_is_measured_in_part_and_says_by_which_trial() -> None:
    found = judged(measured({1: 30.0}).levels, planned=2, cutoffs=[CUTOFF], simulated=False)
    assert isinstance(found, MeasuredInPart)
    assert "trial 7" in found.reason
    assert "output_tok_s@1" in found.reason
    assert found.value(MetricAt(Metric.OUTPUT_TOK_S, LoadPoint(level=1))) == 30.0
    assert found.value(MetricAt(Metric.OUTPUT_TOK_S, LoadPoint(level=16))) is None


def test_a_request_that_failed_is_a_failure_whatever_was_beaten() -> None:
    (level,) = measured({1: 30.0}).levels
    broken = replace(level, completed=7, errors={"timeout": 1})
    found = judged((broken,), planned=2, cutoffs=[CUTOFF], simulated=False)
    assert isinstance(found, Failure)
    assert found.failure_class is FailureClass.SHORT_OUTPUT
