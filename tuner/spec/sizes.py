"""How large a space is."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.domain.space import Space
from tuner.spec.reach import reach_of


@dataclass(frozen=True, slots=True)
class SpaceSize:
    """Number of different launches of one engine.

    Attributes:
        engine: engine name.
        combinations: inactive knobs counted once, forbidden combinations left out, continuous ranges by their grid.
        exact: False when conditions and rules were too many to be walked; then `combinations` is an upper bound.
        naive: product of all value counts, as if there were no conditions and rules.
    """

    engine: str
    combinations: int
    exact: bool
    naive: int

    def __str__(self) -> str:
        return f"{'' if self.exact else 'at most '}{self.combinations:,}"


def space_size(space: Space, engine: str) -> SpaceSize:
    """The size of one engine's part of a space."""
    reach = reach_of(space, engine)
    naive = 1
    for knob in space.knobs_of(engine).values():
        naive *= len(knob.grid)
    return SpaceSize(engine, reach.size, reach.exact, naive)
