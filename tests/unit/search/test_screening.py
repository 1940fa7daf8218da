"""Optuna's own samplers are kept from what is known to fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from support.search_spaces import BASELINE, candidate, scored, space

from tuner.domain.candidate import Candidate
from tuner.domain.outcome import FailureClass
from tuner.domain.trial import Purpose
from tuner.search.base import Infeasible, Scored
from tuner.search.history import Ending, History, Observation
from tuner.search.lattice import Lattice
from tuner.search.screening import Screening
from tuner.search.study import Search, open_search

SPACE = space()
HANG_S = 600.0


def opened(sampler: str, url: str | None = None) -> Search:
    baselines = {engine: candidate(SPACE, BASELINE, engine) for engine in SPACE.engines}
    return open_search(SPACE, storage_url=url, study_name="s", baselines=baselines, sampler=sampler)


def hangs(of: Candidate) -> bool:
    return of.values["backend"] == "flashinfer" and of.values["graph"] is True


def launch(search: Search, launches: int) -> list[Candidate]:
    """Launches on a machine where one pair of values hangs."""
    asked = []
    for _ in range(launches):
        proposal = search.ask()
        asked.append(proposal.candidate)
        steps = float(proposal.candidate.values["steps"] or 0)
        hung = hangs(proposal.candidate)
        search.tell(
            proposal.trial,
            Infeasible(FailureClass.NCCL_HANG, HANG_S) if hung else Scored((60 + steps, 2000 - steps), seconds=180),
        )
    return asked


@pytest.mark.parametrize("sampler", ["random", "tpe", "nsga2"])
def test_a_pair_that_hung_a_few_times_is_not_asked_for_again(sampler: str) -> None:
    asked = launch(opened(sampler), 40)
    assert len(asked) == 40
    assert 1 <= sum(map(hangs, asked)) <= 3, "a sixth of the space hangs: six or seven of forty at random"


@pytest.mark.slow
def test_what_is_barred_is_told_as_infeasible_and_says_why_also_after_a_resume(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    first = opened("random", url)
    for steps in (2, 4, 8):
        first.enqueue(candidate(SPACE, {**BASELINE, "backend": "flashinfer", "steps": steps}), Purpose.SEARCH)
    launch(first, 5)
    launch(opened("random", url), 8)
    trials = optuna.load_study(study_name="s", storage=url).trials
    skipped = [t for t in trials if "skipped" in t.user_attrs]
    barred = [t for t in skipped if t.user_attrs["skipped"].startswith("would fail")]
    assert barred
    assert all(t.state is TrialState.PRUNED and t.constraints["launch"] > 0 for t in barred)
    assert any("backend == flashinfer" in t.user_attrs["skipped"] for t in barred)
    assert len(trials) == 13 + len(skipped), "what is skipped takes no place among the launches"


def failed(lattice: Lattice, trial: int, **values: object) -> Observation:
    point = lattice.encode(candidate(SPACE, {**BASELINE, **values}))
    nothing = np.full(2, np.nan)
    return Observation(trial, point, Ending.FAILED, nothing, np.zeros(0), np.zeros(2), FailureClass.NCCL_HANG, HANG_S)


def test_one_failure_bars_nothing() -> None:
    lattice = Lattice(SPACE, "sglang", candidate(SPACE))
    once = History([failed(lattice, 0, backend="fa3")], lattice.dimensions, 2, 0)
    near = lattice.encode(candidate(SPACE, {**BASELINE, "backend": "fa3", "steps": 8}))
    assert Screening(lattice, once).objection(near) is None


def test_a_random_stand_in_keeps_clear_of_what_fails_too() -> None:
    lattice = Lattice(SPACE, "sglang", candidate(SPACE))
    at_fault = [failed(lattice, i, backend="fa3", steps=i) for i in range(1, 5)]
    fine = [
        scored(i, lattice.encode(candidate(SPACE, {**BASELINE, "backend": backend, "steps": i})), (4.0, 7.0))
        for i, backend in enumerate(["triton", "flashinfer"] * 4, 1)
    ]
    screening = Screening(lattice, History([*fine, *at_fault], lattice.dimensions, 2, 0))
    drawn = [lattice.decode(screening.at_random(np.random.default_rng(seed))) for seed in range(20)]
    assert all(one.values["backend"] != "fa3" for one in drawn)
    assert len({one.fingerprint for one in drawn}) > 10
