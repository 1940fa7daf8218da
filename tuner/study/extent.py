"""How much a confirmation launches, and why a study's budget may have none."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.domain.space import Budget

FINALISTS = 3
"""Three of them and the baseline, three launches each, kept claims honest in simulated studies; more found no more."""

_BUDGET_SHARE = 3
"""At most one launch in so many goes to the confirmation."""

_FEWEST_ROUNDS = 2
"""One round has no spread."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is launched: `finalists` besides the baselines of `engines`, each at most `rounds` times."""

    finalists: int
    rounds: int
    engines: int = 1

    @property
    def launches(self) -> int:
        """Launches in all."""
        return self.rounds * (self.finalists + self.engines)


def automatic_extent(budget: Budget, *, engines: int, affordable: float = math.inf) -> Extent | None:
    """What a study's own budget allows: as many finalists as fit, then as many rounds.

    Args:
        budget: of the space.
        engines: whose baselines take part.
        affordable: launches for which there is time.

    Returns:
        None when not even two rounds of one finalist per engine fit, or the space wants no confirmation.
    """
    allowance = min(budget.trials / _BUDGET_SHARE, affordable)
    for finalists in range(max(FINALISTS, engines), engines - 1, -1):
        for rounds in range(budget.confirm_launches, _FEWEST_ROUNDS - 1, -1):
            extent = Extent(finalists, rounds, engines)
            if extent.launches <= allowance and (rounds == budget.confirm_launches or finalists == engines):
                return extent
    return None


def no_extent_words(budget: Budget, *, engines: int) -> str:
    """Why `automatic_extent` gives none, and what would change that."""
    if budget.confirm_launches < _FEWEST_ROUNDS:
        return f"budget.confirm_launches is {budget.confirm_launches}: it takes {_FEWEST_ROUNDS} rounds at least"
    fewest = Extent(engines, _FEWEST_ROUNDS, engines).launches
    return (
        f"it would take {fewest} launches, and at most one in {_BUDGET_SHARE} is for that: "
        f"from budget.trials {fewest * _BUDGET_SHARE} on there is one"
    )
