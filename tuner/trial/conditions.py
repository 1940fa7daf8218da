"""Under what conditions a launch was measured: clocks, temperature and power of its GPUs, and what slowed them down."""

from __future__ import annotations

import statistics
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

_EVERY_S = 1.0

# Bits of NVML's clock event reasons (nvml.h, "Clocks Event Reasons"); the others are no slow-down.
_REASONS = {
    0x04: "power_cap",
    0x08: "hardware_slowdown",
    0x20: "thermal_software",
    0x40: "thermal_hardware",
    0x80: "power_brake",
}
POWER_CAP = "power_cap"
"""A GPU at its power limit: usual under full load, and no sign of a fault."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One look at one GPU: SM clock in MHz, temperature in °C, power in W; None where the driver does not tell."""

    index: int
    clock_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    slowed_by: frozenset[str] = frozenset()


class GpuSensors(Protocol):
    """What watching needs from the driver; tests use a fake."""

    def read(self, indices: Sequence[int]) -> tuple[GpuReading, ...]:
        """The present readings of some GPUs, in the order asked."""
        ...


class NvmlSensors:
    """Reads through NVML, which the caller has initialised."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    def read(self, indices: Sequence[int]) -> tuple[GpuReading, ...]:
        """The present readings of some GPUs, in the order asked."""
        return tuple(self._reading(index) for index in indices)

    def _reading(self, index: int) -> GpuReading:
        nvml = self._nvml
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        power = self._ask(nvml.nvmlDeviceGetPowerUsage, device)
        reasons = self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, device) or 0
        return GpuReading(
            index=index,
            clock_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, device, nvml.NVML_CLOCK_SM),
            temperature_c=self._ask(nvml.nvmlDeviceGetTemperature, device, nvml.NVML_TEMPERATURE_GPU),
            power_w=None if power is None else power / 1000,
            slowed_by=frozenset(name for bit, name in _REASONS.items() if reasons & bit),
        )

    def _ask(self, question: Any, *arguments: object) -> int | None:
        try:
            return int(question(*arguments))
        except self._nvml.NVMLError:
            return None


class ConditionWatch:
    """Looks once a second, in a thread of its own, while the `with` block runs; does nothing without sensors or GPUs.

    A look takes well under a millisecond per GPU, on a core that measuring does not need.
    """

    def __init__(self, sensors: GpuSensors | None, gpus: Sequence[int], *, every_s: float = _EVERY_S) -> None:
        self._sensors = sensors
        self._gpus = tuple(gpus)
        self._every_s = every_s
        self._readings: list[GpuReading] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="gpu-conditions", daemon=True)

    def __enter__(self) -> Self:
        if self._sensors is not None and self._gpus:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _look(self) -> None:
        assert self._sensors is not None
        while True:
            self._readings += self._sensors.read(self._gpus)
            if self._over.wait(self._every_s):
                return

    def summary(self) -> dict[str, str]:
        """The readings as short texts: `gpu_clock_mhz`, `gpu_temperature_c`, `gpu_power_w` (median and range over GPUs
        and time) and `gpu_slowed_by` (reason and share of the looks that saw it)."""
        if not self._readings:
            return {}
        series: dict[str, list[float]] = {
            "gpu_clock_mhz": [float(r.clock_mhz) for r in self._readings if r.clock_mhz is not None],
            "gpu_temperature_c": [float(r.temperature_c) for r in self._readings if r.temperature_c is not None],
            "gpu_power_w": [r.power_w for r in self._readings if r.power_w is not None],
        }
        found = {
            name: f"{statistics.median(values):.0f} ({min(values):.0f}–{max(values):.0f})"
            for name, values in series.items()
            if values
        }
        seen = Counter(reason for reading in self._readings for reason in reading.slowed_by)
        total = len(self._readings)
        found["gpu_slowed_by"] = ", ".join(f"{name} {count / total:.0%}" for name, count in seen.items()) or "nothing"
        return found
