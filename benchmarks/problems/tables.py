"""Search problems whose truth is a sum of tables: effects of single knobs, of pairs and of triples, on the log scale.

Everything is drawn from a seed: knobs of all kinds, gates, two objectives that partly pull against each other, hidden
failure rules, a memory edge, launch noise with slow outliers. A family of such problems shows what a search does when
it was not tuned to one of them; large pair and triple effects show where a nearly additive model loses.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.problems.optimum import REFERENCE_SHARE, Array, Climbed, Landscape, Points

BASE = (60.0, 2400.0)
"""The baseline's true values: single-stream and total tok/s."""

HANG_S, CRASH_S, OOM_S, LAUNCH_S = 600.0, 30.0, 60.0, 180.0


@dataclass(frozen=True)
class Shape:
    """What kind of problem to draw.

    Attributes:
        knobs: how many.
        effect: typical size of one knob's effect (0.05 = 5 %); a few are much larger.
        pair_share: share of the pairs of knobs that interact.
        pair_effect: standard deviation of a pair's effect.
        triples: number of knob triples that interact.
        triple_effect: standard deviation of a triple's effect.
        noise: standard deviation of one launch.
    """

    knobs: int = 10
    effect: float = 0.05
    pair_share: float = 0.15
    pair_effect: float = 0.02
    triples: int = 0
    triple_effect: float = 0.0
    noise: float = 0.01


@dataclass(frozen=True)
class Rule:
    """All of these knob indices together (axis → allowed indices) fail in one way."""

    status: str
    where: Mapping[int, frozenset[int]]

    def holds(self, points: Points) -> NDArray[np.bool_]:
        """Whether the rule holds at each point."""
        return np.logical_and.reduce([np.isin(points[:, i], list(allowed)) for i, allowed in self.where.items()])


