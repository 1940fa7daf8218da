"""Which launched candidates are worth confirming: what the models expect of them, not what one launch showed.

The best value seen is the best of many lucky launches, and where an objective must keep a floor the candidates that
seem just above it are mostly below. So each finalist is the best by the models' means, the other objectives kept with a
margin; larger margins give up some of the lead objective for certainty.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tuner.search.beliefs import Beliefs
from tuner.search.goal import floors
from tuner.search.kernels import Array
from tuner.search.lattice import Points

MARGINS = (1.0, 2.0, 0.0)
"""The most wanted first: one is safe for most candidates, none is a bet.

In launch noises, or in standard deviations of the difference to the baseline where many launches together tell it
better than one does: where launches scatter by 20 %, hardly anything is a whole launch noise above a floor, and what
seems to be is an accident.
"""


def finalists(beliefs: Beliefs, count: int) -> list[Points]:
    """Up to `count` launched points other than the baseline, the most wanted first.

    In turn: the best lead objective at each of `MARGINS`, the best of all objectives together, and the best of each
    other objective. A point that breaks a limit more probably than not is none, nor one that is expected to be worse
    than the baseline on every objective.
    """
    known = beliefs.known_points
    known = known[(known != beliefs.lattice.baseline).any(axis=1)]
    if not len(known):
        return []
    mean, _ = beliefs.predict(known)
    at_baseline, _ = beliefs.predict(beliefs.lattice.baseline[None])
    kept = (beliefs.keeps_limits(known) >= 0.5) & (mean > at_baseline).any(axis=1)
    chosen: list[int] = []
    for worth in _wishes(beliefs, known, mean):
        allowed = np.where(kept, worth, -np.inf)
        best = int(allowed.argmax())
        if np.isfinite(allowed[best]) and best not in chosen:
            chosen.append(best)
    return [known[i] for i in chosen[:count]]


def _wishes(beliefs: Beliefs, known: Points, mean: Array) -> Iterator[Array]:
    """What makes a point wanted, one wish after the other; -inf where it does not count."""
    lead, *others = (_at_margin(beliefs, known, mean, margin) for margin in MARGINS)
    yield lead
    yield mean.sum(axis=1)
    yield from others
    for k in range(1, mean.shape[1]):
        yield mean[:, k]
    # With fewer distinct wishes than finalists asked for: what comes next on all objectives together.
    order = np.argsort(-mean.sum(axis=1), kind="stable")
    for index in order:
        yield np.where(np.arange(len(mean)) == index, 0.0, -np.inf)


def _at_margin(beliefs: Beliefs, known: Points, mean: Array, margin: float) -> Array:
    """Lead values of points that are better there than the baseline and keep the floors; -inf of the others."""
    baseline = beliefs.lattice.baseline
    floor = floors(beliefs)
    at_baseline, _ = beliefs.predict(baseline[None])
    fit = mean[:, 0] > at_baseline[0, 0]
    for k, model in enumerate(beliefs.objectives[1:], 1):
        unsure = np.minimum(model.gap(known, baseline), model.launch_noise)
        fit &= mean[:, k] >= floor[k] + margin * unsure
    worth: Array = np.where(fit, mean[:, 0], -np.inf)
    return worth
