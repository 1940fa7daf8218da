"""Launches that were measured on a machine that was faster or slower: the search sees them as they would be now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.search_spaces import BASELINE, candidate, space

from tuner.domain.candidate import Candidate
from tuner.domain.trial import Purpose
from tuner.search.base import Restated, Scored
from tuner.search.study import Search, open_search

SPACE = space()
SLOWER_FROM = 8
"""The launch from which on the machine has 70 % of its speed."""
START = candidate(SPACE, BASELINE)


def opened() -> Search:
    return open_search(SPACE, storage_url=None, study_name="s", baselines={START.engine: START}, seed=3)


def measured_now(_launch: int, of: Candidate) -> Scored:
    steps = float(of.values["steps"] or 0)
    return Scored((42 + 2 * steps, 1400 - 14 * steps), seconds=180)


def measured_then(launch: int, of: Candidate) -> Scored:
    now = measured_now(launch, of)
    return now if launch >= SLOWER_FROM else replace(now, values=tuple(value / 0.7 for value in now.values))


@pytest.fixture(scope="module")
def asked() -> list[Candidate]:
    """What a search asks for."""
    search, found = opened(), []
    for launch in range(14):
        proposal = search.ask()
        search.tell(proposal.trial, measured_now(launch, proposal.candidate))
        found.append(proposal.candidate)
    return found


def told(asked: list[Candidate], measure: Callable[[int, Candidate], Scored]) -> tuple[Search, dict[int, Restated]]:
    """A search that was told so of these launches; and what they would measure now."""
    search, restated = opened(), {}
    for launch, one in enumerate(asked):
        trial = search.propose(one, Purpose.CONFIRM).trial
        search.tell(trial, measure(launch, one))
        restated[trial] = Restated(measured_now(launch, one).values, {}, (0.0, 0.0))
    return search, restated


def test_a_search_believes_what_launches_would_measure_now(asked: list[Candidate]) -> None:
    steady, _ = told(asked, measured_now)
    drifted, restated = told(asked, measured_then)
    raw = drifted.importance()
    assert raw != steady.importance(), "it takes the machine's slowness for the effect of settings"
    drifted.restate(restated)
    assert drifted.importance() == steady.importance()
    assert drifted.finalists(START.engine, 3) == steady.finalists(START.engine, 3)
    drifted.restate({})
    assert drifted.importance() == raw


def test_what_a_launch_would_measure_now_is_less_sure_where_that_is_in_doubt(asked: list[Candidate]) -> None:
    search, sure = told(asked, measured_then)
    search.restate(sure)
    narrow = search.importance()[0]
    search.restate({trial: replace(one, doubt=(0.2, 0.2)) for trial, one in sure.items()})
    wide = next(row for row in search.importance() if (row.knob, row.objective) == (narrow.knob, narrow.objective))
    assert wide.high - wide.low > narrow.high - narrow.low
