"""How large a space is."""

from __future__ import annotations

from dataclasses import dataclass
from math import log10

from tuner.domain.space import Space
from tuner.spec.reach import reach_of

_READABLE = 10**12


@dataclass(frozen=True, slots=True)
class SpaceSize:
    """Number of different launches of one engine.

    Attributes:
        engine: engine name.
        combinations: inactive knobs counted once, forbidden combinations left out, ranges by their grid (`Knob.grid`).
        exact: False when conditions and rules were too many to be walked; then `combinations` is an upper bound.
        naive: product of all value counts, as if there were no conditions and rules.
    """

    engine: str
    combinations: int
    exact: bool
    naive: int

    def __str__(self) -> str:
        number = (
            f"{self.combinations:,}" if self.combinations < _READABLE else f"about 10^{round(log10(self.combinations))}"
        )
        return number if self.exact else f"at most {number}"


def space_size(space: Space, engine: str) -> SpaceSize:
    """The size of one engine's part of a space."""
    reach = reach_of(space, engine)
    naive = 1
    for knob in space.knobs_of(engine).values():
        naive *= len(knob.grid)
    return SpaceSize(engine, reach.size, reach.exact, naive)
