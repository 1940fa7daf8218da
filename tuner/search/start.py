"""The first launches: each knob's most telling alternatives, one at a time, before any model can say more.

Two new values in one launch cannot be told apart: a good one beside a bad one looks bad, and the model has no reason to
come back to it. So several share a launch only where there are more values than the start has launches.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from tuner.search.failure_model import FailureModel
from tuner.search.history import Ending, History
from tuner.search.lattice import Lattice, Points

Change = tuple[int, int]
"""Axis and the index to put it to."""

_LONGEST = 28
"""The start takes at most so many launches; with more changes than that, several share a launch."""

SUSPECT = 0.5
"""A point that fails with more than this probability is left to later."""


def telling_changes(lattice: Lattice, rng: Generator) -> list[Change]:
    """Each category but the baseline's, and one point of each scale; of a knob with a prior its likely values only.

    Likely values come first. What else such a knob can take is left to the models, which find it where data disagree.
    On which side of the baseline a scale is tried is left to chance: one point shows whether the knob matters, and what
    lies on the other side is the model's to guess.
    """
    likely: list[Change] = []
    others: list[Change] = []
    for i, axis in enumerate(lattice.axes):
        last, start = len(axis.values) - 1, axis.baseline
        if axis.likely:
            chosen = {*axis.likely} - {start}
        elif axis.ordinal:
            sides = [start // 2] * (start > 0) + [start + (last - start + 1) // 2] * (start < last)
            chosen = {int(rng.choice(sides))} if sides else set()
        else:
            chosen = set(range(last + 1)) - {start}
        for index in sorted(chosen):
            (likely if axis.likely else others).append((i, index))
    rng.shuffle(others)
    return likely + others


def next_start(
    lattice: Lattice,
    history: History,
    failures: FailureModel,
    rng: Generator,
    *,
    base: Points,
    patience: float,
    shown_before: frozenset[Change] = frozenset(),
) -> Points | None:
    """The next point of the start: a change of the base that no working launch has shown yet; None when it is over.

    What an earlier study has shown (`shown_before`) needs no first look. A change whose launch failed is tried once
    more from the baseline: what else was new beside it is out of the way there, so that a second failure speaks against
    the change itself. Where failing again is expected to take more than `patience` seconds, it is left to the model.
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
    together = math.ceil(len(changes) / _LONGEST)
    fresh = [change for change in changes if change not in shown | failed]
    again = [change for change in changes if change in failed - shown]
    seen = history.seen()
    for queue, size, bases in ((fresh, together, (base, lattice.baseline)), (again, 1, (lattice.baseline, base))):
        for first in queue:
            in_turn = [first, *[c for c in queue if c != first]]
            for start in bases:
                point = _combine(lattice, start, in_turn, size)
                if point is None or point.tobytes() in seen:
                    continue
                risk = failures.assess(point[None])
                wasted = float(risk.chance[0] * risk.seconds[0])
                if risk.chance[0] <= SUSPECT and (queue is fresh or wasted <= patience):
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
