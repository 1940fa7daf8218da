"""What a search has seen so far, in the form that the numerics work on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from tuner.domain.outcome import FailureClass
from tuner.search.lattice import Points


class Ending(Enum):
    """How a proposed trial stands."""

    PENDING = auto()
    SCORED = auto()
    PARTIAL = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Observation:
    """One trial of one engine.

    Attributes:
        trial: trial number; -1 for a hint from an earlier study.
        point: canonical lattice point, shape (axes,).
        ending: how it stands.
        values: log of each objective, larger is better; NaN where not measured. Shape (objectives,).
        limits: log of each limit's broken share, ≤ 0 keeps it; NaN where not measured. Shape (limits,).
        spread: standard error of `values` within the launch; 0 where unknown. Shape (objectives,).
        failure: its class when it failed.
        seconds: how long it took; 0 when unknown.
        trust: how much a failure counts, 0–1; below 1 for a hint.
    """

    trial: int
    point: Points
    ending: Ending
    values: np.ndarray
    limits: np.ndarray
    spread: np.ndarray
    failure: FailureClass | None = None
    seconds: float = 0.0
    trust: float = 1.0


class History:
    """The observations of one engine, in the order of their trials."""

    def __init__(self, observations: Sequence[Observation], dimensions: int, objectives: int, limits: int) -> None:
        self.all = tuple(observations)
        self.objectives = objectives
        self.limits = limits
        self._dimensions = dimensions

    def _select(self, wanted: Callable[[Observation], bool]) -> tuple[Observation, ...]:
        return tuple(o for o in self.all if wanted(o))

    @property
    def successes(self) -> tuple[Observation, ...]:
        """Trials with every objective measured."""
        return self._select(lambda o: o.ending is Ending.SCORED)

    @property
    def launched(self) -> tuple[Observation, ...]:
        """Trials whose server worked, measured in full or in part."""
        return self._select(lambda o: o.ending in (Ending.SCORED, Ending.PARTIAL))

    @property
    def failures(self) -> tuple[Observation, ...]:
        """Trials that failed by the candidate's fault."""
        return self._select(lambda o: o.ending is Ending.FAILED)

    @property
    def pending(self) -> tuple[Observation, ...]:
        """Trials on their way."""
        return self._select(lambda o: o.ending is Ending.PENDING)

    def points(self, observations: Sequence[Observation]) -> Points:
        """Their points, shape (observations, axes)."""
        if not observations:
            return np.empty((0, self._dimensions), dtype=np.int64)
        return np.stack([o.point for o in observations])

    def seen(self) -> frozenset[bytes]:
        """Every point that was proposed, as bytes, for quick look-up."""
        return frozenset(o.point.tobytes() for o in self.all if o.trial >= 0)


def unseen(points: Points, seen: frozenset[bytes]) -> Points:
    """The distinct points that were not proposed yet, in lexical order."""
    distinct = np.unique(points, axis=0) if points.shape[1] else points[:1]
    return distinct[[row.tobytes() not in seen for row in distinct]]
