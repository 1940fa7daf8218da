"""The loop of a study, told like a manual: real store, real search, launches that end as a script says."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.scripted import failed, measured
from support.study_world import KNOBS, World, speed, toy_space

from tuner.domain.outcome import Action, FailureClass
from tuner.domain.study import AttemptState, StudyState
from tuner.domain.trial import Outcome, Purpose, TrialRequest
from tuner.store import open_store
from tuner.study.events import Noted
from tuner.study.stopping import StopSwitch, Urgency


@pytest.fixture
def world(sqlite_url: str, tmp_path: Path) -> Iterator[World]:
    with open_store(sqlite_url) as store:
        yield World(store, sqlite_url, tmp_path / "runs")


def test_the_baseline_is_launched_first_and_as_often_as_the_budget_says(world: World) -> None:
    _, executor = world.run(speed)
    purposes = [request.purpose for request in executor.requests]
    assert purposes == [Purpose.BASELINE] * 2 + [Purpose.SEARCH] * 6
    assert [request.candidate.values for request in executor.requests[:2]] == [{"a": 1, "b": False}] * 2


def test_a_study_ends_with_its_budget_and_says_so(world: World) -> None:
    end, _ = world.run(speed)
    assert (end.state, end.error) == (StudyState.FINISHED, None)
    assert "8 trials" in end.reason
    assert world.store.study("toy").state is StudyState.FINISHED


def test_no_candidate_is_launched_twice_but_the_baseline(world: World) -> None:
    _, executor = world.run(speed)
    searched = [r.candidate.fingerprint for r in executor.requests if r.purpose is Purpose.SEARCH]
    assert len(set(searched)) == len(searched)


def test_prompts_differ_from_launch_to_launch(world: World) -> None:
    _, executor = world.run(speed)
    seeds = [request.seed for request in executor.requests]
    assert len(set(seeds)) == len(seeds)


def test_a_space_that_is_used_up_ends_the_study_before_the_budget(sqlite_url: str, tmp_path: Path) -> None:
    with open_store(sqlite_url) as store:
        world = World(store, sqlite_url, tmp_path, space=toy_space(trials=50))
        end, executor = world.run(speed)
    assert end.state is StudyState.FINISHED
    assert "every combination" in end.reason
    assert len({r.candidate.fingerprint for r in executor.requests}) == 8


def test_a_failure_that_blames_the_candidate_is_recorded_and_not_a_number(world: World) -> None:
    def script(request: TrialRequest) -> Outcome:
        return failed(FailureClass.BAD_FLAG) if request.candidate.values["b"] else speed(request)

    world.run(script)
    attempts = world.store.attempts("toy")
    bad = [a for a in attempts if a.candidate.values["b"]]
    assert bad
    assert all(a.state is AttemptState.FAILED and a.told for a in bad)
    assert Action.MARK_INFEASIBLE in world.actions


def test_search_is_launched_warm_where_that_was_asked_for(world: World) -> None:
    world.warm = True
    _, executor = world.run(speed)
    assert all(request.warm for request in executor.requests)


@pytest.mark.parametrize(
    ("failure", "trial"),
    [(FailureClass.BAD_FLAG, 1), (FailureClass.UNKNOWN, 1), (FailureClass.UNKNOWN, 4), (FailureClass.CUDA_FAULT, 4)],
)
def test_a_warm_launch_whose_fault_may_be_the_forks_is_repeated_plainly_and_blames_nobody(
    world: World, failure: FailureClass, trial: int
) -> None:
    world.warm = True
    _, executor = world.run(lambda it: failed(failure) if it.trial == trial and it.warm else speed(it))
    assert [a.state for a in world.store.attempts("toy", trial=trial)] == [
        AttemptState.ABANDONED,
        AttemptState.MEASURED,
    ]
    assert [request.warm for request in executor.requests if request.trial == trial] == [True, False]
    told = [event.text for event in world.events if isinstance(event, Noted)]
    assert any(f"trial {trial} failed when launched warm" in text for text in told)


def test_where_warm_launches_work_one_that_fails_by_a_known_fault_is_not_launched_again(world: World) -> None:
    world.warm = True
    _, executor = world.run(lambda it: failed(FailureClass.BAD_FLAG) if it.candidate.values["b"] else speed(it))
    broken = [request for request in executor.requests if request.candidate.values["b"] and request.trial > 3]
    assert broken
    assert len({request.trial for request in broken}) == len(broken)
    assert {a.state for a in world.store.attempts("toy") if a.candidate.values["b"] and a.trial > 3} == {
        AttemptState.FAILED
    }


def test_once_a_plain_launch_does_what_a_warm_one_could_not_no_more_are_warm(world: World) -> None:
    world.warm = True

    def script(request: TrialRequest) -> Outcome:
        return failed(FailureClass.BAD_FLAG) if request.warm else speed(request)

    end, executor = world.run(script)
    assert end.state is StudyState.FINISHED
    assert [request.warm for request in executor.requests] == [True, *[False] * (len(executor.requests) - 1)]
    assert any("no more warm launches" in event.text for event in world.events if isinstance(event, Noted))


def test_a_stall_is_launched_once_more_as_a_second_attempt(world: World) -> None:
    def script(request: TrialRequest) -> Outcome:
        if request.purpose is Purpose.SEARCH and request.attempt == 1:
            return failed(FailureClass.ENGINE_STALL)
        return speed(request)

    world.run(script)
    searched = [a for a in world.store.attempts("toy") if a.purpose is Purpose.SEARCH]
    assert [a.attempt for a in searched[:2]] == [1, 2]
    assert searched[0].trial == searched[1].trial
    assert searched[1].state is AttemptState.MEASURED


def test_a_failure_that_every_trial_would_meet_stops_the_study_at_once(world: World) -> None:
    def script(request: TrialRequest) -> Outcome:
        return speed(request) if request.purpose is Purpose.BASELINE else failed(FailureClass.MODEL_ACCESS)

    end, executor = world.run(script)
    assert end.state is StudyState.FAILED
    assert end.error is not None
    assert end.error.exit_code == 4
    assert "model_access" in end.reason
    assert len(executor.requests) == 3


def test_a_baseline_that_fails_stops_the_study_with_its_cause(world: World) -> None:
    end, executor = world.run(lambda request: failed(FailureClass.OOM_WEIGHTS))
    assert end.state is StudyState.FAILED
    assert end.error is not None
    assert end.error.exit_code == 3
    assert end.reason.startswith("the baseline failed")
    assert len(executor.requests) == 1


def test_one_stop_finishes_the_running_trial_and_keeps_it(world: World) -> None:
    stop = StopSwitch()
    launches: list[int] = []

    def script(request: TrialRequest) -> Outcome:
        launches.append(request.trial)
        if len(launches) == 4:
            stop.press()
        return speed(request)

    end, executor = world.run(script, stop=stop)
    assert end.state is StudyState.STOPPED
    assert len(executor.requests) == 4
    assert all(a.state is AttemptState.MEASURED and a.told for a in world.store.attempts("toy"))


def test_two_stops_give_the_running_trial_up_and_resume_launches_it_again(world: World) -> None:
    stop = StopSwitch()

    launches: list[int] = []

    def script(request: TrialRequest) -> Outcome:
        launches.append(request.trial)
        if len(launches) == 4:
            stop.press()
            stop.press()
            return failed(FailureClass.LOST_WORKER)
        return speed(request)

    end, _ = world.run(script, stop=stop)
    assert end.state is StudyState.STOPPED
    assert [a.state for a in world.store.attempts("toy")][-1] is AttemptState.ABANDONED
    given_up = launches[3]
    _, executor = world.run(speed)
    assert (executor.requests[0].trial, executor.requests[0].attempt) == (given_up, 2)
    assert len({a.trial for a in world.store.attempts("toy") if a.told}) == 8


def test_a_stop_asked_for_in_the_database_reaches_the_coordinator(world: World) -> None:
    def script(request: TrialRequest) -> Outcome:
        if len(world.store.attempts("toy")) == 3:
            world.store.request_stop("toy")
        return speed(request)

    end, executor = world.run(script)
    assert end.state is StudyState.STOPPED
    assert len(executor.requests) == 3
    assert any(isinstance(event, Noted) for event in world.events)


class Killed(BaseException):
    """The coordinator's process dies here: nothing after it runs."""


