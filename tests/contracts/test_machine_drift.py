"""A machine that becomes slower half-way through a study: what is launched later is compared with its own time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.coordinators import copy_database
from support.scripted import ScriptedExecutor, measured
from support.study_world import World, toy_space

from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Outcome, Purpose, TrialRequest
from tuner.export.standings import front_of
from tuner.search.samplers import DEFAULT
from tuner.store import open_store
from tuner.study.events import Noted
from tuner.study.restating import restated
from tuner.study.summary import summarise

SLOWER_FROM = 13
"""The trial from which on the machine has 70 % of its speed."""
EVERY = 4
TRIALS = 26


def space() -> Space:
    made = toy_space(trials=TRIALS, baseline_launches=3, sentinel_every=EVERY, confirm_launches=0)
    knobs = {"a": {"int": {"low": 1, "high": 40}, "flag": "--a"}, "b": {"switch": True, "env": "B"}}
    engine = made.engines["simulated"].model_validate({"knobs": knobs})
    return made.model_copy(update={"engines": {"simulated": engine}})


def steady(request: TrialRequest) -> Outcome:
    """Launches differ by a few thousandths; larger values of `a` are a little faster, and nothing is 10 % slower."""
    pace = 1 + request.trial % 3 / 500 + int(str(request.candidate.values["a"])) / 1000
    return measured({1: 50 * pace, 16: 400 * pace})


def slower(request: TrialRequest) -> Outcome:
    share = 0.7 if request.trial >= SLOWER_FROM else 1.0
    outcome = steady(request)
    return measured({level.load.level: share * level.measurements[0].center for level in outcome.levels})


def world(folder: Path) -> World:
    url = f"sqlite:///{folder}/tuner.db"
    return World(open_store(url), url, folder / "runs", space=space(), sampler=DEFAULT)


def studied(folder: Path, script: Callable[[TrialRequest], Outcome]) -> Iterator[World]:
    """A study that has ended; its store is open."""
    made = world(folder)
    with made.store:
        made.run(script)
        yield made


@pytest.fixture(scope="module")
def drifted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from studied(tmp_path_factory.mktemp("drifted"), slower)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from studied(tmp_path_factory.mktemp("quiet"), steady)


def attempts(of: World) -> list[AttemptRecord]:
    return of.store.attempts("toy")


def test_a_candidate_that_is_as_good_as_the_baseline_of_its_time_is_not_over_its_limit(drifted: World) -> None:
    rows = summarise(drifted.space, attempts(drifted))
    late = [row for row in rows if row.trial >= SLOWER_FROM and not row.is_baseline]
    assert len(late) > EVERY
    assert {row.state for row in late} == {"measured"}
    assert not front_of(drifted.space, attempts(drifted)).infeasible


def test_what_was_measured_stays_as_it_was_measured_and_whoever_tells_a_limit_says_what_it_is_against(
    drifted: World,
) -> None:
    rows = {row.trial: row for row in summarise(drifted.space, attempts(drifted))}
    fast, slow = rows[0].values[1], rows[TRIALS - 1].values[1]
    assert fast is not None
    assert slow is not None
    assert slow.center < 0.8 * fast.center
    assert rows[TRIALS - 1].of_its_time == {"output_tok_s@16 min"}
    front = front_of(drifted.space, attempts(drifted))
    assert {standing.of_its_time for standing in front.members} == {frozenset({"output_tok_s@16 min"})}
    (note,) = [event.text for event in drifted.events if isinstance(event, Noted) and "became faster" in event.text]
    assert "judged by what it measured at the time of each launch" in note


def test_a_candidate_that_is_worse_than_the_baseline_of_its_time_is_over_its_limit(tmp_path: Path) -> None:
    made = world(tmp_path)
    bad = TRIALS - 1

    def script(request: TrialRequest) -> Outcome:
        return measured({1: 30.0, 16: 230.0}) if request.trial == bad else slower(request)

    with made.store:
        made.run(script)
        row = summarise(made.space, attempts(made))[bad]
    assert row.state == "over limit"
    assert row.broken["output_tok_s@16 min"] == pytest.approx(1 - 230 / (0.9 * 400 * 0.7), abs=0.02)


def test_the_search_is_told_of_each_launch_what_it_would_measure_now(drifted: World) -> None:
    seen = restated(drifted.space, attempts(drifted))
    assert seen.keys() == set(range(TRIALS))
    for attempt in attempts(drifted):
        if attempt.purpose is Purpose.SENTINEL:
            assert seen[attempt.trial].values == (None, None), "the ruler is not laid on itself"
        elif not SLOWER_FROM - EVERY <= attempt.trial < SLOWER_FROM + EVERY:
            a = int(str(attempt.candidate.values["a"]))
            assert seen[attempt.trial].values[1] == pytest.approx(280 * (1 + a / 1000), rel=0.01)
            assert seen[attempt.trial].violations["output_tok_s@16 min"] < 0


def test_the_baseline_is_launched_oftener_while_the_machine_drifts(drifted: World, quiet: World) -> None:
    def between(made: World) -> list[int]:
        purposes = [a.purpose for a in attempts(made)]
        places = [place for place, purpose in enumerate(purposes) if purpose is Purpose.SENTINEL]
        return [later - place - 1 for place, later in itertools.pairwise(places)]

    assert set(between(quiet)) == {EVERY}
    assert between(drifted)[0] == EVERY
    assert between(drifted)[-1] == EVERY // 2


def test_without_drift_every_launch_is_seen_as_it_was_told(quiet: World) -> None:
    assert restated(quiet.space, attempts(quiet)) == {}
    assert not any(row.of_its_time for row in summarise(quiet.space, attempts(quiet)))


def test_a_study_that_is_killed_while_the_machine_drifts_goes_on_with_the_launch_that_would_have_come_next(
    tmp_path: Path,
) -> None:
    made = world(tmp_path)
    killed_at = TRIALS - 4

    def script(request: TrialRequest) -> Outcome:
        if request.trial == killed_at:
            copy_database(tmp_path / "tuner.db", tmp_path / "killed.db")
        return slower(request)

    with made.store:
        made.run(script)
        expected = [request.candidate for request in made.requests if request.trial > killed_at]
    url = f"sqlite:///{tmp_path}/killed.db"
    with open_store(url) as store:
        made.store, made.url, executor = store, url, ScriptedExecutor(slower)
        made.coordinator(executor).run()
    assert [request.candidate for request in executor.requests if request.trial > killed_at] == expected
