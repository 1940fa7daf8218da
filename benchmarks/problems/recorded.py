"""A model of the effects that a recorded study found: few knobs do anything, and launches scatter as they did there.

It is a model, not a measurement: effects that a study could not tell from its noise are nothing here, and what was not
launched together adds up on the log scale. Nothing fails, since nothing did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.problems.optimum import REFERENCE_SHARE, Array, Climbed, Landscape, Points

Effect = tuple[float, float]
"""On the first and on the second objective, log scale."""


@dataclass(frozen=True)
class Knob:
    """One knob; `effects` are against the baseline's value, and values that are not named have none.

    `gate` is the knob and the value that make it active.
    """

    values: Sequence[Any]
    baseline: Any
    effects: Mapping[Any, Effect]
    ordinal: bool = False
    gate: tuple[str, Any] | None = None


@dataclass(frozen=True)
class Together:
    """What these values (knob → value) do together beyond what each does alone."""

    where: Mapping[str, Any]
    effect: Effect


@dataclass
class RecordedProblem(Climbed):
    """One problem of the protocol (see `protocol.py`).

    Attributes:
        knobs: by name; a gate comes before what it gates and is always active itself.
        base: the baseline's true values, tok/s at one stream and at 128.
        noise: standard deviation of a launch on the log scale, for each of them.
        seconds: what a launch takes, at least and at most.
        pairs: interactions.
    """

    knobs: Mapping[str, Knob]
    base: tuple[float, float]
    noise: tuple[float, float]
    seconds: tuple[float, float]
    pairs: Sequence[Together] = ()

    def __post_init__(self) -> None:
        self.KNOBS = [
            {
                "name": name,
                "values": list(knob.values),
                "ordinal": knob.ordinal,
                "when": None if knob.gate is None else {"knob": knob.gate[0], "equals": knob.gate[1]},
            }
            for name, knob in self.knobs.items()
        ]
        self.BASELINE = {name: knob.baseline for name, knob in self.knobs.items() if self._opens(knob, {})}
        self.OBJECTIVES = [("single_stream", "maximize"), ("throughput", "maximize")]
        single, through = (REFERENCE_SHARE * value for value in self.base)
        self.REFERENCE = {"single_stream": single, "throughput": through}
        sizes = np.array([len(knob.values) for knob in self.knobs.values()])
        self.landscape = Landscape(sizes, self._canonical, self._true_values, self.base)
        self.climb_seed = 9

    def _opens(self, knob: Knob, assignment: Mapping[str, Any]) -> bool:
        if knob.gate is None:
            return True
        gate, opens = knob.gate
        return bool(assignment.get(gate, self.knobs[gate].baseline) == opens)

    def _settings(self, assignment: Mapping[str, Any]) -> dict[str, Any]:
        """Every knob's value; the baseline's where it is inactive or left out."""
        return {
            name: assignment.get(name, knob.baseline) if self._opens(knob, assignment) else knob.baseline
            for name, knob in self.knobs.items()
        }

    def _of_point(self, point: Points) -> dict[str, Any]:
        chosen = {name: knob.values[int(i)] for (name, knob), i in zip(self.knobs.items(), point, strict=True)}
        return self._settings(chosen)

    def _canonical(self, points: Points) -> Points:
        rows = [
            [list(knob.values).index(value) for knob, value in zip(self.knobs.values(), row.values(), strict=True)]
            for row in map(self._of_point, points)
        ]
        return np.array(rows, dtype=np.int64).reshape(points.shape)

    def _values(self, settings: Mapping[str, Any]) -> Array:
        found = [knob.effects[settings[name]] for name, knob in self.knobs.items() if settings[name] in knob.effects]
        found += [t.effect for t in self.pairs if all(settings[name] == value for name, value in t.where.items())]
        return np.asarray(self.base * np.exp(np.sum([(0.0, 0.0), *found], axis=0)))

    def _true_values(self, points: Points) -> Array:
        return np.array([self._values(self._of_point(point)) for point in points])

    def truth(self, assignment: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.py`."""
        return {"status": "ok", "values": self._named(self._values(self._settings(assignment)))}

    def evaluate(self, assignment: Mapping[str, Any], rng: Generator) -> Mapping[str, Any]:
        """See `protocol.py`."""
        measured = self._values(self._settings(assignment)) * np.exp(rng.normal(0, self.noise))
        return {"status": "ok", "values": self._named(measured), "seconds": float(rng.uniform(*self.seconds))}

    def _named(self, values: Array) -> Mapping[str, float]:
        return {name: float(value) for (name, _), value in zip(self.OBJECTIVES, values, strict=True)}
