"""What the models say to people: which knobs matter, what was expected, what is left to win."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.random import Generator

from tuner.domain.values import spell
from tuner.search.acquisition import expected_excess
from tuner.search.base import KnobImportance, RemainingGain
from tuner.search.beliefs import Beliefs
from tuner.search.goal import floors
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


def knob_importance(beliefs: Beliefs, objective: int, label: str) -> list[KnobImportance]:
    """Each knob's best tried value against its worst, averaged over launched points; most important first.

    Only points where the knob is active count, and only values that a working launch had; a knob with fewer than two
    such values is left out.

    Args:
        beliefs: of one engine.
        objective: its index.
        label: its name.
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
        found.append(
            KnobImportance(
                engine=beliefs.lattice.engine,
                knob=axis.name,
                objective=label,
                effect=math.expm1(effect),
                low=math.expm1(effect - half),
                high=math.expm1(effect + half),
                best=spell(axis.values[int(tried[top])]),
                trials=int((mine[:, i] != axis.baseline).sum()),
            )
        )
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


def remaining_gain(beliefs: Beliefs, confidence: float, rng: Generator) -> RemainingGain:
    """What the best unlaunched candidate may add to the best launched one, on the lead objective.

    Both are compared within each of many joint samples of the models, so that what they share cancels.

    Args:
        beliefs: of one engine.
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
    for draw, floor in zip(draws[1:], floors(beliefs)[1:], strict=True):
        lead[draw < floor] = -np.inf
    best_known = np.maximum(lead[:, : len(known)].max(axis=1), draws[0][:, : len(known)].min(axis=1))
    gain = np.expm1(np.maximum(lead[:, len(known) :].max(axis=1) - best_known, 0.0))
    return RemainingGain(float(gain.mean()), float(np.quantile(gain, confidence)), confidence)


def _samples(model: GaussianProcess, points: Points, rng: Generator) -> Array:
    mean, covariance = model.joint(points)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn: Array = mean + rng.standard_normal((_SAMPLES, len(points))) @ root.T
    return drawn
