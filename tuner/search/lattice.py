"""One engine's candidates as integer points: one axis per knob, one index per value.

All numerics of the search work on arrays of such points, shape (points, axes). A point is canonical when every inactive
knob stands at its axis' `hold`, so that points that launch the same server are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.domain.candidate import Candidate
from tuner.domain.conditions import Comparison, Condition, Negation
from tuner.domain.knob import Knob
from tuner.domain.space import Space
from tuner.domain.values import Value, same

Points = NDArray[np.int64]
Mask = NDArray[np.bool_]

MAX_AXIS_VALUES = 33
"""Finer grids are thinned: neighbours closer than 3 % of a range cannot be told apart within launch noise."""

_LOG_RATIO = 3.0
"""A positive scale that spans more than this factor is seen logarithmically."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One knob as the search sees it.

    Attributes:
        name: knob name.
        values: what an index stands for.
        ordinal: True when neighbouring indices are alike.
        positions: place of each index on the knob's scale, 0–1; only distances between ordinal ones mean anything.
        hold: index where the knob stands while it is inactive.
        baseline: index of the baseline's value (`hold` when the baseline does not have the knob active).
        likely: indices that the space file's prior names.
        condition: when the knob is active; None for always.
    """

    name: str
    values: tuple[Value, ...]
    ordinal: bool
    positions: tuple[float, ...]
    hold: int
    baseline: int
    likely: tuple[int, ...]
    condition: Condition | None

    def index(self, value: Value) -> int:
        """Index of a value; a number off the grid takes the nearest one, anything else unknown takes `hold`."""
        found = _find(self.values, value)
        if found is not None:
            return found
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self.hold
        numbers = [(abs(v - value), i) for i, v in enumerate(self.values) if isinstance(v, int | float)]
        return min(numbers)[1] if numbers else self.hold


def _find(values: Sequence[Value], value: Value) -> int | None:
    return next((i for i, known in enumerate(values) if same(known, value)), None)


def _axis(name: str, knob: Knob, baseline: Candidate) -> Axis:
    in_baseline = name in baseline.values
    start = baseline.values.get(name)
    likely = knob.prior.likely if knob.prior is not None else ()
    values = list(_thinned(knob, [start, knob.default, *likely]))
    for extra in ([start] if in_baseline else []) + list(likely):
        if _find(values, extra) is None:
            default = _find(values, knob.default)
            if extra is None and default is not None:
                values[default] = None  # leaving the setting out is the engine's default: one value, not two
            else:
                _insert(values, extra)
    default = _find(values, knob.default)
    if default is None and knob.default is not None and in_baseline and start is None:
        default = _find(values, None)
    at_start = _find(values, start) if in_baseline else None
    hold = next((i for i in (default, at_start, _find(values, None)) if i is not None), 0)
    return Axis(
        name=name,
        values=tuple(values),
        ordinal=knob.ordinal,
        positions=_positions(values, knob),
        hold=hold,
        baseline=hold if at_start is None else at_start,
        likely=tuple(i for i in (_find(values, value) for value in likely) if i is not None),
        condition=knob.condition,
    )


def _thinned(knob: Knob, keep: Iterable[Value]) -> Iterable[Value]:
    grid = knob.grid
    if not knob.ordinal or len(grid) <= MAX_AXIS_VALUES:
        return grid
    chosen = {round(i * (len(grid) - 1) / (MAX_AXIS_VALUES - 1)) for i in range(MAX_AXIS_VALUES)}
    chosen |= {i for i in (_find(grid, value) for value in keep) if i is not None}
    return [grid[i] for i in sorted(chosen)]


def _insert(values: list[Value], value: Value) -> None:
    """Put a value where it belongs on a scale of numbers, at the front when unset, else at the end."""
    if value is None:
        values.insert(0, None)
        return
    if isinstance(value, int | float) and not isinstance(value, bool):
        for place, known in enumerate(values):
            if isinstance(known, int | float) and not isinstance(known, bool) and known > value:
                values.insert(place, value)
                return
    values.append(value)


def _positions(values: Sequence[Value], knob: Knob) -> tuple[float, ...]:
    ranks = tuple(i / max(1, len(values) - 1) for i in range(len(values)))
    if not knob.ordinal:
        return ranks
    meant = [knob.default if value is None else value for value in values]
    numbers = [float(v) for v in meant if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(meant) or len(set(numbers)) < 2 or not all(map(math.isfinite, numbers)):
        return ranks
    low, high = min(numbers), max(numbers)
    if low > 0 and high / low > _LOG_RATIO:
        scale = [math.log(number) for number in numbers]
    elif low > 0 or np.allclose(np.diff(numbers, 2), 0.0, atol=1e-9 * (high - low)):
        scale = numbers
    else:  # a scale such as 0 (automatic), 1, 2, 4, 8: zero has no logarithm, steps count
        return ranks
    low, high = min(scale), max(scale)
    return tuple((number - low) / (high - low) for number in scale)


class Lattice:
    """Every candidate of one engine.

    Args:
        space: the space file.
        engine: one of its engines.
        baseline: the engine's baseline; its values are always among the axes' values.
    """

    def __init__(self, space: Space, engine: str, baseline: Candidate) -> None:
        self.engine = engine
        self._space = space
        self.axes = tuple(_axis(name, knob, baseline) for name, knob in space.knobs_of(engine).items())
        self._column = {axis.name: i for i, axis in enumerate(self.axes)}
        self.sizes = np.array([len(axis.values) for axis in self.axes], dtype=np.int64)
        self._hold = np.array([axis.hold for axis in self.axes], dtype=np.int64)
        self._gated = [i for i, axis in enumerate(self.axes) if axis.condition is not None]
        self._rules = tuple(rule.condition for rule in space.rules_of(engine))
        self._tables: dict[int, Mask] = {}  # by identity: 1 and on are equal to Python, not to us
        self._resting: list[int] = []
        start = np.array([[axis.baseline for axis in self.axes]], dtype=np.int64)
        self.baseline: Points = self.canonical(start)[0]

    @property
    def dimensions(self) -> int:
        """Number of axes."""
        return len(self.axes)

    @property
    def cardinality(self) -> int:
        """Number of index combinations, inactive ones and forbidden ones included."""
        return math.prod(int(size) for size in self.sizes)

    def rest(self, knobs: Iterable[str]) -> None:
        """From now on nothing that sets one of these knobs otherwise than the baseline is worth a launch."""
        self._resting = sorted(self._column[name] for name in knobs)

    def encode(self, candidate: Candidate) -> Points:
        """The canonical point nearest to a candidate; knobs that this lattice does not have are ignored."""
        row = [
            axis.index(candidate.values[axis.name]) if axis.name in candidate.values else axis.hold
            for axis in self.axes
        ]
        point: Points = self.canonical(np.array([row], dtype=np.int64))[0]
        return point

    def decode(self, point: Points) -> Candidate:
        """The candidate that a point stands for."""
        chosen = {axis.name: axis.values[int(i)] for axis, i in zip(self.axes, point, strict=True)}
        return Candidate.of(self._space, self.engine, chosen)

    def inactive(self, points: Points) -> Mask:
        """Which knobs of which points are inactive; shape (points, axes)."""
        absent = np.zeros(points.shape, dtype=bool)
        for _ in range(len(self._gated) + 1):
            before = absent.copy()
            for i in self._gated:
                condition = self.axes[i].condition
                assert condition is not None
                absent[:, i] |= ~self._holds(condition, points, before)
            if (absent == before).all():
                break
        return absent

    def canonical(self, points: Points) -> Points:
        """The same points with every inactive knob at its `hold`."""
        held: Points = np.where(self.inactive(points), self._hold, points)
        return held

    def launchable(self, points: Points) -> Points:
        """The allowed ones of these points, canonical and with every resting knob at the baseline."""
        moved = points.copy()
        moved[:, self._resting] = self.baseline[self._resting]
        moved = self.canonical(moved)
        return moved[self.allowed(moved)]

    def allowed(self, points: Points) -> Mask:
        """Which points break none of the space's rules and change no resting knob; shape (points,)."""
        broken: Mask = (points[:, self._resting] != self.baseline[self._resting]).any(axis=1)
        if self._rules:
            absent = self.inactive(points)
            for rule in self._rules:
                broken |= self._holds(rule, points, absent)
        return ~broken

    def _holds(self, condition: Condition, points: Points, absent: Mask) -> Mask:
        if isinstance(condition, Comparison):
            column = self._column.get(condition.name)
            if column is None:
                fixed = condition.holds({"engine": self.engine})
                return np.full(len(points), fixed)
            table = self._table(condition, column)
            return table[np.where(absent[:, column], len(table) - 1, points[:, column])]
        if isinstance(condition, Negation):
            return ~self._holds(condition.inner, points, absent)
        terms = [self._holds(term, points, absent) for term in condition.terms]
        joined: Mask = np.logical_and.reduce(terms) if condition.word == "and" else np.logical_or.reduce(terms)
        return joined

    def _table(self, comparison: Comparison, column: int) -> Mask:
        """Truth of a comparison for each index of its axis; the last entry is for the absent knob."""
        table = self._tables.get(id(comparison))
        if table is None:
            axis = self.axes[column]
            truths = [comparison.holds({axis.name: value}) for value in axis.values]
            table = self._tables[id(comparison)] = np.array([*truths, comparison.holds({})], dtype=bool)
        return table
