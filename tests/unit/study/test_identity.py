"""A study goes on only where its launches can be compared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import records

from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Purpose
from tuner.errors import MachineUnfit
from tuner.study.identity import machine_changes, refuse_other_machine

MACHINE = {"driver": "590.44", "gpus": "H200, H200", "hostname": "a"}


def launch(**report: object) -> AttemptRecord:
    measured = records.measured_report(machine=MACHINE, versions={"vllm": "0.32.0"}, **report)
    return records.attempt(0, records.candidate(), measured, purpose=Purpose.BASELINE)


def test_the_same_machine_may_go_on() -> None:
    refuse_other_machine([launch()], {**MACHINE, "hostname": "b"}, {"vllm": {"vllm": "0.32.0"}})


def test_a_study_without_measurements_may_go_on_anywhere() -> None:
    assert machine_changes([], MACHINE, {"vllm": {"vllm": "0.1"}}) == {}


def test_another_driver_is_refused_by_name() -> None:
    with pytest.raises(MachineUnfit, match=r"driver: 590\.44 then, 591 here") as refused:
        refuse_other_machine([launch()], {**MACHINE, "driver": "591"}, {})
    assert "--other-machine" in str(refused.value.hint)


def test_another_engine_version_is_refused_too_unless_it_is_unknown() -> None:
    here = {"vllm": {"vllm": "0.33.0"}}
    assert machine_changes([launch()], MACHINE, here) == {"vllm version": ("0.32.0", "0.33.0")}
    assert machine_changes([launch()], MACHINE, {"vllm": {}, "sglang": {"sglang": "0.5.23"}}) == {}


def test_a_library_that_was_exchanged_beside_the_engine_is_refused_too() -> None:
    measured = launch()
    assert measured.report is not None
    versions = {"vllm": "0.32.0", "nvidia-nccl-cu13": "2.28.9"}
    measured = replace(measured, report=replace(measured.report, versions=versions))
    here = {"vllm": {"vllm": "0.32.0", "nvidia-nccl-cu13": "2.29.7", "triton": "3.5"}}
    changes = machine_changes([measured], MACHINE, here)
    assert changes == {"nvidia-nccl-cu13 version beside vllm": ("2.28.9", "2.29.7")}
