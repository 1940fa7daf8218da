"""What the models say to people: which knobs matter, what was expected, what is left to win."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from tuner.domain.values import spell
from tuner.search.acquisition import expected_excess
from tuner.search.base import RemainingGain
from tuner.search.beliefs import Beliefs
from tuner.search.gp import GaussianProcess
from tuner.search.kernels import Array
from tuner.search.lattice import Points
from tuner.search.pool import candidate_pool, neighbours

_Z95 = 1.96
_AVERAGED_OVER = 40
_POOL = 600
_LIKELIEST = 150
_SAMPLES = 256
_UNLIKELY_TO_WORK = 0.5


@dataclass(frozen=True, slots=True)
class AxisEffect:
    """How one axis moves one objective, in log units; `low` and `high` bound 95 %."""

    axis: int
    effect: float
    low: float
    high: float
    best: int
    trials: int


def axis_effects(beliefs: Beliefs, objective: int) -> list[AxisEffect]:
    """The difference between each axis' best and worst tried value, averaged over launched points; largest first.

    Only points where the knob is active count, and only values that a working launch had; an axis with fewer than two
    such values is left out.
    """
    model = beliefs.objectives[objective]
    worked = beliefs.history.points(beliefs.history.successes)
    active = ~beliefs.lattice.inactive(worked)
    found = []
    for i, axis in enumerate(beliefs.lattice.axes):
        mine = worked[active[:, i]]
        tried = np.unique(mine[:, i])
        if len(tried) < 2:
            continue
        mean, covariance = _averages(model, mine[-_AVERAGED_OVER:], i, tried)
        top, bottom = int(mean.argmax()), int(mean.argmin())
        effect = float(mean[top] - mean[bottom])
        variance = covariance[top, top] + covariance[bottom, bottom] - 2 * covariance[top, bottom]
        half = _Z95 * float(np.sqrt(max(variance, 0.0)))
        away = int((mine[:, i] != axis.baseline).sum())
        found.append(AxisEffect(i, effect, effect - half, effect + half, int(tried[top]), away))
    return sorted(found, key=lambda e: -e.effect)


def _averages(model: GaussianProcess, around: Points, axis: int, values: Points) -> tuple[Array, Array]:
    """Posterior mean and covariance of the objective averaged over some points, for each value of one axis."""
    moved = np.repeat(around, len(values), axis=0)
    moved[:, axis] = np.tile(values, len(around))
    mean, covariance = model.joint(moved)
    average = np.tile(np.eye(len(values)), len(around)) / len(around)
    return average @ mean, average @ covariance @ average.T


def teaches(beliefs: Beliefs, point: Points) -> Mapping[str, float]:
    """How uncertain the lead objective's effect of each changed value still is, most uncertain first (a share)."""
    lattice = beliefs.lattice
    changed = np.flatnonzero(point != lattice.baseline)
    sd = beliefs.objectives[0].effect_uncertainty(changed, point[changed], lattice.baseline[changed])
    named = {
        f"{lattice.axes[i].name}={spell(lattice.axes[i].values[int(point[i])])}": float(s)
        for i, s in zip(changed, sd, strict=True)
    }
    return dict(sorted(named.items(), key=lambda item: -item[1]))


def remaining_gain(beliefs: Beliefs, floors: Array, confidence: float, rng: Generator) -> RemainingGain:
    """What the best unlaunched candidate may add to the best launched one, on the lead objective.

    Both are compared within each of many joint samples of the models, so that what they share cancels.

    Args:
        beliefs: of one engine.
        floors: log value that each objective after the first must keep, shape (objectives,); the first is ignored.
        confidence: of the upper bound.
        rng: for pool and samples.
    """
    seen = beliefs.history.seen()
    known = beliefs.known_points
    mean, _ = beliefs.predict(known)
    parents = known[np.argsort(-mean[:, 0], kind="stable")[:8]]
    pool = candidate_pool(beliefs.lattice, parents, _POOL, seen, rng)
    pool = np.concatenate([pool, neighbours(beliefs.lattice, parents[:2], seen)])
    if not len(pool):
        return RemainingGain(0.0, 0.0, confidence)
    pool_mean, pool_sd = beliefs.predict(pool)
    hope = expected_excess(pool_mean[:, 0], pool_sd[:, 0], float(mean[:, 0].max()))
    hope *= beliefs.failures.assess(pool).chance <= _UNLIKELY_TO_WORK
    pool = pool[np.argsort(-hope, kind="stable")[:_LIKELIEST]]
    both = np.concatenate([known, pool])
    draws = [_samples(model, both, rng) for model in beliefs.objectives]
    lead = draws[0].copy()
    for k, draw in enumerate(draws[1:], 1):
        lead[draw < floors[k]] = -np.inf
    best_known = np.maximum(lead[:, : len(known)].max(axis=1), draws[0][:, : len(known)].min(axis=1))
    gain = np.expm1(np.maximum(lead[:, len(known) :].max(axis=1) - best_known, 0.0))
    return RemainingGain(float(gain.mean()), float(np.quantile(gain, confidence)), confidence)


def _samples(model: GaussianProcess, points: Points, rng: Generator) -> Array:
    mean, covariance = model.joint(points)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn: Array = mean + rng.standard_normal((_SAMPLES, len(points))) @ root.T
    return drawn
