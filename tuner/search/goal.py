"""What a launch is worth: for the lead objective, for the front, per expected second."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tuner.search.acquisition import (
    chance_above,
    expected_excess,
    expected_hypervolume_improvement,
    nondominated,
)
from tuner.search.beliefs import Beliefs
from tuner.search.kernels import Array
from tuner.search.lattice import Points

KEPT = 0.97
"""Share of the baseline's value that the other objectives must keep for the lead one (the first) to count."""

_REFERENCE = 0.9
"""Share of the baseline's values from which the front's volume is reckoned."""

_NO_GAIN = 1e-9
_RUNG = 0.02
"""A launched point starts a new rung only when its chance is higher by this much."""

_FRONT_PARENTS = 8
_LEADING_PARENTS = 5
_SHORTFALL_WEIGHT = 3.0
_LIMIT_DEDUCTION = 10.0

_LAST = 1e6
"""Taken off a barred candidate's worth: any other candidate comes before it."""

_SMALLEST_EXTENT = 1e-3


def floors(beliefs: Beliefs) -> Array:
    """Log value that each objective must keep for the lead objective to count: a share of the baseline's."""
    at_baseline, _ = beliefs.predict(beliefs.lattice.baseline[None])
    kept: Array = at_baseline[0] + np.log(KEPT)
    return kept


class Goal:
    """One ask's acquisition: expected gain times the chance to work, per expected second.

    Args:
        beliefs: of one engine.
    """

    def __init__(self, beliefs: Beliefs) -> None:
        self._beliefs = beliefs
        known = beliefs.known_points
        mean, _ = beliefs.predict(known)
        at_baseline, _ = beliefs.predict(beliefs.lattice.baseline[None])
        self._floors = floors(beliefs)
        self._reference = at_baseline[0] + np.log(_REFERENCE)
        kept = beliefs.keeps_limits(known)
        self._front = mean[kept >= 0.5]
        top = self._front.max(axis=0) if len(self._front) else at_baseline[0]
        self._extent = float(np.prod(np.maximum(top - self._reference, _SMALLEST_EXTENT)[1:]))
        self._rungs = _ladder(mean[:, 0], kept * self._keeps_floors(known, mean))
        self.parents = known[self._promising(mean, kept >= 0.5)]

    def _promising(self, mean: Array, kept: NDArray[np.bool_]) -> list[int]:
        """Some of the front, and the best of the lead objective after a deduction for what falls below the floors."""
        short = np.maximum(self._floors[1:] - mean[:, 1:], 0.0).sum(axis=1)
        lead = mean[:, 0] - _SHORTFALL_WEIGHT * short - np.where(kept, 0.0, _LIMIT_DEDUCTION)
        front = np.flatnonzero(nondominated(mean))
        front = front[np.argsort(-mean[front, 0], kind="stable")][:_FRONT_PARENTS]
        leading = np.argsort(-lead, kind="stable")[:_LEADING_PARENTS]
        return list(dict.fromkeys([*front.tolist(), *leading.tolist()]))

    def _keeps_floors(self, points: Points, mean: Array) -> Array:
        """Probability that every objective but the lead keeps its floor, which is a share of the baseline's value."""
        chance = np.ones(len(points))
        baseline = self._beliefs.lattice.baseline
        for k, model in enumerate(self._beliefs.objectives[1:], 1):
            chance = chance * chance_above(mean[:, k], model.gap(points, baseline), float(self._floors[k]))
        return chance

    def gains(self, points: Points) -> tuple[Array, Array]:
        """Expected gain of the lead objective, and of the whole front in the same unit; each of shape (points,).

        The front's growth is divided by its extent in the other objectives: then it is the gain of the lead objective
        that would grow the front as much, had it all that extent.
        """
        mean, sd = self._beliefs.predict(points)
        kept = self._beliefs.keeps_limits(points)
        lead = self._lead_gain(mean, sd, kept * self._keeps_floors(points, mean))
        front = kept * expected_hypervolume_improvement(mean, sd, self._front, self._reference) / self._extent
        learned = _NO_GAIN * sd[:, 0]  # where nothing is to be gained, learn
        return lead + learned, front + learned

    def worth(self, points: Points, gain: Array) -> Array:
        """Gain times the chance to work per expected second; shape (points,). Barred points come after all others."""
        risk = self._beliefs.failures.assess(points)
        # A launch that fails fast saves time, but it uses up a trial of the budget all the same.
        success = self._beliefs.costs.success
        seconds = success * (1 - risk.chance) + np.maximum(risk.seconds, success) * risk.chance
        worth: Array = gain * (1 - risk.chance) / seconds
        return np.where(risk.barred(success), worth - _LAST, worth)

    def _lead_gain(self, mean: Array, sd: Array, kept: Array) -> Array:
        """Expected gain over the best launched point that keeps the floors, whichever that is.

        Whether points near a floor keep it hangs mostly on where the floor lies, which they share: where a point keeps
        it, all points with a higher chance do. So a point with chance p gains over rung i only on the part of p between
        the chances of the rung above and of its own.
        """
        gain, below = np.zeros(len(mean)), 0.0
        for value, chance in self._rungs:
            share = np.clip(kept, below, chance) - below
            gain += share * expected_excess(mean[:, 0], sd[:, 0], value)
            below = chance
        return gain


def _ladder(lead: Array, kept: Array) -> list[tuple[float, float]]:
    """Lead values from the best downwards, each with the chance that a point at least as good keeps the floors.

    What is left of certainty after the last rung is too little to matter if one more rung could not stand on it;
    otherwise, when nothing launched is sure to keep the floors, any launched point is better than none.
    """
    rungs, reached = [], 0.0
    for i in np.argsort(-lead, kind="stable"):
        if kept[i] > reached + _RUNG:
            reached = float(kept[i])
            rungs.append((float(lead[i]), reached))
    if reached > 1 - _RUNG:
        return [*rungs[:-1], (rungs[-1][0], 1.0)]
    return [*rungs, (float(lead.min()), 1.0)]
