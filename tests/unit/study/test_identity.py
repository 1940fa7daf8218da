"""A study goes on only where its launches can be compared."""

from __future__ import annotations

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
    refuse_other_machine([launch()], {**MACHINE, "hostname": "b"}, {"vllm": "0.32.0"})


def test_a_study_without_measurements_may_go_on_anywhere() -> None:
    assert machine_changes([], MACHINE, {"vllm": "0.1"}) == {}


def test_another_driver_is_refused_by_name() -> None:
    with pytest.raises(MachineUnfit, match=r"driver: 590\.44 then, 591 here") as refused:
        refuse_other_machine([launch()], {**MACHINE, "driver": "591"}, {})
    assert "--other-machine" in str(refused.value.hint)


def test_another_engine_version_is_refused_too_unless_it_is_unknown() -> None:
    assert machine_changes([launch()], MACHINE, {"vllm": "0.33.0"}) == {"vllm version": ("0.32.0", "0.33.0")}
    assert machine_changes([launch()], MACHINE, {"vllm": None, "sglang": "0.5.23"}) == {}
