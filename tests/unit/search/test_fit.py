"""How large the effects of knobs are expected to be, and what the data say about it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.search_spaces import additive, lattice

from tuner.search.fit import Data, Priors, fit
from tuner.search.gp import data_of
from tuner.search.kernels import Array, Kernel
from tuner.search.lattice import Points
from tuner.search.pool import random_points

GRID = lattice()
KERNEL = Kernel(GRID)


def one_at_a_time(count: int, rng: np.random.Generator) -> Points:
    """Points that each change one knob of the baseline."""
    points = np.repeat(GRID.baseline[None], count, axis=0)
    for row, axis in zip(points, itertools.cycle(range(GRID.dimensions)), strict=False):
        row[axis] = rng.integers(GRID.sizes[axis])
    return GRID.canonical(points)


def logs_at(points: Points, seed: int) -> Array:
    """An additive truth at these points, with launch noise of half a percent."""
    truth = additive(GRID, seed)
    return np.array([truth(point)[0] for point in points]) + np.random.default_rng(seed).normal(0, 0.005, len(points))


def told(seed: int) -> Data:
    points = one_at_a_time(30, np.random.default_rng(seed))
    return data_of(KERNEL, points, logs_at(points, seed))


def test_launches_that_each_change_one_knob_do_not_make_effects_seem_small() -> None:
    spreads, sizes = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        for points in (one_at_a_time(30, rng), random_points(GRID, 30, rng)):
            logs = logs_at(points, seed)
            spreads.append(logs.std())
            sizes.append(fit(KERNEL, data_of(KERNEL, points, logs)).scale.size)
    single, mixed = np.log(spreads).reshape(6, 2).mean(axis=0)
    assert mixed - single > 0.3, "together, knobs move the data more than one at a time"
    single, mixed = np.log(sizes).reshape(6, 2).mean(axis=0)
    assert abs(mixed - single) < 0.15


def test_only_how_much_the_data_vary_decides_how_large_effects_are_expected_to_be() -> None:
    data = told(seed=1)
    found = fit(KERNEL, data)
    higher = fit(KERNEL, Data(data.hot, data.values + 3.0, data.noise, data.hints))
    assert higher.scale.size == pytest.approx(found.scale.size, rel=1e-6)
    assert higher.theta.pack() == pytest.approx(found.theta.pack(), abs=1e-3)


def test_data_that_do_not_vary_are_fitted_all_the_same() -> None:
    points = one_at_a_time(12, np.random.default_rng(2))
    found = fit(KERNEL, data_of(KERNEL, points, np.full(12, 4.0)))
    assert np.isfinite(found.theta.pack()).all()
    assert found.scale.size == pytest.approx(0.01)


def test_wide_priors_pay_for_their_width() -> None:
    middle = np.zeros(3)
    assert Priors(middle, np.ones(3)).penalty == 0.0
    assert Priors(middle, np.full(3, np.e)).penalty == pytest.approx(3.0)