@pytest.mark.parametrize("moment", ["open_attempt", "finish_attempt", "mark_told"])
@pytest.mark.parametrize("after", [True, False])
def test_a_coordinator_killed_at_any_write_loses_nothing_and_tells_nothing_twice(
    world: World, monkeypatch: pytest.MonkeyPatch, moment: str, after: bool
) -> None:
    real = getattr(world.store, moment)
    calls = 0

    def dying(*arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls < 4:
            return real(*arguments, **named)
        if after:
            real(*arguments, **named)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(world.store, moment, dying)
        with pytest.raises(Killed):
            world.run(speed)
    finished = {a.id for a in world.store.attempts("toy") if a.state is AttemptState.MEASURED}
    end, _ = world.run(speed)
    attempts = world.store.attempts("toy")
    assert end.state is StudyState.FINISHED
    assert finished <= {a.id for a in attempts if a.state is AttemptState.MEASURED and a.told}
    told = [a.trial for a in attempts if a.told]
    assert len(told) == len(set(told)) == 8


def test_sentinels_relaunch_the_baseline_between_search_trials(sqlite_url: str, tmp_path: Path) -> None:
    with open_store(sqlite_url) as store:
        world = World(store, sqlite_url, tmp_path, space=toy_space(trials=8, sentinel_every=2))
        _, executor = world.run(speed)
    purposes = "".join(r.purpose.value[0] if r.purpose is not Purpose.SENTINEL else "S" for r in executor.requests)
    assert purposes == "bbssSssS"


def hand_over(world: World, owner: str, *, trials: int) -> None:
    """Let another process run the study, with a raised budget."""
    store = world.store
    store.release_coordinator("toy", world.owner)
    world.owner = owner
    record = store.study("toy")
    budget = record.space.budget.model_copy(update={"trials": trials})
    space = record.space.model_copy(update={"budget": budget})
    store.change_study(dataclasses.replace(record, space=space))


@pytest.mark.parametrize("elsewhere", ["rig:1:77:bbbb+9", "rig-2:1:77:aaaa+9"])
def test_a_search_that_goes_on_elsewhere_or_after_a_restart_launches_the_baseline_first(
    sqlite_url: str, tmp_path: Path, elsewhere: str
) -> None:
    with open_store(sqlite_url) as store:
        space = toy_space(trials=5, sentinel_every=20, confirm_launches=0)
        world = World(store, sqlite_url, tmp_path, space=space, owner="rig:1:42:aaaa+1")
        world.run(speed)
        hand_over(world, "rig:1:43:aaaa+2", trials=7)
        _, executor = world.run(speed)
        assert [request.purpose for request in executor.requests] == [Purpose.SEARCH] * 2, "the same machine, still up"
        hand_over(world, elsewhere, trials=10)
        _, executor = world.run(speed)
    assert [request.purpose for request in executor.requests] == [Purpose.SENTINEL, Purpose.SEARCH, Purpose.SEARCH]


def test_a_baseline_that_is_slower_than_at_first_is_told_while_the_study_runs(sqlite_url: str, tmp_path: Path) -> None:
    launches = itertools.count()

    def slower_and_slower(request: TrialRequest) -> Outcome:
        number = next(launches)
        pace = 100.0 + number % 3 / 10 - (30 if number > 3 else 0)
        return measured({1: pace, 16: 16 * pace})

    with open_store(sqlite_url) as store:
        space = toy_space(trials=12, baseline_launches=3, sentinel_every=2, confirm_launches=0)
        world = World(store, sqlite_url, tmp_path, space=space)
        _, executor = world.run(slower_and_slower)
    notes = [event.text for event in world.events if isinstance(event, Noted)]
    drifts = [note for note in notes if "the baseline itself became faster or slower" in note]
    assert len(drifts) == 1, "once, however many sentinels say so"
    assert "from trial 5 on" in drifts[0]
    assert [request.purpose for request in executor.requests].count(Purpose.SENTINEL) > 1


def test_nothing_is_launched_beside_a_baseline_that_has_not_worked_yet(world: World) -> None:
    _, executor = world.run(speed, slots=3)
    assert executor.most_at_once <= 3
    first = executor.requests[0]
    assert first.purpose is Purpose.BASELINE


def test_the_stop_switch_goes_up_in_two_steps_and_never_down() -> None:
    stop = StopSwitch()
    assert [stop.press() for _ in range(3)] == [Urgency.FINISH_TRIAL, Urgency.NOW, Urgency.NOW]
    stop.at_least(Urgency.FINISH_TRIAL)
    assert stop.urgency is Urgency.NOW


def test_a_value_whose_trials_all_fail_alike_is_set_aside_and_tried_once_more_before_the_end(
    sqlite_url: str, tmp_path: Path
) -> None:
    def script(request: TrialRequest) -> Outcome:
        return failed(FailureClass.UNSUPPORTED) if request.candidate.values["b"] else speed(request)

    with open_store(sqlite_url) as store:
        space = toy_space(trials=9)
        wide = {**KNOBS, "a": {"int": {"low": 1, "high": 40}, "flag": "--a"}}
        engine = space.engines["simulated"].model_validate({"knobs": wide})
        world = World(store, sqlite_url, tmp_path, space=space.model_copy(update={"engines": {"simulated": engine}}))
        world.run(script)
    purposes = [r.purpose for r in world.requests]
    with_b = [r for r in world.requests if r.candidate.values["b"]]
    assert purposes.count(Purpose.SECOND_CHANCE) == 1
    assert purposes[-1] is Purpose.SECOND_CHANCE
    assert with_b[-1].purpose is Purpose.SECOND_CHANCE
    assert any(isinstance(e, Noted) and "was not launched" in e.text for e in world.events)
