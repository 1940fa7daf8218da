"""What makes two launches of the same settings, and two moments of one launch, differ."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from tuner.engines.simulated.modelfile import Noise


@dataclass(frozen=True, slots=True)
class Drift:
    """A slow-down that builds up linearly over wall time and then stays, as heat does.

    Attributes:
        share: final slow-down, e.g. 0.02.
        over_s: wall seconds until it is reached.
        since: Unix time at which it began; the same for all launches that share a machine.
    """

    share: float
    over_s: float
    since: float

    def factor(self, now: float) -> float:
        """Speed at Unix time `now`, relative to a cool machine."""
        if self.share == 0.0:
            return 1.0
        return 1.0 - self.share * min(1.0, max(0.0, (now - self.since) / self.over_s))


class LaunchNoise:
    """The speed of one launch relative to the truth.

    Args:
        noise: standard deviations, from the model file.
        seed: equal seeds give equal launches.
        scale: multiplies every deviation; 0 gives the truth.
        full_batch: batch size to which `full` deviations belong.
        drift: slow-down over wall time.
        wall_clock: Unix time, seconds.
    """

    def __init__(
        self, noise: Noise, *, seed: int, scale: float, full_batch: int, drift: Drift, wall_clock: Callable[[], float]
    ) -> None:
        draw = random.Random(f"launch {seed}")  # noqa: S311 - simulation, no secret
        common = draw.gauss(0.0, noise.launch_common)
        slow = noise.slow_by * draw.random() if draw.random() < noise.slow_share else 0.0
        self._alone = scale * (draw.gauss(0.0, noise.launch.alone) + common - slow)
        self._full = scale * (draw.gauss(0.0, noise.launch.full) + common - slow)
        self._within, self._every_s = scale * noise.within, noise.within_every_s
        self._seed, self._full_batch, self._drift, self._wall_clock = seed, full_batch, drift, wall_clock
        self._slot, self._slot_value = -1, 0.0

    def speed(self, batch: int, at_s: float) -> float:
        """Factor on speed for a batch at `at_s` simulated seconds after start."""
        share = min(1.0, (batch - 1) / (self._full_batch - 1))
        launch = self._alone + (self._full - self._alone) * share
        return math.exp(launch + self._moment(at_s)) * self._drift.factor(self._wall_clock())

    def _moment(self, at_s: float) -> float:
        slot = int(at_s / self._every_s)
        if slot != self._slot:
            digest = hashlib.blake2b(f"{self._seed} {slot}".encode(), digest_size=8).digest()
            draw = random.Random(digest)  # noqa: S311 - simulation, no secret
            self._slot, self._slot_value = slot, draw.gauss(0.0, self._within) if self._within else 0.0
        return self._slot_value
