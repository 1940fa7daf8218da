"""GPU memory before and after a launch, with a driver that the test plays."""

from __future__ import annotations

from types import SimpleNamespace

from support.gpus import Driver, FakeTime

from tuner.trial.gpu import SLACK_MIB, GpuHolder, GpuState, NvmlProbe, memory_floor, wait_until_clean


def wait(driver: Driver, timeout_s: float = 60.0) -> tuple[tuple[int, ...], float]:
    time = FakeTime()
    floor = memory_floor(driver, [0])
    dirty = wait_until_clean(driver, floor, timeout_s=timeout_s, clock=time.clock, sleep=time.sleep)
    return tuple(gpu.state.used_mib for gpu in dirty), time.now


def test_memory_that_comes_back_late_is_waited_for() -> None:
    dirty, waited = wait(Driver(10, 70_000, 70_000, 10))
    assert dirty == ()
    assert waited > 0


def test_memory_that_stays_is_reported_after_the_timeout() -> None:
    dirty, waited = wait(Driver(10, 70_000))
    assert dirty == (70_000,)
    assert waited >= 60


def test_the_floor_is_what_was_in_use_before_and_not_zero() -> None:
    assert wait(Driver(5_000, 5_000 + SLACK_MIB))[0] == ()
    assert wait(Driver(5_000, 5_001 + SLACK_MIB))[0] == (5_001 + SLACK_MIB,)


class Nvml(SimpleNamespace):
    """The few NVML calls that the probe makes, on one GPU; utilization is refused, as in some virtual machines."""

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(used=3 << 20, total=80 << 30)

    def nvmlDeviceGetUtilizationRates(self, device: int) -> SimpleNamespace:
        raise self.NVMLError

    def nvmlDeviceGetComputeRunningProcesses(self, device: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=42, usedGpuMemory=2 << 20), SimpleNamespace(pid=43, usedGpuMemory=None)]

    def nvmlDeviceGetUUID(self, device: int) -> str:
        return "GPU-x"

    def nvmlDeviceGetName(self, device: int) -> bytes:
        return b"NVIDIA Test"


def test_the_driver_is_read_in_mebibytes_and_may_refuse_details() -> None:
    probe = NvmlProbe(Nvml())
    assert probe.count == 1
    holders = (GpuHolder(42, 2), GpuHolder(43, None))
    assert probe.states([0]) == (GpuState(0, "GPU-x", "NVIDIA Test", 3, 81_920, None, holders),)
