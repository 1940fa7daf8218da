"""Points worth scoring: a finite pool drawn from a lattice that is too large to walk through."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.random import Generator

from tuner.search.history import unseen
from tuner.search.lattice import Lattice, Points

ENUMERABLE = 4096
"""A lattice with at most this many points is walked through instead of sampled."""

_RANDOM_DRAWS = 4096
_CHANGES = (1, 2, 3, 4)
_CHANGES_SHARE = (0.35, 0.30, 0.20, 0.15)
_CROSSED_SHARE = 0.3
_STEP_SHARE = 0.5
"""Share of the changes of a scale that are small steps instead of jumps."""

_STEPS = (-2, -1, 1, 2)


def random_points(lattice: Lattice, count: int, rng: Generator) -> Points:
    """Launchable points drawn evenly per axis; shape (≤ count, axes)."""
    return lattice.launchable(rng.integers(0, lattice.sizes, size=(count, lattice.dimensions)))


def every_point(lattice: Lattice) -> Points:
    """All launchable points, each once, in lexical order."""
    grid = np.array(list(itertools.product(*(range(size) for size in lattice.sizes))), dtype=np.int64)
    return unseen(lattice.launchable(grid.reshape(max(1, len(grid)), lattice.dimensions)), frozenset())


def any_unseen(lattice: Lattice, seen: frozenset[bytes], rng: Generator) -> Points | None:
    """One allowed point that was not proposed yet, at random; None when (as good as) all were."""
    if lattice.cardinality <= ENUMERABLE:
        points = unseen(every_point(lattice), seen)
    else:
        points = unseen(random_points(lattice, _RANDOM_DRAWS, rng), seen)
    return None if not len(points) else points[rng.integers(len(points))]


def candidate_pool(lattice: Lattice, parents: Points, count: int, seen: frozenset[bytes], rng: Generator) -> Points:
    """Distinct allowed new points: all of a small lattice, else offspring of the parents and a fifth random ones."""
    if lattice.cardinality <= ENUMERABLE:
        return unseen(every_point(lattice), seen)
    strangers = random_points(lattice, count // 5, rng)
    if not len(parents):
        return unseen(strangers, seen)
    born = lattice.launchable(_offspring(lattice, parents, count - count // 5, rng))
    return unseen(np.concatenate([strangers, born]), seen)


def _offspring(lattice: Lattice, parents: Points, count: int, rng: Generator) -> Points:
    """Copies of parents, some crossed with another, each with one to four knobs changed."""
    d = lattice.dimensions
    children = parents[rng.integers(0, len(parents), count)].copy()
    partners = parents[rng.integers(0, len(parents), count)]
    crossed = (rng.random((count, 1)) < _CROSSED_SHARE) & (rng.random((count, d)) < 0.5)
    children[crossed] = partners[crossed]
    changes = rng.choice(_CHANGES, size=count, p=_CHANGES_SHARE)
    rank = rng.random((count, d)).argsort(axis=1).argsort(axis=1)
    changed = rank < changes[:, None]
    jumps = rng.integers(0, lattice.sizes, size=(count, d))
    steps = np.clip(children + rng.choice(_STEPS, size=(count, d)), 0, lattice.sizes - 1)
    ordinal = np.array([axis.ordinal for axis in lattice.axes])
    stepping = ordinal & (rng.random((count, d)) < _STEP_SHARE)
    children[changed] = np.where(stepping, steps, jumps)[changed]
    return children


def neighbours(lattice: Lattice, points: Points, seen: frozenset[bytes]) -> Points:
    """Every new allowed point that differs from one of these in a single knob."""
    around = []
    for i, size in enumerate(lattice.sizes):
        moved = np.repeat(points, size, axis=0)
        moved[:, i] = np.tile(np.arange(size), len(points))
        around.append(moved)
    if not around:
        return points[:0]
    return unseen(lattice.launchable(np.concatenate(around)), seen)
