"""What a script remembers of its measurement, and when a new one is as good."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.domain.measurement import Metric
from tuner.domain.recorded import MARK, Recorded, RecordedNumber, read_recorded
from tuner.domain.workload import Workload
from tuner.errors import UserError
from tuner.trial.statistics import t_quantile


def recorded(study: str = "night") -> Recorded:
    return Recorded(
        study=study,
        trial=7,
        engine="vllm",
        program=("/opt/vllm", "serve"),
        model="m",
        gpus=2,
        simulated=False,
        workload=Workload(levels=(1, 16)),
        numbers=(RecordedNumber(metric=Metric.OUTPUT_TOK_S, level=1, center=90.0),),
        machine={"cpu": "x"},
        versions={},
    )


@pytest.mark.parametrize("study", ["night", "nächt 😀\n# recorded: {}"])
def test_a_script_remembers_its_measurement_in_one_line_of_ascii(study: str) -> None:
    line = recorded(study).line
    assert line.isascii()
    assert "\n" not in line
    assert read_recorded(f"#!/bin/bash\n{line}\nexec x\n", "serve.sh") == recorded(study)


def test_a_number_is_recorded_with_the_load_that_it_was_measured_at() -> None:
    at_rate = RecordedNumber(metric=Metric.TTFT_P99_MS, rate=2.5, center=90.0)
    given = recorded().model_copy(update={"numbers": (*recorded().numbers, at_rate)})
    assert [str(number.load) for number in read_recorded(given.line, "serve.sh").numbers] == ["C=1", "2.5 req/s"]


def test_a_script_from_before_there_were_rates_can_still_be_read() -> None:
    old = recorded().line
    assert '"metric": "output_tok_s", "level": 1, "center": 90.0' in old
    assert '"rate"' not in old
    assert read_recorded(old, "serve.sh") == recorded()


def test_every_length_of_the_workload_is_written_out_since_defaults_may_change() -> None:
    assert '"output_tokens": 128' in recorded().line


@pytest.mark.parametrize("text", ["#!/bin/bash\n", f"{MARK}no JSON\n", f'{MARK}{{"version": 2}}\n'])
def test_a_script_without_a_record_of_this_version_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"serve\.sh"):
        read_recorded(text, "serve.sh")


@pytest.mark.parametrize(
    "change", [('"gpus": 2', '"gpus": -2'), ('"model": "m"', '"model": ""'), ('"/opt/vllm", "serve"', "")]
)
def test_a_record_that_somebody_edited_into_nonsense_is_refused(change: tuple[str, str]) -> None:
    assert change[0] in recorded().line
    with pytest.raises(UserError, match=r"serve\.sh: its record cannot be read"):
        read_recorded(recorded().line.replace(*change), "serve.sh")


def test_a_rate_holds_down_to_the_tolerance_or_what_noise_makes_of_one_more_launch() -> None:
    number = RecordedNumber(metric=Metric.OUTPUT_TOK_S, level=1, center=100.0, low=90.0, high=110.0)
    assert number.worst_allowed(0.05, 1) == pytest.approx(100 * 0.9 ** math.sqrt(2))
    assert number.holds(86.2, 0.05, 1)
    assert not number.holds(86.1, 0.05, 1)
    assert number.holds(80.0, 0.2, 1)
    assert number.holds(150.0, 0.05, 1)
    assert number.worst_allowed(0.05, 1000) == pytest.approx(90.0, rel=1e-3), "many new launches have no noise"


def test_a_latency_holds_up_to_the_tolerance() -> None:
    number = RecordedNumber(metric=Metric.TTFT_P99_MS, level=1, center=100.0, low=99.0, high=101.0)
    assert number.holds(105.0, 0.05, 1)
    assert not number.holds(105.1, 0.05, 1)
    assert number.holds(10.0, 0.05, 1)


@pytest.mark.parametrize(("launches", "again"), [(3, 1), (3, 3), (5, 2)])
def test_what_did_not_change_is_called_worse_in_one_of_forty_cases(launches: int, again: int) -> None:
    chance = np.random.default_rng(1)
    draws, alarms = 4000, 0
    for _ in range(draws):
        old, new = chance.normal(0, 0.1, launches), chance.normal(0, 0.1, again)
        half = t_quantile(0.975, launches - 1) * old.std(ddof=1) / math.sqrt(launches)
        ends = [float(np.exp(old.mean() + side * half)) for side in (-1, 0, 1)]
        number = RecordedNumber(
            metric=Metric.OUTPUT_TOK_S, level=1, low=ends[0], center=ends[1], high=ends[2], launches=launches
        )
        alarms += not number.holds(float(np.exp(new.mean())), 1e-9, again)
    # 2.5 %, as of any value below the lower end of a 95 % interval; 3.3 standard errors about it.
    assert alarms / draws == pytest.approx(0.025, abs=0.008)
