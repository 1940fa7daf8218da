"""Energy of a trial's GPUs, through a driver that the test plays."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from tuner.trial.energy import counts_energy, energy_of


class NvmlError(Exception):
    """What the driver raises for a question that it does not answer."""


def _refuse(_device: int) -> int:
    raise NvmlError


def nvml(**calls: object) -> SimpleNamespace:
    """A driver that refuses everything but what is given."""
    refused = {"nvmlDeviceGetTotalEnergyConsumption": _refuse, "nvmlDeviceGetPowerUsage": _refuse}
    return SimpleNamespace(NVMLError=NvmlError, nvmlDeviceGetHandleByIndex=lambda index: index, **{**refused, **calls})


def test_counters_of_all_gpus_are_added_and_told_in_joules() -> None:
    driver = nvml(nvmlDeviceGetTotalEnergyConsumption=lambda device: 1000 * (device + 1))
    with energy_of(driver, (0, 1)) as joules:
        assert joules is not None
        assert joules() == pytest.approx(3.0)


def test_a_driver_without_counter_has_its_power_added_up() -> None:
    driver = nvml(nvmlDeviceGetPowerUsage=lambda _device: 250_000)
    with energy_of(driver, (0, 1)) as joules:
        assert joules is not None
        began = time.monotonic()
        while (used := joules()) == 0:
            time.sleep(0.01)
        elapsed = time.monotonic() - began
    assert used is not None
    # 500 W for at least one sample's tenth of a second; the first sample may have begun before the clock here.
    assert 500 * 0.09 <= used <= 500 * (elapsed + 0.5)


def test_a_driver_that_stops_answering_gives_no_number() -> None:
    answers = iter([2_000])

    def counted(_device: int) -> int:
        try:
            return next(answers)
        except StopIteration:
            raise NvmlError from None

    with energy_of(nvml(nvmlDeviceGetTotalEnergyConsumption=counted), (0,)) as joules:
        assert joules is not None
        assert joules() is None


def test_power_readings_that_stop_give_no_number() -> None:
    answers = iter([100_000, 100_000])

    def power(_device: int) -> int:
        try:
            return next(answers)
        except StopIteration:
            raise NvmlError from None

    with energy_of(nvml(nvmlDeviceGetPowerUsage=power), (0,)) as joules:
        assert joules is not None
        while joules() is not None:
            time.sleep(0.01)


@pytest.mark.parametrize("gpus", [(), (0,)])
def test_without_gpus_or_answers_there_is_no_meter(gpus: tuple[int, ...]) -> None:
    assert not counts_energy(nvml(), gpus)
    with energy_of(nvml(), gpus) as joules:
        assert joules is None


def test_either_kind_of_answer_counts() -> None:
    assert counts_energy(nvml(nvmlDeviceGetTotalEnergyConsumption=lambda _device: 5), (0,))
    assert counts_energy(nvml(nvmlDeviceGetPowerUsage=lambda _device: 5), (0,))
