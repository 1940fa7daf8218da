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


def random_points(lattice: Lattice, count: int, rng: Generator) -> Points:
    """Canonical points drawn evenly per axis, forbidden ones left out; shape (≤ count, axes)."""
    draws: Points = rng.integers(0, lattice.sizes, size=(count, lattice.dimensions))
    points = lattice.canonical(draws)
    return points[lattice.allowed(points)]


def every_point(lattice: Lattice) -> Points:
    """All allowed canonical points, each once, in lexical order."""
    grid = np.array(list(itertools.product(*(range(size) for size in lattice.sizes))), dtype=np.int64)
    points: Points = np.unique(lattice.canonical(grid.reshape(-1, lattice.dimensions)), axis=0)
    return points[lattice.allowed(points)]


def any_unseen(lattice: Lattice, seen: frozenset[bytes], rng: Generator) -> Points | None:
    """One allowed point that was not proposed yet, at random; None when (as good as) all were."""
    if lattice.cardinality <= ENUMERABLE:
        points = unseen(every_point(lattice), seen)
    else:
        points = unseen(random_points(lattice, _RANDOM_DRAWS, rng), seen)
    return None if not len(points) else points[rng.integers(len(points))]
