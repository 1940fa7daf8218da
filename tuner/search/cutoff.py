"""Below which values a launch is beaten already, whatever the levels that it has not been measured at will show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.search.acquisition import nondominated
from tuner.search.beliefs import Beliefs
from tuner.search.kernels import Array
from tuner.search.lattice import Points

_SIGMAS = 3.0
"""Of the rival's value, and of the launch in question: nothing within noise is decided."""

_KEEPS_LIMITS = 0.95
"""A configuration that may break a limit beats none."""

_MOST = 8


@dataclass(frozen=True, slots=True)
class Floor:
    """Log values of some objectives, shape (objectives measured,): a launch below all of them is beaten by `rival`."""

    rival: int
    values: Array


def beaten_below(beliefs: Beliefs, point: Points, measured: Sequence[int]) -> list[Floor]:
    """Floors under which a launched point beats this one on every objective beyond noise.

    The objectives that are not measured yet get their optimistic prediction.

    Args:
        beliefs: of one engine.
        point: the one to be launched.
        measured: indices of the objectives that will be known; not all of them.
    """
    open_ones = [k for k in range(beliefs.history.objectives) if k not in measured]
    noise = np.array([model.launch_noise for model in beliefs.objectives])
    mean, sd = beliefs.predict(point[None])
    hoped = mean[0] + _SIGMAS * np.hypot(sd[0], noise)
    known = beliefs.known_points
    sure, sure_sd = beliefs.predict(known)
    least = sure - _SIGMAS * sure_sd
    rivals = (least[:, open_ones] > hoped[open_ones]).all(axis=1) & (beliefs.keeps_limits(known) >= _KEEPS_LIMITS)
    # Two launches are compared: the noise of both counts.
    floors = least[rivals][:, measured] - _SIGMAS * np.sqrt(2.0) * noise[measured]
    if not len(floors):
        return []
    kept = np.flatnonzero(nondominated(floors))[:_MOST]
    return [Floor(_trial_at(beliefs, known[rivals][i]), floors[i]) for i in kept]


def _trial_at(beliefs: Beliefs, point: Points) -> int:
    return next(o.trial for o in beliefs.history.successes if (o.point == point).all())
