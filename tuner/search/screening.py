"""What other samplers than ours propose is looked at before it is launched: they know neither rules nor failures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from tuner.search.base import SpaceExhausted
from tuner.search.beliefs import Costs
from tuner.search.failure_model import FailureModel
from tuner.search.history import History
from tuner.search.lattice import Lattice, Points
from tuner.search.pool import any_unseen

_DRAWS = 20
"""So many random points are drawn for one that is not barred; where most of a space fails, the last of them will do."""


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a proposal is not launched.

    Attributes:
        reason: in words.
        infeasible: whether the sampler is to learn that nothing is to be had there; else it may come back to it.
    """

    reason: str
    infeasible: bool


class Screening:
    """Judges proposals for one engine by what its history shows.

    Args:
        lattice: of the engine.
        history: what was launched, or is on its way.
    """

    def __init__(self, lattice: Lattice, history: History) -> None:
        self._lattice = lattice
        self._seen = history.seen()
        costs = Costs.of(history)
        self._launch_seconds = costs.success
        self._failures = FailureModel(lattice, history, costs.failure)

    def objection(self, point: Points) -> Objection | None:
        """Why a point is not to be launched, or None when nothing speaks against it."""
        if not self._lattice.allowed(point[None])[0]:
            return Objection("breaks a rule of the space", infeasible=True)
        if point.tobytes() in self._seen:
            return Objection("proposed before", infeasible=False)
        if self._barred(point):
            causes = ", ".join(self._failures.suspects(point)) or "launches like it"
            return Objection(f"would fail: {causes}", infeasible=True)
        return None

    def _barred(self, point: Points) -> bool:
        return bool(self._failures.assess(point[None]).barred(self._launch_seconds)[0])

    def at_random(self, rng: Generator) -> Points:
        """A new allowed point, where possible one that does not almost surely fail.

        Raises:
            SpaceExhausted: when all were proposed.
        """
        for _ in range(_DRAWS):
            point = any_unseen(self._lattice, self._seen, rng)
            if point is None:
                raise SpaceExhausted
            if not self._barred(point):
                break
        return np.asarray(point)
