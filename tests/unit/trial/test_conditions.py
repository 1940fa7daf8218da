"""Clocks, temperature and power while measuring, through a fake driver."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace

from tuner.trial.conditions import ConditionWatch, GpuReading, NvmlSensors


class Sensors:
    """Two looks: cool first, then slowed down by heat."""

    def __init__(self) -> None:
        self.looks = 0

    def read(self, indices: Sequence[int]) -> tuple[GpuReading, ...]:
        self.looks += 1
        hot = self.looks > 1
        slowed = frozenset({"thermal_software"}) if hot else frozenset()
        return tuple(GpuReading(i, 1200 if hot else 1980, 85 if hot else 60, 400.0, slowed) for i in indices)


def test_what_was_seen_is_summed_up_with_its_range_and_what_slowed_it_down() -> None:
    sensors = Sensors()
    with ConditionWatch(sensors, (0,), every_s=0.01) as watch:
        while sensors.looks < 4:
            time.sleep(0.01)
    found = watch.summary()
    assert found["gpu_clock_mhz"] == "1200 (1200–1980)"
    assert found["gpu_temperature_c"] == "85 (60–85)"
    assert found["gpu_power_w"] == "400 (400–400)"
    assert found["gpu_slowed_by"].startswith("thermal_software ")


def test_a_machine_without_gpus_has_no_conditions() -> None:
    with ConditionWatch(None, (0,)) as watch:
        pass
    assert watch.summary() == {}
    with ConditionWatch(Sensors(), ()) as watch:
        pass
    assert watch.summary() == {}


class NvmlError(Exception):
    pass


def _refuse(*_arguments: object) -> int:
    raise NvmlError


def test_what_the_driver_does_not_tell_is_left_out() -> None:
    nvml = SimpleNamespace(
        NVMLError=NvmlError,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetClockInfo=lambda device, kind: 1755,
        nvmlDeviceGetTemperature=_refuse,
        nvmlDeviceGetPowerUsage=lambda device: 350_500,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda device: 0x20 | 0x04 | 0x01,
    )
    (reading,) = NvmlSensors(nvml).read([0])
    assert reading == GpuReading(0, 1755, None, 350.5, frozenset({"thermal_software", "power_cap"}))
