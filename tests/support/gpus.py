"""A GPU driver that a test plays, and a clock that passes while somebody sleeps."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.trial.gpu import GpuHolder, GpuState


class Driver:
    """Memory in use (MiB) on every GPU at each question, one number after the other; the last one stays."""

    def __init__(self, *used: int, holders: Sequence[int] = ()) -> None:
        self.used = list(used) or [600]
        self.holders = list(holders)

    def states(self, indices: Sequence[int]) -> tuple[GpuState, ...]:
        used = self.used.pop(0) if len(self.used) > 1 else self.used[0]
        holders = tuple(GpuHolder(pid, None) for pid in self.holders)
        return tuple(GpuState(index, f"GPU-{index}", "fake", used, 140_000, None, holders) for index in indices)


class FakeTime:
    """Passes while somebody sleeps, or is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
