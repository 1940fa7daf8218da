"""Noise is reproducible, of the stated size, and can be turned off."""

from __future__ import annotations

import math
import statistics

from tuner.engines.simulated.modelfile import Noise, Pair
from tuner.engines.simulated.noise import Drift, LaunchNoise

NOISE = Noise(Pair(0.005, 0.010), launch_common=0.004, within=0.006, within_every_s=4, slow_share=0.0, slow_by=0.06)
STEADY = Drift(0.0, 600, 0.0)


def launch(
    seed: int, *, noise: Noise = NOISE, scale: float = 1.0, drift: Drift = STEADY, now: float = 0.0
) -> LaunchNoise:
    return LaunchNoise(noise, seed=seed, scale=scale, full_batch=128, drift=drift, wall_clock=lambda: now)


def test_equal_seeds_give_equal_launches_and_scale_zero_gives_the_truth() -> None:
    assert launch(1).speed(64, 10) == launch(1).speed(64, 10) != launch(2).speed(64, 10)
    assert launch(1, scale=0).speed(64, 10) == 1.0


def test_launches_vary_by_the_stated_deviation() -> None:
    quiet = Noise(NOISE.launch, NOISE.launch_common, 0.0, 4, 0.0, 0.0)
    for batch, expected in ((1, math.hypot(0.005, 0.004)), (128, math.hypot(0.010, 0.004))):
        found = statistics.stdev(math.log(launch(seed, noise=quiet).speed(batch, 0)) for seed in range(2000))
        assert 0.9 < found / expected < 1.1


def test_a_moment_lasts_as_long_as_stated() -> None:
    one = launch(3)
    assert one.speed(1, 0.5) == one.speed(1, 3.9) != one.speed(1, 4.1)


def test_some_launches_are_slow() -> None:
    rare = Noise(Pair(0, 0), 0.0, 0.0, 4, slow_share=0.1, slow_by=0.06)
    speeds = [launch(seed, noise=rare).speed(1, 0) for seed in range(1000)]
    slow = [speed for speed in speeds if speed < 0.9999]
    assert 60 < len(slow) < 140
    assert min(slow) > math.exp(-0.06) - 1e-9


def test_drift_builds_up_over_wall_time_and_then_stays() -> None:
    drift = Drift(0.02, 100.0, since=1000.0)
    speeds = [launch(1, scale=0, drift=drift, now=now).speed(1, 0) for now in (900.0, 1000.0, 1050.0, 1100.0, 9000.0)]
    assert [round(speed, 6) for speed in speeds] == [1.0, 1.0, 0.99, 0.98, 0.98]
