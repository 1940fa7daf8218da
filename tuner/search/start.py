"""The first launches: each knob's most telling alternatives, a few at once, before any model can say more."""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from tuner.search.failure_model import FailureModel
from tuner.search.history import Ending, History
from tuner.search.lattice import Lattice, Points

Change = tuple[int, int]
"""Axis and the index to put it to."""

_LONGEST = 24
"""The start takes at most so many launches; with more changes than that, several share a launch."""

SUSPECT = 0.5
"""A point that fails with more than this probability is left to later."""


def telling_changes(lattice: Lattice, rng: Generator) -> list[Change]:
    """Each category but the baseline's, and two points of each scale; of a knob with a prior its likely values only.

    Likely values come first. What else such a knob can take is left to the models, which find it where data disagree.
    """
    likely: list[Change] = []
    others: list[Change] = []
    for i, axis in enumerate(lattice.axes):
        last, start = len(axis.values) - 1, axis.baseline
        if axis.likely:
            chosen = {*axis.likely} - {start}
        elif axis.ordinal:
            down = start // 2 if start > 0 else last // 3
            up = start + (last - start + 1) // 2 if start < last else (2 * last) // 3
            chosen = {down, up} - {start}
        else:
            chosen = set(range(last + 1)) - {start}
        for index in sorted(chosen):
            (likely if index in axis.likely else others).append((i, index))
    rng.shuffle(others)
    return likely + others


def next_start(
    lattice: Lattice,
    history: History,
    failures: FailureModel,
    rng: Generator,
    *,
    base: Points,
    together: int,
    shown_before: frozenset[Change] = frozenset(),
) -> Points | None:
    """The next point of the start: up to `together` changes of a base that no working launch has shown yet.

    What an earlier study has shown (`shown_before`) needs no first look. A change whose launch failed is tried again
    alone, unless it is the suspect. None when the start is over.
    """
    if len(history.all) > _LONGEST:
        return None
    shown = shown_before | {
        (i, int(o.point[i]))
        for o in history.all
        if o.ending is not Ending.FAILED and o.trial >= 0
        for i in range(lattice.dimensions)
    }
    failed = {(i, int(o.point[i])) for o in history.failures for i in range(lattice.dimensions)}
    changes = telling_changes(lattice, rng)
    together = max(together, math.ceil(len(changes) / _LONGEST))
    open_changes = [change for change in changes if change not in shown]
    fresh = [change for change in open_changes if change not in failed]
    seen = history.seen()
    for queue, size in ((fresh, together), (open_changes, 1)):
        for first in queue:
            in_turn = [first, *[c for c in queue if c != first]]
            for start in (base, lattice.baseline):
                point = _combine(lattice, start, in_turn, size)
                if point is None or point.tobytes() in seen:
                    continue
                if failures.assess(point[None]).chance[0] <= SUSPECT:
                    return point
    return None


def _combine(lattice: Lattice, base: Points, changes: list[Change], size: int) -> Points | None:
    """The base with the first change and as many of the others as fit beside it; None if the first does not fit."""
    point = base
    taken: list[Change] = []
    for axis, index in changes:
        if len(taken) == size:
            break
        if any(axis == other for other, _ in taken):
            continue
        trial = point.copy()
        trial[axis] = index
        trial = lattice.canonical(trial[None])[0]
        kept = all(trial[a] == i for a, i in [*taken, (axis, index)])
        # One change must not switch another knob off or on: what moved could not be told apart.
        clean = (trial != base).sum() == len(taken) + 1
        if kept and clean and lattice.allowed(trial[None])[0]:
            point = trial
            taken.append((axis, index))
        elif not taken:
            return None
    return np.asarray(point)
