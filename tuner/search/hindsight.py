"""Failures of earlier studies beside this one's: heard, but with less weight, and let off by its own successes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tuner.search.failure_model import FailureModel, Risk
from tuner.search.history import Ending, History, Observation
from tuner.search.lattice import Lattice, Points


def failure_model(
    lattice: Lattice, history: History, hints: Sequence[Observation], failure_seconds: float
) -> FailureModel:
    """The failure model of one engine: its own history's, and where earlier studies saw failures, theirs as well.

    Args:
        lattice: of the engine.
        history: what this study launched.
        hints: what earlier studies launched, failures with the trust that they deserve.
        failure_seconds: expected duration of a failed launch whose cause is new.
    """
    if not any(hint.ending is Ending.FAILED for hint in hints):
        return FailureModel(lattice, history, failure_seconds)
    return InformedFailureModel(lattice, history, hints, failure_seconds)


class InformedFailureModel(FailureModel):
    """Its own failures count in full; those of earlier studies by their trust, and only until a launch here succeeds.

    Args: see `failure_model`.
    """

    def __init__(
        self, lattice: Lattice, history: History, hints: Sequence[Observation], failure_seconds: float
    ) -> None:
        super().__init__(lattice, history, failure_seconds)
        self._earlier: list[tuple[float, FailureModel]] = []
        for trust in sorted({hint.trust for hint in hints if hint.ending is Ending.FAILED}, reverse=True):
            # What worked in a less trusted study does not let off what failed in a more trusted one.
            heard = [h for h in hints if h.trust == trust or (h.trust > trust and h.ending is not Ending.FAILED)]
            seen = History([*heard, *history.launched], lattice.dimensions, history.objectives, history.limits)
            self._earlier.append((trust, FailureModel(lattice, seen, failure_seconds)))

    def assess(self, points: Points) -> Risk:
        """See `FailureModel.assess`."""
        risk = super().assess(points)
        for trust, model in self._earlier:
            other = model.assess(points)
            worse = trust * other.chance > risk.chance
            risk = Risk(
                np.where(worse, trust * other.chance, risk.chance),
                np.where(worse, other.seconds, risk.seconds),
                np.where(worse, other.witnesses, risk.witnesses),
            )
        return risk

    def suspects(self, point: Points) -> Mapping[str, float]:
        """See `FailureModel.suspects`; rules of earlier studies say so."""
        found = dict(super().suspects(point))
        for trust, model in self._earlier:
            for words, belief in model.suspects(point).items():
                if trust * belief > found.get(words, 0.0):
                    found.pop(words, None)
                    found[f"{words} (in an earlier study)"] = trust * belief
        return dict(sorted(found.items(), key=lambda item: -item[1]))
