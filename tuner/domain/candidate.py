"""One full assignment of knobs, in the one form in which equal launches are equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tuner.domain.knob import Knob
from tuner.domain.space import Space
from tuner.domain.values import Assignment, Value, spell


def active_knobs(knobs: Mapping[str, Knob], assignment: Assignment, engine: str) -> dict[str, Value]:
    """Drop every knob whose `when` does not hold; the rest stays in file order.

    A condition sees inactive knobs as unset, so each knob is decided after those that its condition names. The order
    in the file does not matter, and the value that an inactive knob was given decides nothing.
    """
    decided: dict[str, Value] = {"engine": engine}
    inactive: set[str] = set()

    def decide(name: str) -> None:
        if name in decided or name in inactive:
            return
        knob = knobs[name]
        if knob.condition is None:
            decided[name] = assignment.get(name)
            return
        # Until it is decided it counts as inactive: this ends circles, which no checked space has.
        inactive.add(name)
        for needed in knob.needs:
            if needed in knobs:
                decide(needed)
        if knob.condition.holds(decided):
            inactive.discard(name)
            decided[name] = assignment.get(name)

    for name in knobs:
        decide(name)
    return {name: decided[name] for name in knobs if name not in inactive}


@dataclass(frozen=True)
class Candidate:
    """An engine and the values of its active knobs (`values`, in space-file order; None means unset).

    Make one with `Candidate.of`, which drops inactive knobs, so that two assignments that launch the same server are
    the same candidate.
    """

    engine: str
    values: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def of(cls, space: Space, engine: str, assignment: Assignment) -> Candidate:
        """The canonical candidate for an assignment; names that are no knobs of the engine are refused.

        Raises:
            KeyError: for a name that is no knob of this engine.
        """
        knobs = space.knobs_of(engine)
        unknown = set(assignment) - set(knobs)
        if unknown:
            raise KeyError(f"no such knob for {engine}: {', '.join(sorted(unknown))}")
        return cls(engine, active_knobs(knobs, assignment, engine))

    @cached_property
    def fingerprint(self) -> str:
        """12 hexadecimal digits over engine and values; unset values do not count, so an added knob changes nothing."""
        settings = {name: value for name, value in self.values.items() if value is not None}
        text = json.dumps([self.engine, settings], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def differs_from(self, other: Candidate) -> dict[str, tuple[Value, Value]]:
        """Knob → (other's value, own value) wherever the two differ."""
        names = list(dict.fromkeys([*other.values, *self.values]))
        pairs = {name: (other.values.get(name), self.values.get(name)) for name in names}
        return {name: pair for name, pair in pairs.items() if spell(pair[0]) != spell(pair[1])}

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={spell(value)}" for name, value in self.values.items() if value is not None)
        return f"{self.engine}({shown})"
