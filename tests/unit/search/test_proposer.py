"""What is proposed next, in good spaces and in bad ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from support.search_spaces import ENGINE, additive, candidate, failed, history, lattice, scored, space

from tuner.domain.outcome import FailureClass
from tuner.search.base import SpaceExhausted
from tuner.search.history import Ending, Observation
from tuner.search.lattice import Lattice, Points
from tuner.search.proposer import Proposer


def run(
    grid: Lattice, launches: int, evaluate: Callable[[int, Points], Observation], seed: int = 0
) -> list[Observation]:
    """Launch the baseline and what is proposed after it."""
    seen = [evaluate(0, grid.baseline)]
    proposer = Proposer(grid, seed=seed)
    for trial in range(1, launches):
        seen.append(evaluate(trial, proposer.propose(history(grid, seen)).point))
    return seen


def noisy(grid: Lattice, seed: int = 0) -> Callable[[int, Points], Observation]:
    truth, rng = additive(grid, seed), np.random.default_rng(seed)
    return lambda trial, point: scored(trial, point, truth(point) + rng.normal(0, 0.01, 2))


@pytest.fixture(scope="module")
def whole() -> list[Observation]:
    """A search of 20 launches: the baseline, a start of 7, then the model's; its beginning is a shorter search."""
    grid = lattice()
    return run(grid, 20, noisy(grid))


def test_the_same_seed_and_history_give_the_same_proposals(whole: list[Observation]) -> None:
    grid = lattice()
    again = run(grid, 14, noisy(grid))
    assert [o.point.tolist() for o in again] == [o.point.tolist() for o in whole[:14]]


def test_a_resumed_search_goes_on_as_an_uninterrupted_one(whole: list[Observation]) -> None:
    grid = lattice()
    for cut in (5, 8, 13, 19):
        fresh = Proposer(grid, seed=0)
        assert (fresh.propose(history(grid, whole[:cut])).point == whole[cut].point).all()


def test_nothing_is_proposed_twice_and_no_rule_is_broken() -> None:
    forbidding = space(rules=[{"forbid": "backend == fa3 and steps > 3"}])
    grid = lattice(forbidding)
    points = np.array([o.point for o in run(grid, 24, noisy(grid))])
    assert len(np.unique(points, axis=0)) == 24
    assert grid.allowed(points).all()


def test_it_finds_the_best_of_an_additive_space_where_chance_does_not() -> None:
    grid = lattice()
    truth = additive(grid, seed=2)
    seen = run(grid, 30, noisy(grid, seed=2))
    worth = [truth(o.point)[0] for o in seen if truth(o.point)[1] >= np.log(0.97)]
    best = max(
        float(truth(p)[0]) for p in _everything(grid) if truth(p)[1] >= np.log(0.97)
    )  # fmt: skip
    assert max(worth) >= best - 0.02


def _everything(grid: Lattice) -> np.ndarray:
    axes = np.meshgrid(*[np.arange(n) for n in grid.sizes], indexing="ij")
    every = np.stack([axis.ravel() for axis in axes], axis=1)
    return np.unique(grid.canonical(every), axis=0)


def test_a_setting_that_hangs_is_left_alone_soon() -> None:
    grid = lattice()
    good = noisy(grid)

    def evaluate(trial: int, point: Points) -> Observation:
        return failed(trial, point) if point[0] == 1 else good(trial, point)

    hangs = [o.trial for o in run(grid, 30, evaluate) if o.ending is Ending.FAILED]
    assert 1 <= len(hangs) <= 4


def test_a_baseline_that_failed_once_is_launched_again_first() -> None:
    grid = lattice()
    choice = Proposer(grid, seed=0).propose(history(grid, [failed(0, grid.baseline)]))
    assert (choice.point == grid.baseline).all()
    twice = [failed(0, grid.baseline), failed(1, grid.baseline)]
    assert not (Proposer(grid, seed=0).propose(history(grid, twice)).point == grid.baseline).all()


def test_proposals_side_by_side_differ(whole: list[Observation]) -> None:
    grid = lattice()
    seen = whole[:16]
    proposer = Proposer(grid, seed=0)
    for trial in range(16, 20):
        point = proposer.propose(history(grid, seen)).point
        nothing = np.full(2, np.nan)
        seen.append(Observation(trial, point, Ending.PENDING, nothing, np.zeros(0), np.zeros(2)))
    assert len(np.unique([o.point for o in seen[16:]], axis=0)) == 4


