"""Below which values a launch is beaten already, whatever the levels that it has not been measured at will show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.domain.load import LoadPoint
from tuner.domain.trial import Cutoff, CutoffBound
from tuner.search.acquisition import nondominated
from tuner.search.beliefs import Beliefs
from tuner.search.kernels import Array
from tuner.search.lattice import Points
from tuner.search.notebook import Notebook

_SIGMAS = 3.0
"""Of the rival's value, and of the launch in question: nothing within noise is decided."""

_KEEPS_LIMITS = 0.95
"""A configuration that may break a limit beats none."""

_MOST = 8


@dataclass(frozen=True, slots=True)
class _Floor:
    """Log values of some objectives, shape (objectives measured,): a launch below all of them is beaten by `rival`."""

    rival: int
    values: Array


def cutoffs(beliefs: Beliefs, notebook: Notebook, point: Points, loads: Sequence[LoadPoint]) -> list[Cutoff]:
    """When a launch that was measured at the first of its loads is beaten whatever the others will show.

    Args:
        beliefs: of one engine.
        notebook: of the study.
        point: the one to be launched.
        loads: in the order in which they are measured.
    """
    goals = notebook.objectives
    known = dict.fromkeys(tuple(k for k, goal in enumerate(goals) if goal.load <= last) for last in loads[:-1])
    found: list[Cutoff] = []
    for measured in known:
        if not measured or len(measured) == len(goals):
            continue
        for floor in _beaten_below(beliefs, point, measured):
            bounds = tuple(
                CutoffBound(goals[k].at, notebook.value(k, float(value)))
                for k, value in zip(measured, floor.values, strict=True)
            )
            found.append(Cutoff(floor.rival, bounds))
    return found


def _beaten_below(beliefs: Beliefs, point: Points, measured: Sequence[int]) -> list[_Floor]:
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
    return [_Floor(_trial_at(beliefs, known[rivals][i]), floors[i]) for i in kept]


def _trial_at(beliefs: Beliefs, point: Points) -> int:
    return next(o.trial for o in beliefs.history.successes if (o.point == point).all())
