"""What every sampler keeps, ours and Optuna's."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from support.search_spaces import BASELINE, ENGINE, KNOBS, candidate, space

from tuner.domain.outcome import FailureClass
from tuner.domain.space import Space
from tuner.domain.trial import Purpose
from tuner.errors import UserError
from tuner.search.base import Infeasible, Scored, SpaceExhausted
from tuner.search.samplers import SAMPLER_NAMES
from tuner.search.study import Search, open_search

NEEDS = {"gp": "torch", "cmaes": "cmaes"}
SINGLE_OBJECTIVE_ONLY = frozenset({"cmaes"})
RULE = {"forbid": "backend == fa3 and steps > 4"}
LAUNCHES = 14


def opened(sampler: str, seed: int = 0, url: str | None = None, of: Space | None = None) -> Search:
    for module in [NEEDS[sampler]] if sampler in NEEDS else []:
        if find_spec(module) is None:
            pytest.skip(f"the sampler {sampler} needs {module}, which is not installed")
    goals = [{"metric": "output_tok_s", "level": 1}] if sampler in SINGLE_OBJECTIVE_ONLY else []
    chosen = of or space(KNOBS, rules=[RULE], objectives=goals)
    baselines = {ENGINE: candidate(chosen, BASELINE if of is None else {"a": "x"})}
    return open_search(chosen, storage_url=url, study_name="s", baselines=baselines, seed=seed, sampler=sampler)


def run(search: Search, launches: int, objectives: int = 2) -> list[str]:
    shown = []
    for turn in range(launches):
        proposal = search.ask()
        shown.append(str(proposal.candidate))
        if turn % 4 == 3:
            search.tell(proposal.trial, Infeasible(FailureClass.OOM_GRAPH, 30))
        else:
            search.tell(proposal.trial, Scored((50.0 + turn, 2000.0 - turn)[:objectives], seconds=180))
    return shown


def objectives_of(sampler: str) -> int:
    return 1 if sampler in SINGLE_OBJECTIVE_ONLY else 2


@pytest.fixture(params=[name for name in SAMPLER_NAMES if name != "grid"])
def sampler(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_baseline_comes_first(sampler: str) -> None:
    assert opened(sampler).ask().purpose is Purpose.BASELINE


def test_no_candidate_comes_twice_and_none_breaks_a_rule(sampler: str) -> None:
    shown = run(opened(sampler), LAUNCHES, objectives_of(sampler))
    assert len(set(shown)) == LAUNCHES
    assert not any("backend=fa3" in text and any(f"steps={n}" in text for n in range(5, 9)) for text in shown)


def test_the_same_seed_gives_the_same_candidates(sampler: str) -> None:
    first, second = (run(opened(sampler, seed=5), LAUNCHES, objectives_of(sampler)) for _ in range(2))
    assert first == second


def test_a_small_space_is_walked_to_its_end(sampler: str) -> None:
    goals = [{"metric": "output_tok_s", "level": 1}] if sampler in SINGLE_OBJECTIVE_ONLY else []
    knobs = {"a": {"values": ["x", "y"], "flag": "--a"}, "b": {"switch": True, "flag": "--b"}}
    small = space(knobs, objectives=goals)
    search = opened(sampler, of=small)
    shown = run(search, 6, objectives_of(sampler))  # b: on, off, and left out as in the baseline
    assert len(set(shown)) == 6
    with pytest.raises(SpaceExhausted):
        search.ask()


def test_a_study_may_go_on_with_another_sampler(tmp_path_factory: pytest.TempPathFactory) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('search')}/s.db"
    shown = run(opened("random", url=url), 6) + run(opened("tuner", url=url), 6) + run(opened("tpe", url=url), 4)
    assert len(set(shown)) == 16


def test_the_grid_is_for_spaces_that_can_be_laid_out() -> None:
    small = space({"a": {"values": ["x", "y", "z"], "flag": "--a"}})
    assert len(set(run(opened("grid", of=small), 3))) == 3
    huge = space({"a": {"values": ["x", "y"], "flag": "--a"}} | {
        f"k{i}": {"int": {"low": 1, "high": 16}, "flag": f"--k{i}"} for i in range(8)
    })  # fmt: skip
    with pytest.raises(UserError, match="grid"):
        opened("grid", of=huge)


def test_a_sampler_that_lacks_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.search.samplers.find_spec", lambda name: None)
    with pytest.raises(UserError) as caught:
        open_search(
            space(), storage_url=None, study_name="s", baselines={ENGINE: candidate(space())}, sampler="gp"
        )  # fmt: skip
    assert caught.value.hint is not None
    assert "tuner[gp]" in caught.value.hint