@pytest.mark.parametrize(
    "evaluate",
    [
        pytest.param(lambda t, p: failed(t, p), id="all launches fail"),
        pytest.param(lambda t, p: scored(t, p, (4.0, 7.0)), id="all values are equal"),
        pytest.param(lambda t, p: scored(t, p, (1e-9 * t, 700.0 * t)), id="scales of very different size"),
        pytest.param(lambda t, p: failed(t, p) if t % 2 else scored(t, p, (0.1 * t, -0.1 * t)), id="half of them fail"),
        pytest.param(lambda t, p: failed(t, p) if t == 0 else scored(t, p, (t, t)), id="the baseline fails"),
    ],
)
def test_bad_results_do_not_stop_the_search(evaluate: Callable[[int, Points], Observation]) -> None:
    assert len(run(lattice(), 16, evaluate)) == 16


def _space(knobs: Mapping[str, Any]) -> Lattice:
    baseline = {name: knob.get("values", [None])[0] if "values" in knob else 1 for name, knob in knobs.items()}
    return lattice(space(knobs), baseline)


def test_a_space_of_one_value_is_exhausted_after_its_baseline() -> None:
    grid = _space({"only": {"values": ["a"], "flag": "--only"}})
    with pytest.raises(SpaceExhausted):
        run(grid, 2, lambda t, p: scored(t, p, (1, 1)))


def test_a_space_without_knobs_is_exhausted_after_its_baseline() -> None:
    with pytest.raises(SpaceExhausted):
        run(_space({}), 2, lambda t, p: scored(t, p, (1, 1)))


def test_a_small_space_is_proposed_to_its_last_candidate() -> None:
    grid = _space({"a": {"values": ["x", "y", "z"], "flag": "--a"}, "b": {"values": ["u", "v"], "flag": "--b"}})
    seen = run(grid, 6, noisy(grid))
    assert len({o.point.tobytes() for o in seen}) == 6
    with pytest.raises(SpaceExhausted):
        Proposer(grid, seed=0).propose(history(grid, seen))


def test_a_space_of_a_million_million_points_is_no_trouble() -> None:
    grid = _space({f"k{i}": {"int": {"low": 1, "high": 16}, "flag": f"--k{i}"} for i in range(10)})
    assert grid.cardinality >= 10**12
    assert len(run(grid, 16, noisy(grid))) == 16


def test_sixty_knobs_do_not_use_up_the_budget_on_the_start() -> None:
    grid = _space({f"k{i}": {"values": ["a", "b", "c", "d"], "flag": f"--k{i}"} for i in range(60)})
    evaluate, proposer = noisy(grid), Proposer(grid, seed=0)
    seen = [evaluate(0, grid.baseline)]
    while (choice := proposer.propose(history(grid, seen))).beliefs is None:
        seen.append(evaluate(len(seen), choice.point))
    assert len(seen) <= 30


def test_likely_values_are_looked_at_first() -> None:
    likely = {"likely": ["d"], "reason": "known to help"}
    knobs = {f"k{i}": {"values": ["a", "b", "c", "d"], "flag": f"--k{i}"} for i in range(6)}
    knobs["k4"] = {**knobs["k4"], "prior": likely}
    grid = _space(knobs)
    assert run(grid, 2, noisy(grid))[1].point[4] == 3


def test_a_candidate_decodes_to_what_can_be_launched(whole: list[Observation]) -> None:
    chosen = space()
    grid = lattice(chosen)
    for o in whole:
        assert candidate(chosen, grid.decode(o.point).values, ENGINE) == grid.decode(o.point)


def test_the_start_changes_one_knob_at_a_time() -> None:
    grid = lattice()
    seen = run(grid, 8, lambda t, p: scored(t, p, (0.0, 0.0)))
    assert all((o.point != grid.baseline).sum() == 1 for o in seen[1:])


def test_a_value_that_crashed_beside_another_new_one_is_tried_again_from_the_baseline() -> None:
    grid = lattice()
    steps, backend = (next(i for i, axis in enumerate(grid.axes) if axis.name == name) for name in ("steps", "backend"))
    alone = grid.baseline.copy()
    alone[backend] = 2

    def evaluate(trial: int, point: Points) -> Observation:
        if point[backend] == 2 and point[steps] > 0:
            return failed(trial, point, FailureClass.BAD_FLAG, 30)
        return scored(trial, point, (0.3, 0.0) if point[steps] > 0 else (0.0, 0.0))

    seen = run(grid, 14, evaluate, seed=0)  # with this seed steps come before backends
    crashed = next(o.trial for o in seen if o.ending is Ending.FAILED)
    assert any((o.point == alone).all() for o in seen[crashed:])


def test_a_value_that_hung_is_not_tried_again_in_the_start() -> None:
    grid = lattice()
    good = noisy(grid)
    seen = run(grid, 12, lambda t, p: failed(t, p) if p[0] == 1 else good(t, p))
    assert sum(o.ending is Ending.FAILED for o in seen) == 1
