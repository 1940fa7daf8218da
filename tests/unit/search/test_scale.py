"""On which scale effects add up, and what the data say about it."""

from __future__ import annotations

import numpy as np
import pytest
from support.search_spaces import additive, lattice

from tuner.search.fit import fit
from tuner.search.gp import GaussianProcess, data_of
from tuner.search.kernels import Kernel
from tuner.search.pool import random_points
from tuner.search.scale import BENDS, Scale, bends_for

GRID = lattice()
KERNEL = Kernel(GRID)


@pytest.mark.parametrize("bend", BENDS)
def test_what_is_put_on_a_scale_comes_back(bend: float) -> None:
    logs = np.random.default_rng(0).normal(4.0, 0.3, 50)
    scale = Scale.of(logs, bend)
    back, slope = scale.logs(scale.scaled(logs))
    assert back == pytest.approx(logs)
    step = 1e-6
    differences = (scale.logs(scale.scaled(logs) + step)[0] - scale.logs(scale.scaled(logs) - step)[0]) / (2 * step)
    assert slope == pytest.approx(differences, rel=1e-4)
    assert slope * scale.stretch(logs) == pytest.approx(np.full(50, scale.size))


def test_values_that_hardly_vary_are_not_blown_up() -> None:
    logs = np.array([1.0, 1.0001, 0.9999])
    assert np.abs(Scale.of(logs, -1.0).scaled(logs)).max() < 0.02


def test_values_of_very_different_size_stay_on_the_log_scale() -> None:
    assert bends_for(np.array([0.0, 1.0])) == BENDS
    assert bends_for(np.array([-10.0, 10.0])) == (0.0,)


def parts(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points, and a positive number for each that is a sum of one part per knob."""
    rng = np.random.default_rng(seed)
    points = rng.permutation(np.unique(random_points(GRID, 80, rng), axis=0))
    truth = additive(GRID, seed)
    total = np.array([truth(point)[0] for point in points])
    return points, 0.4 + (total - total.min()) / np.ptp(total)


def test_where_times_add_up_the_reciprocal_of_speed_is_chosen_and_where_shares_do_the_logarithm() -> None:
    points, time = parts()
    assert fit(KERNEL, data_of(KERNEL, points, -np.log(time))).scale.bend == -1.0
    assert fit(KERNEL, data_of(KERNEL, points, 0.3 * time)).scale.bend == 0.0


def test_the_right_scale_predicts_what_was_not_measured() -> None:
    points, time = parts(seed=1)
    known, rest = slice(0, 40), slice(40, None)
    mean, sd = GaussianProcess(KERNEL, data_of(KERNEL, points[known], -np.log(time[known]))).predict(points[rest])
    error = mean + np.log(time[rest])
    assert np.abs(error).mean() < 0.2 * np.log(time).std()
    assert np.mean(np.abs(error) < 3 * sd) > 0.9
