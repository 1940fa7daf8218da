"""The best of a known truth: exchange ascent over single knobs and pairs, from many starts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Points = NDArray[np.int64]
Array = NDArray[np.float64]

KEEP = 0.97
"""Share of the baseline's throughput that the best single-stream point must keep."""

REFERENCE_SHARE = 0.9
"""Share of the baseline's values from which the front's area is reckoned."""

_STARTS = 40
_WEIGHTS = 16


@dataclass(frozen=True)
class Landscape:
    """A truth to be climbed.

    Attributes:
        sizes: values per knob.
        canonical: points → the same points with inactive knobs at the baseline.
        values: points → single-stream and throughput, shape (points, 2); NaN where the launch fails.
        base: the baseline's two values.
    """

    sizes: NDArray[np.int64]
    canonical: Callable[[Points], Points]
    values: Callable[[Points], Array]
    base: tuple[float, float]


class Climbed:
    """What the protocol of a problem says about its optimum, worked out when it is first asked for: a second's work.

    Attributes:
        landscape: the problem's truth.
        climb_seed: seed of the starts of the climbs.
    """

    landscape: Landscape
    climb_seed: int | Sequence[int]

    @cached_property
    def _best(self) -> tuple[float, float]:
        return best_single_and_area(self.landscape, np.random.default_rng(self.climb_seed))

    @property
    def BEST_SINGLE(self) -> float:  # noqa: N802 - the protocol's name
        """See `protocol.py`."""
        return self._best[0]

    @property
    def HV_BEST(self) -> float:  # noqa: N802 - the protocol's name
        """See `protocol.py`."""
        return self._best[1]


def best_single_and_area(of: Landscape, rng: Generator) -> tuple[float, float]:
    """Best single-stream among points that keep the throughput, and the area under the front beyond the reference."""
    base = np.array(of.base)

    def lead(values: Array) -> Array:
        short = np.maximum(KEEP - values[:, 1] / base[1], 0.0)
        return np.asarray(values[:, 0] / base[0] - 20.0 * short)

    def weighted(weight: float) -> Callable[[Array], Array]:
        both = np.array([weight, 1 - weight])
        return lambda values: np.asarray(np.log(values / base) @ both)

    def slack(floor: float) -> Callable[[Array], Array]:
        return lambda values: np.where(values[:, 1] >= floor * base[1], values[:, 0] / base[0], -1 + values[:, 1])

    goals = [lead] * _STARTS + [weighted(w) for w in np.linspace(0, 1, _WEIGHTS)] * 3
    goals += [slack(floor) for floor in np.linspace(REFERENCE_SHARE, 1.25, 2 * _WEIGHTS)]
    seen = np.concatenate([base[None], *(_climb(of, goal, rng) for goal in goals)])
    kept = seen[seen[:, 1] >= KEEP * base[1], 0]
    return float(kept.max()), area(seen, REFERENCE_SHARE * base)


def _climb(of: Landscape, goal: Callable[[Array], Array], rng: Generator) -> Array:
    """Best-improvement ascent; the working values seen on the way."""
    point = of.canonical(rng.integers(0, of.sizes, size=(1, len(of.sizes))))[0]
    seen, current, pairs = [np.array([of.base])], -np.inf, False
    while True:
        around = _around(of, point, pairs=pairs)
        values = of.values(around)
        works = np.isfinite(values).all(axis=1)
        if works.any():
            around, values = around[works], values[works]
            seen.append(values)
            score = goal(values)
            top = int(score.argmax())
            if score[top] > current + 1e-12:
                pairs, current, point = False, float(score[top]), around[top]
                continue
        if pairs:
            return np.concatenate(seen)
        pairs = True


def _around(of: Landscape, point: Points, *, pairs: bool) -> Points:
    moves = [(i, v) for i, n in enumerate(of.sizes) for v in range(n) if v != point[i]]
    chosen: list[tuple[tuple[int, int], ...]] = [(), *((move,) for move in moves)]
    if pairs:
        chosen += [pair for pair in itertools.combinations(moves, 2) if pair[0][0] != pair[1][0]]
    around = np.repeat(point[None], len(chosen), axis=0)
    for row, changes in enumerate(chosen):
        for i, v in changes:
            around[row, i] = v
    return of.canonical(around)


def area(points: Array, reference: Array) -> float:
    """Area that two-objective points (larger is better) dominate beyond the reference."""
    points = points[(points > reference).all(axis=1)]
    total, floor = 0.0, float(reference[1])
    for single, through in points[np.lexsort((-points[:, 1], -points[:, 0]))]:
        if through > floor:
            total += (single - reference[0]) * (through - floor)
            floor = float(through)
    return float(total)
