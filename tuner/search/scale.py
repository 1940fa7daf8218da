"""The scale on which the effects of knobs add up.

Where knobs act on different parts of a step, its time is the sum of the parts, and so is the time per token: there the
reciprocal of a speed is additive. Where each knob takes its share of whatever the others leave, the logarithm is. Both
are power transformations (Box & Cox 1964) of the same data, and the data say which of them they are like.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tuner.search.kernels import Array

BENDS = (0.0, -1.0)
"""Powers tried: the logarithm, and the reciprocal."""

_WIDEST = 3.0
"""Values that span more than this (a factor of 20) are left on the log scale: their reciprocals are all one outlier."""

_SMALLEST_SIZE = 0.01
"""Data that vary less than 1 % are not blown up to unit variance: that would be fitting noise."""

_LEAST_INNER = 0.2
"""Beyond five times the center's value the reciprocal is no guide, and the way back stops."""


def bends_for(logs: Array) -> tuple[float, ...]:
    """The powers worth trying on these log values, the logarithm first."""
    return BENDS if np.ptp(logs) <= _WIDEST else BENDS[:1]


@dataclass(frozen=True, slots=True)
class Scale:
    """Log values, centred, bent by a power, and scaled.

    Attributes:
        center: log value that becomes 0.
        size: bent units that become 1; near the center a bent unit is a log unit.
        bend: the power; 0 stands for the logarithm itself.
    """

    center: float
    size: float
    bend: float

    @classmethod
    def of(cls, logs: Array, bend: float) -> Scale:
        """The scale on which these values have their median at 0 and, unless they hardly vary, unit variance."""
        bent = cls(float(np.median(logs)), 1.0, bend)
        return cls(bent.center, max(float(bent.scaled(logs).std()), _SMALLEST_SIZE), bend)

    def resized(self, factor: float) -> Scale:
        """The same scale with units so many times as large; they do not get smaller than data are ever blown up."""
        return replace(self, size=max(self.size * factor, _SMALLEST_SIZE))

    def scaled(self, logs: Array) -> Array:
        """Log values on this scale."""
        away = logs - self.center
        bent = away if self.bend == 0 else np.expm1(self.bend * away) / self.bend
        return np.asarray(bent / self.size, dtype=np.float64)

    def stretch(self, logs: Array) -> Array:
        """How much longer a log unit is at these values than at the center."""
        return np.asarray(np.exp(self.bend * (logs - self.center)), dtype=np.float64)

    def logs(self, scaled: Array) -> tuple[Array, Array]:
        """The way back: log values, and log units per scaled unit there."""
        bent = scaled * self.size
        if self.bend == 0:
            return bent + self.center, np.full(bent.shape, self.size)
        inner = np.maximum(1 + self.bend * bent, _LEAST_INNER)
        return np.log(inner) / self.bend + self.center, self.size / inner

    def penalty(self, logs: Array) -> float:
        """What makes likelihoods of the same values on different scales comparable: minus the log Jacobian."""
        return len(logs) * float(np.log(self.size)) - self.bend * float((logs - self.center).sum())
