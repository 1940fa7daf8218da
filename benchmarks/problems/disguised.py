"""The modelled servers in disguise: a family with a problem of its own for each seed.

An even seed starts from `small`, an odd one from `full`. Order and names of knobs, order and names of categories, the
size of all effects and a further effect of each knob are drawn, so the best configuration, what keeps the throughput
and the scale on which effects add up differ from seed to seed. What is kept: which knobs there are, their gates, what
fails, and the noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.problems import full, small
from benchmarks.problems.optimum import Array, Climbed, Landscape, Points

_STRETCH = (0.7, 1.3)
"""Bounds of the power that all effects on one objective are raised to."""

_FURTHER_EFFECT = 0.02


class Disguised(Climbed):
    """One problem of the family; its attributes are those that a problem module gives (see `protocol.py`)."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([9_173, seed])
        self._server = (small if seed % 2 == 0 else full).PROBLEM
        given = self._server.KNOBS
        self._columns = rng.permutation(len(given))  # where each knob of the disguise is in the server's points
        self._values = {k["name"]: self._drawn_order(k, rng) for k in given}
        self._names = {k["name"]: f"knob{place}" for place, k in enumerate(given[i] for i in self._columns)}
        self._stretch = rng.uniform(*_STRETCH, 2)
        self._further = [self._drawn_effect(k, rng) for k in given]
        self.KNOBS = [self._described(given[i]) for i in self._columns]
        self.BASELINE = {self._names[n]: self._shown(n, v) for n, v in self._server.BASELINE.items()}
        self.OBJECTIVES = self._server.OBJECTIVES
        self.REFERENCE = self._server.REFERENCE
        plain = self._server.landscape
        self._base = np.array(plain.base)
        self.landscape = Landscape(plain.sizes, plain.canonical, self._true_values, plain.base)
        self.climb_seed = [8, seed]

    def _drawn_order(self, knob: Mapping[str, Any], rng: Generator) -> Mapping[Any, Any]:
        """Server's value → shown value; scales keep their numbers, switches and categories get new names."""
        values = knob["values"]
        if knob["ordinal"]:
            return {value: value for value in values}
        return dict(zip(values, (f"v{i}" for i in rng.permutation(len(values))), strict=True))

    def _drawn_effect(self, knob: Mapping[str, Any], rng: Generator) -> Array:
        """A further effect on both objectives (log) for each value; on a scale a smooth one."""
        count = len(knob["values"])
        place = np.linspace(-1, 1, count)[:, None]
        if knob["ordinal"]:
            table = _FURTHER_EFFECT * (rng.normal(size=2) * place + rng.normal(size=2) * place**2)
        else:
            table = rng.normal(0, _FURTHER_EFFECT, (count, 2))
        return np.asarray(table - table[knob["values"].index(self._server.BASELINE[knob["name"]])])

    def _shown(self, name: str, value: Any) -> Any:
        return self._values[name][value]

    def _described(self, knob: Mapping[str, Any]) -> Mapping[str, Any]:
        name, when = knob["name"], knob["when"]
        shown = [self._shown(name, value) for value in knob["values"]]
        return {
            "name": self._names[name],
            "values": shown if knob["ordinal"] else sorted(shown),
            "ordinal": knob["ordinal"],
            "when": when and {"knob": self._names[when["knob"]], "equals": self._shown(when["knob"], when["equals"])},
        }

    def _undisguised(self, assignment: Mapping[str, Any]) -> Mapping[str, Any]:
        given = {}
        for name, shown in self._names.items():
            if shown in assignment:
                back = {text: value for value, text in self._values[name].items()}
                given[name] = back[assignment[shown]]
        return given

    def _changed(self, points: Points, values: Array) -> Array:
        further = np.sum([table[points[:, i]] for i, table in enumerate(self._further)], axis=0)
        return np.asarray(self._base * (values / self._base) ** self._stretch * np.exp(further))

    def _true_values(self, points: Points) -> Array:
        return self._changed(points, self._server.landscape.values(points))

    def _disguise(self, assignment: Mapping[str, Any], found: Mapping[str, Any]) -> Mapping[str, Any]:
        if found["values"] is None:
            return found
        values = np.array([list(found["values"].values())])
        changed = self._changed(self._server.point(assignment), values)[0]
        return {**found, "values": dict(zip(found["values"], map(float, changed), strict=True))}

    def truth(self, assignment: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.py`."""
        given = self._undisguised(assignment)
        return self._disguise(given, self._server.truth(given))

    def evaluate(self, assignment: Mapping[str, Any], rng: Generator) -> Mapping[str, Any]:
        """See `protocol.py`."""
        given = self._undisguised(assignment)
        return self._disguise(given, self._server.evaluate(given, rng))


draw = Disguised
