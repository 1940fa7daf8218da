"""What a launch may win: expected hypervolume improvement, and expected improvement under floors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tuner.search.kernels import Array

_FRONT_LIMIT = {1: 1, 2: 40, 3: 16, 4: 9}
"""Objectives → front points kept: the cells of the decomposition grow with its power."""


def nondominated(values: Array) -> NDArray[np.bool_]:
    """Which rows no other row beats (larger is better in every column; of equal rows the first stays)."""
    at_least = np.asarray((values[:, None, :] >= values[None, :, :]).all(axis=2), dtype=bool)
    more = np.asarray((values[:, None, :] > values[None, :, :]).any(axis=2), dtype=bool)
    order = np.arange(len(values))
    earlier_twin = at_least & at_least.T & (order[:, None] < order[None, :])
    beaten = (at_least & more) | earlier_twin
    return ~np.asarray(beaten.any(axis=0), dtype=bool)


def expected_excess(mean: Array, sd: Array, level: float) -> Array:
    """E[max(Y − level, 0)] of normal Y; shape of `mean` (Jones, Schonlau & Welch 1998, eq. 15)."""
    if np.isinf(level):
        return np.zeros_like(mean)
    z = (mean - level) / sd
    excess: Array = sd * (np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) + z * ndtr(z))
    return excess


def expected_hypervolume_improvement(mean: Array, sd: Array, front: Array, reference: Array) -> Array:
    """Expected growth of the volume between the front and the reference point, for 1 to 4 independent objectives.

    The region that no front point dominates is cut into the cells of the grid that the front's coordinates span. A
    value y wins, in each such cell, the part of the cell below y; that part is a product over objectives, so its
    expectation is a product of differences of `expected_excess` (grid decomposition; Couckuyt, Deschrijver & Dhaene
    2014).

    Args:
        mean: shape (points, objectives); larger is better.
        sd: the same shape, above 0.
        front: shape (front points, objectives).
        reference: shape (objectives,).
    """
    objectives = mean.shape[1]
    front = _thin(front[(front > reference).all(axis=1)], _FRONT_LIMIT[objectives])
    edges = [np.unique(np.append(front[:, k], reference[k])) for k in range(objectives)]
    corners = np.meshgrid(*edges, indexing="ij")
    open_cells = np.ones(corners[0].shape, dtype=bool)
    for point in front:
        open_cells &= ~np.logical_and.reduce([corner < value for corner, value in zip(corners, point, strict=True)])
    gain = open_cells.astype(float)[None]
    for k in range(objectives - 1, -1, -1):
        above = np.stack([expected_excess(mean[:, k], sd[:, k], level) for level in [*edges[k], np.inf]], axis=1)
        within = above[:, :-1] - above[:, 1:]  # expected length of y in each interval of this axis
        gain = np.einsum("p...c,pc->p...", np.broadcast_to(gain, (len(mean), *gain.shape[1:])), within)
    improvement: Array = np.maximum(gain, 0.0)
    return improvement


def _thin(front: Array, limit: int) -> Array:
    """At most `limit` points: the extremes, then those farthest from the ones already kept."""
    front = front[nondominated(front)] if len(front) else front
    if len(front) <= limit:
        return front
    span = np.ptp(front, axis=0) + 1e-12
    kept = list(dict.fromkeys(int(i) for i in front.argmax(axis=0)))[:limit]
    while len(kept) < limit:
        gap = (np.abs(front[:, None] - front[kept][None]) / span).sum(axis=2).min(axis=1)
        kept.append(int(gap.argmax()))
    return front[kept]


def chance_above(mean: Array, sd: Array, floor: float) -> Array:
    """P(Y ≥ floor) of normal Y."""
    chance: Array = ndtr((mean - floor) / sd)
    return chance
