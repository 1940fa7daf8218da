"""Energy that the GPUs of a trial use, so that a level can say how many tokens a joule gives.

The driver counts energy since it was loaded (`nvmlDeviceGetTotalEnergyConsumption`, millijoules, Volta and newer).
Where it does not, its power readings are added up instead. Only GPUs count: host, fans and power supplies are not seen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_SAMPLE_EVERY_S = 0.1

Joules = Callable[[], float | None]
"""Energy used so far by the GPUs of a trial, counted from any fixed point; None where the driver stops answering."""


def counts_energy(nvml: Any, gpus: Sequence[int]) -> bool:
    """Whether the driver can say what these GPUs use; False without GPUs.

    Args:
        nvml: the module `pynvml`, initialised.
        gpus: device indices.
    """
    return bool(gpus) and (_counters(nvml, gpus) is not None or _power_w(nvml, gpus) is not None)


@contextmanager
def energy_of(nvml: Any, gpus: Sequence[int]) -> Iterator[Joules | None]:
    """A meter for some GPUs while the block runs; None where the driver says nothing about energy.

    Args:
        nvml: the module `pynvml`, initialised.
        gpus: device indices; without any there is no meter.
    """
    if not gpus:
        yield None
    elif _counters(nvml, gpus) is not None:
        yield lambda: _counters(nvml, gpus)
    elif _power_w(nvml, gpus) is not None:
        with _power_samples(nvml, gpus) as joules:
            yield joules
    else:
        yield None


def _counters(nvml: Any, gpus: Sequence[int]) -> float | None:
    try:
        counted = [nvml.nvmlDeviceGetTotalEnergyConsumption(nvml.nvmlDeviceGetHandleByIndex(gpu)) for gpu in gpus]
    except nvml.NVMLError:
        return None
    return float(sum(counted)) / 1000


def _power_w(nvml: Any, gpus: Sequence[int]) -> float | None:
    try:
        drawn = [nvml.nvmlDeviceGetPowerUsage(nvml.nvmlDeviceGetHandleByIndex(gpu)) for gpu in gpus]
    except nvml.NVMLError:
        return None
    return float(sum(drawn)) / 1000


@contextmanager
def _power_samples(nvml: Any, gpus: Sequence[int]) -> Iterator[Joules]:
    """Power readings added up by the trapezoid rule, ten a second, in a thread of their own."""
    used: float | None = 0.0
    over = threading.Event()

    def look() -> None:
        nonlocal used
        before, at = _power_w(nvml, gpus), time.monotonic()
        while used is not None and not over.wait(_SAMPLE_EVERY_S):
            power, now = _power_w(nvml, gpus), time.monotonic()
            used = None if power is None or before is None else used + (power + before) / 2 * (now - at)
            before, at = power, now

    thread = threading.Thread(target=look, name="gpu-power", daemon=True)
    thread.start()
    try:
        yield lambda: used
    finally:
        over.set()
        thread.join()