class TableProblem(Climbed):
    """One drawn problem; its attributes are those that a problem module gives (see `protocol.py`)."""

    def __init__(self, seed: int, shape: Shape) -> None:
        rng = np.random.default_rng([20_251, seed])
        self._shape = shape
        self._knobs = [_draw_knob(i, rng) for i in range(shape.knobs)]
        self._sizes = np.array([len(k["values"]) for k in self._knobs])
        self._base = np.array(
            [int(rng.integers(n)) if k["ordinal"] else 0 for k, n in zip(self._knobs, self._sizes, strict=True)]
        )
        self._gates = self._draw_gates(rng)
        self._tables = self._draw_tables(rng)
        self._rules = self._draw_rules(rng)
        self.KNOBS: Sequence[Mapping[str, Any]] = self._knobs
        self.BASELINE = {k["name"]: k["values"][i] for k, i in zip(self._knobs, self._base, strict=True)}
        self.OBJECTIVES = [("single_stream", "maximize"), ("throughput", "maximize")]
        self.REFERENCE = {"single_stream": REFERENCE_SHARE * BASE[0], "throughput": REFERENCE_SHARE * BASE[1]}
        self.landscape = Landscape(self._sizes, self._canonical, self._true_values, BASE)
        self.climb_seed = [7, seed]

    def _draw_gates(self, rng: Generator) -> list[tuple[int, int, int]]:
        """(gated axis, its gate's axis, index that opens it); gates come before what they gate and are open to all."""
        gates = []
        for i in range(2, len(self._knobs)):
            j = int(rng.integers(i))
            if rng.random() < 0.2 and not self._knobs[j]["ordinal"] and self._knobs[j]["when"] is None:
                opens = int(rng.integers(self._sizes[j]))
                self._knobs[i]["when"] = {"knob": self._knobs[j]["name"], "equals": self._knobs[j]["values"][opens]}
                gates.append((i, j, opens))
        return gates

    def _draw_tables(self, rng: Generator) -> list[tuple[tuple[int, ...], Array]]:
        """Axes and the table of their joint effect on both objectives; zero where one axis stands at the baseline."""
        d, shape = len(self._knobs), self._shape
        tables: list[tuple[tuple[int, ...], Array]] = []
        for i in range(d):
            size = shape.effect * rng.lognormal(-0.3, 0.8)
            single = _effect(self._knobs[i], size, rng)
            through = rng.uniform(-0.7, 0.5) * single + _effect(self._knobs[i], 0.6 * size, rng)
            table = np.stack([single, through], axis=-1)
            tables.append(((i,), table - table[self._base[i]]))
        pairs = [p for p in itertools.combinations(range(d), 2) if rng.random() < shape.pair_share]
        triples = [tuple(sorted(rng.choice(d, 3, replace=False).tolist())) for _ in range(shape.triples)]
        for axes, size in [(p, shape.pair_effect) for p in pairs] + [(t, shape.triple_effect) for t in triples]:
            table = self._rough_table(axes, size, rng)
            for place, axis in enumerate(axes):
                np.moveaxis(table, place, 0)[self._base[axis]] = 0.0
            tables.append((axes, table))
        return tables

    def _rough_table(self, axes: tuple[int, ...], size: float, rng: Generator) -> Array:
        """Normal effects with at most four levels per axis; on scales the levels are blocks of neighbours."""
        levels = [min(4, int(self._sizes[i])) for i in axes]
        coarse = rng.normal(0, size, (*levels, 2))
        blocks = [np.arange(self._sizes[i]) * n // self._sizes[i] for i, n in zip(axes, levels, strict=True)]
        return coarse[np.ix_(*blocks, range(2))].copy()

    def _draw_rules(self, rng: Generator) -> list[Rule]:
        rules = []
        for status in ("hang", "crash", "oom")[: int(rng.integers(1, 4))]:
            axes = rng.choice(len(self._knobs), int(rng.integers(1, 3)), replace=False).tolist()
            where = {}
            for place, i in enumerate(axes):
                away = [v for v in range(self._sizes[i]) if v != self._base[i]]
                if self._knobs[i]["ordinal"]:
                    high = self._base[i] < self._sizes[i] / 2
                    away = [v for v in away if (v > self._base[i] if high else v < self._base[i])]
                    chosen = frozenset(away[len(away) // 2 :] if high else away[: (len(away) + 1) // 2])
                else:
                    chosen = frozenset({int(rng.choice(away))})
                # The second condition of a pair may hold at the baseline: then one value is bad only beside a default.
                where[i] = chosen if place == 0 or rng.random() < 0.6 else chosen | {int(self._base[i])}
            rules.append(Rule(status, where))
        return rules

    def _canonical(self, points: Points) -> Points:
        points = points.copy()
        for i, gate, opens in self._gates:
            points[points[:, gate] != opens, i] = self._base[i]
        return points

    def _values(self, points: Points) -> Array:
        total = np.zeros((len(points), 2))
        for axes, table in self._tables:
            total += table[tuple(points[:, i] for i in axes)]
        return np.array(BASE) * np.exp(total)

    def _status(self, points: Points) -> list[str]:
        found = np.full(len(points), "ok", dtype=object)
        for rule in self._rules:
            found[rule.holds(points) & (found == "ok")] = rule.status
        return list(found)

    def _point(self, assignment: Mapping[str, Any]) -> Points:
        row = [
            k["values"].index(assignment[k["name"]]) if k["name"] in assignment else b
            for k, b in zip(self._knobs, self._base, strict=True)
        ]
        return self._canonical(np.array([row], dtype=np.int64))

    def truth(self, assignment: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.py`."""
        point = self._point(assignment)
        status = self._status(point)[0]
        single, through = self._values(point)[0]
        values = {"single_stream": float(single), "throughput": float(through)}
        return {"status": status, "values": values if status == "ok" else None}

    def evaluate(self, assignment: Mapping[str, Any], rng: Generator) -> Mapping[str, Any]:
        """See `protocol.py`."""
        found = self.truth(assignment)
        status = found["status"]
        if status == "ok" and rng.random() < 0.025:
            status = "hang" if rng.random() < 0.25 else "crash"
        if status != "ok":
            return {
                "status": status,
                "values": None,
                "seconds": {"hang": HANG_S, "crash": CRASH_S, "oom": OOM_S}[status],
            }
        common = rng.normal(0, 0.5 * self._shape.noise)
        values = {}
        for name, value in found["values"].items():
            error = common + rng.normal(0, 0.87 * self._shape.noise)
            if rng.random() < 0.02:
                error -= abs(rng.normal(0, 0.04))
            values[name] = value * float(np.exp(error))
        return {"status": "ok", "values": values, "seconds": LAUNCH_S + rng.uniform(0, 15)}

    def _true_values(self, points: Points) -> Array:
        works = np.array([status == "ok" for status in self._status(points)])
        return np.where(works[:, None], self._values(points), np.nan)


def _draw_knob(i: int, rng: Generator) -> dict[str, Any]:
    kind = rng.choice(["switch", "category", "steps", "powers"], p=[0.25, 0.35, 0.2, 0.2])
    match str(kind):
        case "switch":
            values: list[Any] = [False, True]
        case "category":
            values = [f"v{j}" for j in range(int(rng.integers(3, 6)))]
        case "steps":
            values = list(range(1, int(rng.integers(5, 17))))
        case _:
            values = [2**j for j in range(2, 2 + int(rng.integers(4, 9)))]
    return {"name": f"knob{i}", "values": values, "ordinal": kind in ("steps", "powers"), "when": None}


def _effect(knob: Mapping[str, Any], size: float, rng: Generator) -> Array:
    """The effect of each value on one objective: normal for categories, a tilted parabola on a scale."""
    n = len(knob["values"])
    if not knob["ordinal"]:
        return rng.normal(0, size, n)
    place = np.linspace(0, 1, n)
    return size * (rng.normal() * 1.5 * place - rng.uniform(0, 4) * (place - rng.random()) ** 2)
