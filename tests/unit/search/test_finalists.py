"""Candidates worth confirming, and launches that are proposed at once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.search_spaces import BASELINE, ENGINE, candidate, space

from tuner.domain.candidate import Candidate
from tuner.domain.trial import Purpose
from tuner.search.base import Scored
from tuner.search.study import Search, open_search

SPACE = space()
BASE = candidate(SPACE)


def opened(url: str | None = None) -> Search:
    return open_search(SPACE, storage_url=url, study_name="s", baselines={ENGINE: BASE}, sampler="random")


def truth(of: Candidate) -> tuple[float, float]:
    """Steps help alone and cost throughput."""
    steps = float(of.values["steps"] or 0)
    return 60.0 + 3.0 * steps, 2000.0 - 15.0 * steps


def told(search: Search, of: Candidate, noise: float = 0.0, lucky: float = 1.0) -> int:
    proposal = search.propose(of, Purpose.CONFIRM)
    draw = random.Random(f"noise {proposal.trial}")
    alone, loaded = (value * (1 + draw.gauss(0.0, noise)) for value in truth(of))
    search.tell(proposal.trial, Scored((alone * lucky, loaded), seconds=100.0))
    return proposal.trial


def with_steps(steps: int, **more: object) -> Candidate:
    return candidate(SPACE, {**BASELINE, "steps": steps, **more})


@pytest.fixture(scope="module")
def searched() -> Search:
    search = opened()
    for steps in range(1, 9):
        for fraction in (0.75, 0.8, 0.9):
            told(search, with_steps(steps, fraction=fraction), noise=0.005)
    return search


def test_the_first_finalist_is_fast_alone_and_keeps_the_rest_with_a_margin(searched: Search) -> None:
    first = searched.finalists(ENGINE, 1)[0]
    # Five steps lose 3 % of the baseline's throughput; beyond them the floor is broken.
    assert first.values["steps"] in (3, 4, 5)


def test_more_finalists_only_add_to_the_list(searched: Search) -> None:
    five = searched.finalists(ENGINE, 5)
    assert len({c.fingerprint for c in five}) == 5
    assert searched.finalists(ENGINE, 2) == five[:2]


def test_the_baseline_is_never_a_finalist(searched: Search) -> None:
    assert BASE.fingerprint not in {c.fingerprint for c in searched.finalists(ENGINE, 50)}


def test_finalists_from_before_a_trial_stay_the_same_whatever_comes_after() -> None:
    search = opened()
    for steps in range(1, 7):
        told(search, with_steps(steps), noise=0.005)
    last = told(search, with_steps(7))
    early = search.finalists(ENGINE, 3, before=last)
    told(search, with_steps(8), lucky=2.0)
    assert search.finalists(ENGINE, 3, before=last) == early


def test_where_launches_scatter_by_a_fifth_a_slower_candidate_does_not_win_for_being_far_above_the_floor() -> None:
    search = opened()
    draw = random.Random(4)
    for steps in range(1, 9):
        alone, loaded = (60.0, 2000.0) if steps == 1 else (63.6, 2240.0) if steps < 5 else (57.0, 2700.0)
        for fraction in (0.75, 0.8, 0.9):
            proposal = search.propose(with_steps(steps, fraction=fraction), Purpose.CONFIRM)
            values = alone * (1 + draw.gauss(0.0, 0.01)), loaded * (1 + draw.gauss(0.0, 0.2))
            search.tell(proposal.trial, Scored(values, seconds=100.0))
    assert search.finalists(ENGINE, 1)[0].values["steps"] in (2, 3, 4)


def test_without_a_model_there_are_none() -> None:
    search = opened()
    told(search, with_steps(4))
    assert search.finalists(ENGINE, 3) == []


def test_a_launch_that_is_proposed_at_once_leaves_the_queue_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    proposal = opened(url).propose(with_steps(4), Purpose.ABLATE)
    again = opened(url)
    assert again.pending == {proposal.trial: proposal}
    assert proposal.purpose is Purpose.ABLATE
    again.tell(proposal.trial, Scored((70.0, 1950.0)))
    assert again.ask().purpose is Purpose.BASELINE
