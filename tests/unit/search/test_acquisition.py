"""Expected improvement, of one objective and of a front."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.search.acquisition import (
    chance_above,
    expected_excess,
    expected_hypervolume_improvement,
    nondominated,
)


def simulated_improvement(mean: np.ndarray, sd: np.ndarray, front: np.ndarray, reference: np.ndarray) -> float:
    """The same quantity by brute force: random results, random places in the box above the reference."""
    rng = np.random.default_rng(0)
    results = mean + sd * rng.standard_normal((2000, len(mean)))
    top = np.maximum(results.max(axis=0), front.max(axis=0))
    places = reference + rng.random((8000, len(mean))) * (top - reference)
    free = places[~(front[None] >= places[:, None]).all(axis=2).any(axis=1)]
    won = (results[:, None] >= free[None]).all(axis=2).sum() / len(results)
    return float(won / len(places) * np.prod(top - reference))


@pytest.mark.slow
@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_hypervolume_improvement_agrees_with_simulation(objectives: int) -> None:
    rng = np.random.default_rng(objectives)
    front, reference = rng.random((6, objectives)), np.full(objectives, -0.1)
    mean, sd = 0.6 + 0.4 * rng.random((3, objectives)), np.full((3, objectives), 0.3)
    exact = expected_hypervolume_improvement(mean, sd, front, reference)
    for i in range(3):
        assert exact[i] == pytest.approx(simulated_improvement(mean[i], sd[i], front, reference), rel=0.2, abs=2e-3)


def test_with_one_objective_it_is_expected_improvement() -> None:
    mean, sd = np.array([[0.5], [1.5]]), np.array([[0.2], [0.4]])
    found = expected_hypervolume_improvement(mean, sd, np.array([[1.0], [0.3]]), np.array([0.0]))
    assert found == pytest.approx(expected_excess(mean[:, 0], sd[:, 0], 1.0))


def test_without_any_front_the_reference_is_what_counts() -> None:
    found = expected_hypervolume_improvement(
        np.array([[1.0, 2.0]]), np.full((1, 2), 1e-9), np.empty((0, 2)), np.zeros(2)
    )
    assert found[0] == pytest.approx(2.0)


def test_a_point_far_below_the_front_wins_nothing() -> None:
    found = expected_hypervolume_improvement(
        np.array([[0.1, 0.1]]), np.full((1, 2), 0.01), np.array([[1.0, 1.0]]), np.zeros(2)
    )
    assert 0 <= found[0] < 1e-9


def test_a_long_front_is_thinned_without_losing_its_ends() -> None:
    x = np.linspace(0.01, 1, 200)
    front = np.stack([x, 1.01 - x], axis=1)
    found = expected_hypervolume_improvement(np.array([[1.5, 0.005]]), np.full((1, 2), 0.01), front, np.zeros(2))
    assert found[0] < 0.01


def test_expected_excess_is_the_gap_when_nothing_is_uncertain() -> None:
    assert expected_excess(np.array([2.0, 0.0]), np.full(2, 1e-12), 1.5) == pytest.approx([0.5, 0.0])


def test_the_chance_to_reach_a_floor_is_even_at_the_floor() -> None:
    assert chance_above(np.array([1.0]), np.array([0.3]), 1.0)[0] == pytest.approx(0.5)


def test_of_equal_points_one_stays_on_the_front() -> None:
    kept = nondominated(np.array([[1.0, 1.0], [1.0, 1.0], [2.0, 0.0], [0.5, 0.5]]))
    assert kept.tolist() == [True, False, True, False]
