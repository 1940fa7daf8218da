"""The Gaussian process and its kernel."""

from __future__ import annotations

import numpy as np
import pytest
from support.search_spaces import additive, lattice

from tuner.search.gp import GaussianProcess, data_of
from tuner.search.kernels import Hyperparameters, Kernel
from tuner.search.pool import random_points

GRID = lattice()
KERNEL = Kernel(GRID)


def model_of(points: np.ndarray, values: np.ndarray, hints: np.ndarray | None = None) -> GaussianProcess:
    return GaussianProcess(KERNEL, data_of(KERNEL, points, values, hints=hints))


def points(count: int, seed: int = 0) -> np.ndarray:
    return np.unique(random_points(GRID, 3 * count, np.random.default_rng(seed)), axis=0)[:count]


def test_the_gradient_of_the_kernel_agrees_with_differences() -> None:
    rng = np.random.default_rng(0)
    hot = KERNEL.one_hot(points(12))
    weight = rng.normal(size=(len(hot), len(hot)))
    weight += weight.T
    vector = rng.normal(0, 0.5, 3 * GRID.dimensions + 3)

    def total(shift: np.ndarray) -> float:
        return float((KERNEL.between(Hyperparameters.unpack(vector + shift), hot, hot) * weight).sum())

    main, main_decay, joint_decay, joint = KERNEL.gradient(Hyperparameters.unpack(vector), hot, weight)
    slopes = np.concatenate([main, main_decay, joint_decay, [joint]])
    steps = 1e-5 * np.eye(len(vector))[: len(slopes)]
    differences = [(total(step) - total(-step)) / 2e-5 for step in steps]
    assert np.allclose(slopes, differences, atol=1e-6)


def test_an_additive_truth_is_predicted_where_it_was_never_measured() -> None:
    truth = additive(GRID)
    train, rest = points(40), points(300, seed=1)
    model = model_of(train, np.array([truth(p)[0] for p in train]))
    expected = np.array([truth(p)[0] for p in rest])
    mean, _ = model.predict(rest)
    assert np.sqrt(np.mean((mean - expected) ** 2)) < 0.4 * expected.std()


def test_launch_noise_is_estimated_from_repeats() -> None:
    rng = np.random.default_rng(3)
    train = np.repeat(points(12), 4, axis=0)
    truth = additive(GRID)
    values = np.array([truth(p)[0] for p in train]) + rng.normal(0, 0.02, len(train))
    model = model_of(train, values)
    assert model.launch_noise == pytest.approx(0.02, rel=0.4)


def test_a_slow_outlier_does_not_drag_its_neighbours_down() -> None:
    truth = additive(GRID)
    train = np.repeat(points(15), 2, axis=0)
    values = np.array([truth(p)[0] for p in train]) + np.random.default_rng(0).normal(0, 0.005, len(train))
    hit = values.copy()
    hit[7] -= 0.5
    mean, _ = model_of(train, hit).predict(train[7:8])
    assert abs(mean[0] - values[7]) < 0.1


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    hits = []
    for seed in range(10):
        truth, rng = additive(GRID, seed), np.random.default_rng(seed)
        train, rest = points(25, seed), points(60, seed + 100)
        values = np.array([truth(p)[0] for p in train]) + rng.normal(0, 0.01, len(train))
        mean, sd = model_of(train, values).predict(rest)
        hits += list(np.abs(mean - [truth(p)[0] for p in rest]) < 1.96 * sd)
    assert 0.85 <= np.mean(hits) <= 1.0


def test_the_doubt_about_a_difference_leaves_out_what_both_points_share() -> None:
    truth = additive(GRID)
    train, rest = points(20), points(12, seed=4)
    model = model_of(train, np.array([truth(p)[0] for p in train]))
    both = np.concatenate([rest, train[:1]])
    _, covariance = model.joint(both)
    expected = np.sqrt(np.diag(covariance)[:-1] + covariance[-1, -1] - 2 * covariance[:-1, -1])
    assert model.gap(rest, train[0]) == pytest.approx(expected, rel=1e-3)
    assert model.gap(train[:1], train[0])[0] < 1e-3


@pytest.mark.parametrize("values", [np.zeros(6), np.full(6, 5.0), np.r_[np.zeros(5), 1e-12], np.r_[np.zeros(5), 9.0]])
def test_degenerate_data_give_finite_predictions(values: np.ndarray) -> None:
    model = model_of(points(6), values)
    mean, sd = model.predict(points(20, seed=2))
    assert np.isfinite(mean).all()
    assert (sd > 0).all()


def test_a_launch_on_its_way_lowers_the_uncertainty_and_leaves_the_prediction() -> None:
    train, new = points(12), points(30, seed=5)[-1:]
    truth = additive(GRID)
    model = model_of(train, np.array([truth(p)[0] for p in train]))
    mean, sd = model.predict(new)
    model.expect(new)
    mean_then, sd_then = model.predict(new)
    assert mean_then == pytest.approx(mean, abs=1e-6)
    assert sd_then < 0.9 * sd


def test_hints_that_the_data_contradict_lose_their_say() -> None:
    truth = additive(GRID, size=0.2)
    own = points(25)
    values = np.array([truth(p)[0] for p in own])
    wrong = points(25, seed=9)
    lies = np.random.default_rng(0).normal(0, 0.3, len(wrong))
    rest = points(60, seed=11)
    expected = np.array([truth(p)[0] for p in rest])

    def error(model: GaussianProcess) -> float:
        return float(np.sqrt(np.mean((model.predict(rest)[0] - expected) ** 2)))

    told = np.r_[np.ones(len(wrong)), np.zeros(len(own))]
    with_lies = model_of(np.r_[wrong, own], np.r_[lies, values], hints=told)
    assert error(with_lies) < 1.5 * error(model_of(own, values))
