"""What a launch is worth."""

from __future__ import annotations

import numpy as np
from support.search_spaces import additive, history, lattice, scored

from tuner.search.beliefs import Beliefs
from tuner.search.goal import Goal
from tuner.search.pool import random_points

GRID = lattice()


def test_a_launch_below_the_best_sure_one_promises_next_to_nothing() -> None:
    truth = additive(GRID, seed=2)
    drawn = np.unique(random_points(GRID, 80, np.random.default_rng(0)), axis=0)
    points = np.concatenate([GRID.baseline[None], drawn[(drawn != GRID.baseline).any(axis=1)][:50]])
    # No knob moves the second objective, but no launch is quite sure to keep its floor either: it is measured noisily.
    noise = np.random.default_rng(1).normal(0, 0.025, len(points))
    seen = [scored(i, p, (truth(p)[0], error)) for i, (p, error) in enumerate(zip(points, noise, strict=True))]
    goal = Goal(Beliefs(GRID, history(GRID, seen)))
    lead = np.array([o.values[0] for o in seen])
    middling = points[np.argsort(lead)[len(lead) // 2]]
    gain, _ = goal.gains(middling[None])
    assert gain[0] < 1e-6
