"""What a space file expects of its knobs: right, it saves launches; wrong, it costs little."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.search_spaces import BASELINE, ENGINE, KNOBS, candidate, history, lattice, scored, space

from tuner.domain.outcome import FailureClass
from tuner.domain.space import Space
from tuner.search.base import Infeasible, Scored
from tuner.search.proposer import Proposer
from tuner.search.start import telling_changes
from tuner.search.study import Search, open_search

BEST = {"backend": "fa3", "graph": True, "graph_size": 128, "steps": 6, "fraction": 0.9, "channels": 4}
WORST = {"backend": "flashinfer", "graph": False, "steps": 8, "fraction": 0.7, "channels": 1}


def expecting(values: dict[str, Any], **more: Any) -> Space:
    knobs = {name: {**knob} for name, knob in KNOBS.items()}
    for name, value in values.items():
        knobs[name]["prior"] = {"likely": [value], "reason": f"why {name}"}
    return space(knobs, **more)


def opened(of: Space) -> Search:
    return open_search(of, storage_url=None, study_name="s", baselines={ENGINE: candidate(of)})


def speed(values: Any) -> float:
    """Single-stream speed: each knob at its best value adds 10 %."""
    return 50.0 * 1.1 ** sum(values.get(name) == value for name, value in BEST.items())


def best_after(of: Space, launches: int) -> float:
    search, best = opened(of), 0.0
    for _ in range(launches):
        proposal = search.ask()
        found = speed(proposal.candidate.values)
        best = max(best, found)
        search.tell(proposal.trial, Scored((found, 2000.0), seconds=100))
    return best


def test_what_the_file_expects_is_launched_together_right_after_the_baseline() -> None:
    of = expecting({"backend": "fa3", "steps": 6})
    search = opened(of)
    search.tell(search.ask().trial, Scored((50.0, 2000.0)))
    proposal = search.ask()
    assert proposal.candidate == candidate(of, {**BASELINE, "backend": "fa3", "steps": 6})
    assert proposal.why == "what the space file expects to be good, together"
    assert search.explain(proposal.trial).likely == {"backend=fa3": "why backend", "steps=6": "why steps"}


def test_it_is_launched_as_far_as_the_rules_allow() -> None:
    of = expecting({"backend": "fa3", "steps": 6}, rules=[{"forbid": "backend == fa3 and steps > 4"}])
    search = opened(of)
    search.tell(search.ask().trial, Scored((50.0, 2000.0)))
    assert search.ask().candidate == candidate(of, {**BASELINE, "backend": "fa3"})


def test_nothing_is_launched_on_expectation_while_the_baseline_does_not_work() -> None:
    search = opened(expecting({"backend": "fa3"}))
    search.tell(search.ask().trial, Infeasible(FailureClass.OOM_WEIGHTS))
    assert "baseline" in search.ask().why


def test_of_a_knob_with_a_prior_the_start_looks_at_the_likely_values_only() -> None:
    of = lattice(expecting({"channels": 4}))
    changes = telling_changes(of, np.random.default_rng(0))
    column = next(i for i, axis in enumerate(of.axes) if axis.name == "channels")
    assert changes[0] == (column, of.axes[column].index(4))
    assert [index for axis, index in changes if axis == column] == [of.axes[column].index(4)]


def test_a_right_prior_saves_launches() -> None:
    assert best_after(expecting(BEST), 4) == pytest.approx(speed(BEST))
    assert best_after(space(), 4) < 0.8 * speed(BEST)


@pytest.mark.slow
def test_a_wrong_prior_is_overruled_by_what_is_measured() -> None:
    assert best_after(expecting(WORST), 36) >= 0.95 * best_after(space(), 36)


def test_values_that_the_prior_did_not_name_are_still_proposed() -> None:
    of = lattice(expecting({"backend": "triton", "steps": 1}))
    rng = np.random.default_rng(0)
    seen = [scored(0, of.baseline, (4.0, 7.0))]
    proposer = Proposer(of, seed=0)
    for trial in range(1, 25):
        choice = proposer.propose(history(of, seen))
        seen.append(scored(trial, choice.point, (4.0 + rng.normal(0, 0.003), 7.0 + rng.normal(0, 0.003))))
    steps = next(i for i, axis in enumerate(of.axes) if axis.name == "steps")
    assert len({int(o.point[steps]) for o in seen}) > 2


@pytest.mark.parametrize("likely", [[9], ["fa4"]])
def test_a_likely_value_off_the_grid_is_a_value_of_the_knob(likely: list[Any]) -> None:
    name = "steps" if likely == [9] else "backend"
    knobs = {n: {**knob} for n, knob in KNOBS.items()}
    knobs[name]["prior"] = {"likely": likely, "reason": "known"}
    axis = next(a for a in lattice(space(knobs)).axes if a.name == name)
    assert likely[0] in axis.values
