"""Spaces and results that nobody should give, and somebody will."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.search_spaces import ENGINE, additive, candidate, failed, history, lattice, scored, space

from tuner.domain.failure_memory import FailureMemory, Tried
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.space import Space
from tuner.search import beliefs as beliefs_module
from tuner.search.base import Infeasible, Scored, SpaceExhausted, Verdict
from tuner.search.beliefs import Beliefs
from tuner.search.fit import Data
from tuner.search.proposer import Proposer
from tuner.search.study import Search, open_search

LAUNCHES = 14
MANY = {f"k{i}": {"values": ["a", "b", "c"], "flag": f"--k{i}"} for i in range(60)}
HUGE = {f"n{i}": {"int": {"low": 1, "high": 1000}, "flag": f"--n{i}"} for i in range(4)}


def opened(of: Space, start: dict[str, Any]) -> Search:
    return open_search(of, storage_url=None, study_name="s", baselines={ENGINE: candidate(of, start)})


def run(search: Search, verdict: Callable[[int], Verdict], launches: int = LAUNCHES) -> list[str]:
    asked = []
    for turn in range(launches):
        proposal = search.ask()
        asked.append(str(proposal.candidate))
        search.tell(proposal.trial, verdict(turn))
    return asked


def rising(turn: int) -> Verdict:
    return Scored((50.0 + turn, 2000.0 - turn), seconds=100)


@pytest.mark.parametrize("sampler", ["tuner", "tpe", "qmc"])
def test_a_seed_may_be_as_large_as_one_likes(sampler: str) -> None:
    asked = []
    for seed in (7, 2**40 + 7):
        of = space({"a": {"int": {"low": 1, "high": 1000}, "flag": "--a"}})
        baselines = {ENGINE: candidate(of, {"a": 1})}
        search = open_search(of, storage_url=None, study_name="s", baselines=baselines, seed=seed, sampler=sampler)
        asked.append(run(search, rising, 4))
    assert all(len(set(names)) > 1 for names in asked)


def test_a_space_with_one_point_is_launched_once_and_then_done() -> None:
    one = space({"a": {"values": ["x"], "flag": "--a"}})
    search = opened(one, {"a": "x"})
    run(search, rising, 1)
    with pytest.raises(SpaceExhausted):
        search.ask()
    assert search.remaining_gain() is None
    assert list(search.importance()) == []


def test_a_knob_with_one_value_beside_others_is_never_a_change() -> None:
    mixed = space({"a": {"values": ["x"], "flag": "--a"}, "b": {"int": {"low": 1, "high": 30}, "flag": "--b"}})
    search = opened(mixed, {"a": "x", "b": 1})
    assert len(set(run(search, rising))) == LAUNCHES
    assert {row.knob for row in search.importance()} == {"b"}


@pytest.mark.parametrize(
    ("knobs", "start"),
    [(HUGE, dict.fromkeys(HUGE, 1)), (MANY, dict.fromkeys(MANY, "a"))],
    ids=["10^12 points", "60 knobs"],
)
def test_a_space_too_large_to_walk_through_is_searched(knobs: dict[str, Any], start: dict[str, Any]) -> None:
    search = opened(space(knobs), start)
    assert len(set(run(search, rising))) == LAUNCHES


def test_launches_that_all_fail_still_give_new_candidates_and_no_model() -> None:
    of = space()
    search = opened(of, dict(candidate(of).values))
    run(search, lambda turn: Infeasible(FailureClass.OOM_RUNTIME, 40.0))
    assert search.remaining_gain() is None
    assert list(search.importance()) == []
    assert list(search.finalists(ENGINE, 3)) == []


def test_values_that_are_all_equal_are_no_effect() -> None:
    of = space()
    search = opened(of, dict(candidate(of).values))
    run(search, lambda turn: Scored((50.0, 2000.0), seconds=100))
    assert all(row.low <= row.effect <= row.high for row in search.importance())
    assert all(row.effect < 0.01 for row in search.importance())
    gain = search.remaining_gain()
    assert gain is not None
    assert 0 <= gain.expected < 0.05


def test_numbers_that_are_none_teach_nothing_and_break_nothing() -> None:
    of = space()
    search = opened(of, dict(candidate(of).values))
    bad = [math.nan, math.inf, -1.0, 0.0]
    run(search, lambda turn: Scored((bad[turn % 4], 2000.0)) if turn % 3 == 2 else rising(turn))
    assert all(math.isfinite(row.effect) for row in search.importance())


def test_objectives_of_very_different_scale_and_opposite_direction_are_searched_alike() -> None:
    goals = [{"metric": "output_tok_s", "level": 1}, {"metric": "ttft_p99_ms", "level": 128}]

    def asked(rate: float, latency: float) -> list[str]:
        of = space(objectives=goals)
        search = opened(of, dict(candidate(of).values))
        return run(search, lambda turn: Scored((rate * (1 + 0.01 * turn), latency * (1 - 0.01 * turn)), seconds=9))

    assert asked(1e9, 1e-6) == asked(1.0, 1.0)


@pytest.mark.slow
def test_of_thousands_of_trials_only_a_bounded_part_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    of = lattice()
    truth = additive(of, seed=3)
    rng = np.random.default_rng(0)
    points = of.canonical(rng.integers(0, of.sizes, size=(3000, of.dimensions)))
    seen = [
        failed(i, point) if i % 7 == 0 else scored(i, point, truth(point) + rng.normal(0, 0.005, 2) + 4.0)
        for i, point in enumerate(points)
    ]
    fitted: list[int] = []
    real = beliefs_module.fit

    def counting(kernel: Any, data: Data) -> Any:
        fitted.append(len(data.values))
        return real(kernel, data)

    monkeypatch.setattr(beliefs_module, "fit", counting)
    told = history(of, seen)
    choice = Proposer(of, seed=0).propose(told)
    assert choice.point.tobytes() not in told.seen()
    assert len(fitted) == 2
    assert max(fitted) <= 150
    model = Beliefs(of, told)
    assert max(len(m._data.values) for m in model.objectives) <= 300


def test_the_failure_memory_looks_at_each_combination_once(monkeypatch: pytest.MonkeyPatch) -> None:
    of = lattice()
    rng = np.random.default_rng(1)
    points = of.canonical(rng.integers(0, of.sizes, size=(3000, of.dimensions)))
    failure = Failure(FailureClass.OOM_GRAPH, Phase.GRAPH_CAPTURE)
    tried = [Tried(i, of.decode(p), failure if i % 5 == 0 else None) for i, p in enumerate(points)]
    looked: list[tuple[Any, ...]] = []
    real = FailureMemory._accuse
    monkeypatch.setattr(
        FailureMemory, "_accuse", lambda self, engine, settings: looked.append(settings) or real(self, engine, settings)
    )
    memory = FailureMemory(tried)
    assert memory.set_aside == memory.set_aside
    assert len(looked) == len(set(looked))
    values = sum(len(axis.values) for axis in of.axes)
    assert len(looked) <= values + values * values
