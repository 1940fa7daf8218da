"""GPU memory as the driver sees it: the floor before a launch, and whether it is reached again afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from tuner.trial.conditions import NvmlSensors
from tuner.trial.energy import Joules, counts_energy, energy_of

SLACK_MIB = 128
"""How far above its floor a GPU may stay and still count as clean; the driver's own bookkeeping moves this much."""


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A process with memory on a GPU; the id is the driver's, which in a container may be the host's."""

    pid: int
    used_mib: int | None


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU at one moment; memory in MiB, utilization in percent (no sign of life: a stuck collective shows 100)."""

    index: int
    uuid: str
    name: str
    used_mib: int
    total_mib: int
    utilization: int | None = None
    holders: tuple[GpuHolder, ...] = ()


@dataclass(frozen=True, slots=True)
class DirtyGpu:
    """A GPU with more memory in use than without a server of ours; nothing may be launched there until it is back."""

    state: GpuState
    floor_mib: int

    def __str__(self) -> str:
        held = ", ".join(f"pid {holder.pid}" for holder in self.state.holders) or "a process the driver does not name"
        return f"GPU {self.state.index} holds {self.state.used_mib} MiB instead of {self.floor_mib} MiB: {held}"


class GpuProbe(Protocol):
    """What supervision needs from the driver; tests use a fake."""

    def states(self, indices: Sequence[int]) -> tuple[GpuState, ...]:
        """The present state of some GPUs, in the order asked."""
        ...


class NvmlProbe:
    """Asks the NVIDIA driver through NVML."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    @property
    def count(self) -> int:
        """How many GPUs the driver shows."""
        return int(self._nvml.nvmlDeviceGetCount())

    def states(self, indices: Sequence[int]) -> tuple[GpuState, ...]:
        """The present state of some GPUs, in the order asked."""
        return tuple(self._state(index) for index in indices)

    def sensors(self) -> NvmlSensors:
        """The same driver, asked for clocks, temperature and power."""
        return NvmlSensors(self._nvml)

    def energy_of(self, gpus: Sequence[int]) -> AbstractContextManager[Joules | None]:
        """The same driver, asked for energy while a block runs; see `tuner.trial.energy`."""
        return energy_of(self._nvml, gpus)

    def counts_energy(self, gpus: Sequence[int]) -> bool:
        """Whether the driver can say what these GPUs use."""
        return counts_energy(self._nvml, gpus)

    def _state(self, index: int) -> GpuState:
        nvml = self._nvml
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(device)
        try:
            utilization = int(nvml.nvmlDeviceGetUtilizationRates(device).gpu)
        except nvml.NVMLError:
            utilization = None
        try:
            processes = nvml.nvmlDeviceGetComputeRunningProcesses(device)
        except nvml.NVMLError:
            processes = []
        return GpuState(
            index=index,
            uuid=_text(nvml.nvmlDeviceGetUUID(device)),
            name=_text(nvml.nvmlDeviceGetName(device)),
            used_mib=int(memory.used) >> 20,
            total_mib=int(memory.total) >> 20,
            utilization=utilization,
            holders=tuple(
                GpuHolder(int(p.pid), None if p.usedGpuMemory is None else int(p.usedGpuMemory) >> 20)
                for p in processes
            ),
        )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def open_nvml() -> NvmlProbe | None:
    """The driver's probe, or None on a machine without an NVIDIA driver or without GPUs."""
    import pynvml

    try:
        pynvml.nvmlInit()
        probe = NvmlProbe(pynvml)
        return probe if probe.count else None
    except pynvml.NVMLError:
        return None


def memory_floor(probe: GpuProbe, indices: Sequence[int]) -> dict[int, int]:
    """MiB in use on each GPU now, to be compared after the launch."""
    return {state.index: state.used_mib for state in probe.states(indices)}


def above(probe: GpuProbe, floor: Mapping[int, int], slack_mib: int = SLACK_MIB) -> tuple[DirtyGpu, ...]:
    """Those of some GPUs on which more memory is in use than that many MiB and the slack."""
    return tuple(
        DirtyGpu(state, floor[state.index])
        for state in probe.states(sorted(floor))
        if state.used_mib > floor[state.index] + slack_mib
    )


def wait_until_clean(
    probe: GpuProbe,
    floor: Mapping[int, int],
    *,
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[DirtyGpu, ...]:
    """Wait until the memory of every GPU is back at its floor (within `SLACK_MIB`); those that stay above it.

    The driver gives memory back some time after the process is gone, tens of seconds on large GPUs.
    """
    deadline = clock() + timeout_s
    while True:
        dirty = above(probe, floor)
        if not dirty or clock() >= deadline:
            return dirty
        sleep(0.25)
