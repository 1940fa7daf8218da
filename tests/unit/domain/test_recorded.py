"""What a script remembers of its measurement, and when a new one is as good."""

from __future__ import annotations

import pytest

from tuner.domain.measurement import Metric
from tuner.domain.recorded import MARK, Recorded, RecordedNumber, read_recorded
from tuner.domain.workload import Workload
from tuner.errors import UserError


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


def test_every_length_of_the_workload_is_written_out_since_defaults_may_change() -> None:
    assert '"output_tokens": 128' in recorded().line


@pytest.mark.parametrize("text", ["#!/bin/bash\n", f"{MARK}no JSON\n", f'{MARK}{{"version": 2}}\n'])
def test_a_script_without_a_record_of_this_version_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"serve\.sh"):
        read_recorded(text, "serve.sh")


def test_a_rate_holds_down_to_the_tolerance_or_its_own_interval() -> None:
    number = RecordedNumber(metric=Metric.OUTPUT_TOK_S, level=1, center=100.0, low=90.0, high=110.0)
    assert number.holds(90.0, 0.05)
    assert not number.holds(89.9, 0.05)
    assert number.holds(80.0, 0.2)
    assert number.holds(150.0, 0.05)


def test_a_latency_holds_up_to_the_tolerance() -> None:
    number = RecordedNumber(metric=Metric.TTFT_P99_MS, level=1, center=100.0, low=99.0, high=101.0)
    assert number.holds(105.0, 0.05)
    assert not number.holds(105.1, 0.05)
    assert number.holds(10.0, 0.05)
