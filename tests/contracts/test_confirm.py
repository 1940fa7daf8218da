"""Confirming and taking apart, told like a manual: real store, real search, launches whose truth is known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.proof_world import START, WINNER, Ended, World, toy_space, true_logs

from tuner.domain.candidate import Candidate
from tuner.domain.proof import AblationKind, Finding
from tuner.domain.study import AttemptRecord, AttemptState, StudyState
from tuner.domain.trial import Outcome, Purpose, TrialRequest
from tuner.store import Store
from tuner.study.confirm import ConfirmAgenda, confirmation_of
from tuner.study.events import Noted, StudyEvent
from tuner.study.extent import Extent, automatic_extent
from tuner.study.loop import Coordinator
from tuner.study.stopping import StopSwitch


@pytest.fixture(scope="module")
def whole_study(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return Ended.of(tmp_path_factory.mktemp("whole"), toy_space())


@pytest.fixture
def ended(whole_study: Ended, tmp_path: Path) -> Iterator[World]:
    """A world whose study has ended, with a confirmation of its own."""
    with whole_study.copy(tmp_path) as world:
        yield world


def blocks(attempts: list[AttemptRecord]) -> list[list[str]]:
    grouped: dict[int, list[str]] = {}
    for attempt in attempts:
        assert attempt.block is not None
        grouped.setdefault(attempt.block, []).append(attempt.candidate.fingerprint)
    return [grouped[key] for key in sorted(grouped)]


def test_a_study_ends_by_confirming_within_its_trials(whole_study: Ended, ended: World) -> None:
    end = whole_study.end
    assert end.state is StudyState.FINISHED
    assert "24 trials" in end.reason
    assert end.reason.endswith("confirmation complete")
    assert len({a.trial for a in ended.attempts}) == 24
    # A third of 24 trials: three rounds of the baseline and one finalist.
    assert len(ended.of(Purpose.CONFIRM)) == 6


def test_every_round_holds_each_arm_once_in_an_order_of_its_own(ended: World) -> None:
    ended.coordinator().confirm(Extent(finalists=2, rounds=6))
    rounds = blocks(ended.of(Purpose.CONFIRM))
    arms = set(rounds[-1])
    assert ended.baselines["simulated"].fingerprint in arms
    assert all(len(names) == len(set(names)) and set(names) <= arms for names in rounds)
    assert len({tuple(names) for names in rounds}) > 1


def test_a_true_gain_is_shown_and_what_does_nothing_is_not_part_of_the_choice(ended: World) -> None:
    ended.coordinator().confirm(Extent(finalists=3, rounds=4))
    found = confirmation_of(ended.space, ended.attempts, ended.baselines)
    assert found is not None
    assert found.chosen.gains
    assert found.chosen.effects[0].finding is Finding.FASTER
    truth = math.expm1(true_logs(found.chosen.candidate)[0])
    effect = found.chosen.effects[0]
    assert effect.change == pytest.approx(truth, abs=0.02)
    assert effect.better is not None
    assert effect.better > 0.99
    assert found.simulated


def test_a_configuration_that_does_not_separate_from_a_simpler_one_yields_to_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    simple = Candidate.of(world.space, "simulated", {**START, "a": 2})
    padded = Candidate.of(world.space, "simulated", {**START, "a": 2, "dead": True})
    coordinator = world.coordinator()
    monkeypatch.setattr(coordinator._search, "finalists", lambda *_: [padded, simple])
    coordinator.confirm(Extent(finalists=2, rounds=4))
    found = confirmation_of(world.space, world.attempts, world.baselines)
    assert found is not None
    by_name = {arm.candidate.fingerprint: arm for arm in found.arms}
    assert by_name[padded.fingerprint].yields_to == by_name[simple.fingerprint].trial
    assert found.chosen.candidate == simple


def test_identical_configurations_are_not_told_apart_however_the_machine_drifts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.drift = 0.002
    twin = Candidate.of(world.space, "simulated", {**START, "dead": True})
    coordinator = world.coordinator()
    monkeypatch.setattr(coordinator._search, "finalists", lambda *_: [twin])
    coordinator.confirm(Extent(finalists=1, rounds=8))
    found = confirmation_of(world.space, world.attempts, world.baselines)
    assert found is not None
    assert found.chosen.is_baseline
    assert {effect.finding for effect in found.arms[1].effects} == {Finding.NO_DIFFERENCE}


def test_noise_that_hides_the_asked_difference_is_called_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.noise = 0.05
    twin = Candidate.of(world.space, "simulated", {**START, "dead": True})
    coordinator = world.coordinator()
    monkeypatch.setattr(coordinator._search, "finalists", lambda *_: [twin])
    coordinator.confirm(Extent(finalists=1, rounds=3))
    found = confirmation_of(world.space, world.attempts, world.baselines)
    assert found is not None
    effect = found.arms[1].effects[0]
    assert effect.finding is Finding.NOISE
    assert effect.smallest is not None
    assert effect.smallest > found.asked


def test_a_series_stops_early_once_more_rounds_would_decide_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    better = Candidate.of(world.space, "simulated", {**START, "a": 3})
    coordinator = world.coordinator()
    monkeypatch.setattr(coordinator._search, "finalists", lambda *_: [better])
    end = coordinator.confirm(Extent(finalists=1, rounds=30))
    assert "more would decide nothing" in end.reason
    assert len(world.of(Purpose.CONFIRM)) < 30


def test_a_confirmation_that_is_asked_for_again_launches_nothing_new(ended: World) -> None:
    before = len(ended.attempts)
    ended.coordinator().confirm(Extent(finalists=1, rounds=3))
    first = len(ended.attempts)
    end = ended.coordinator().confirm(Extent(finalists=1, rounds=3))
    assert end.reason == "confirmation complete"
    assert len(ended.attempts) == first >= before


class Killed(BaseException):
    """The coordinator's process dies here: nothing after it runs."""


@pytest.mark.parametrize("moment", ["open_attempt", "finish_attempt", "mark_told"])
@pytest.mark.parametrize("after", [True, False])
def test_a_series_killed_at_any_write_goes_on_where_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch, moment: str, after: bool
) -> None:
    arms = [Candidate.of(world.space, "simulated", {**START, "a": a}) for a in (2, 3)]
    real, calls = getattr(world.store, moment), 0

    def dying(*arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls != 5:
            return real(*arguments, **named)
        if after:
            real(*arguments, **named)
        raise Killed

    def coordinator() -> Coordinator:
        made = world.coordinator()
        monkeypatch.setattr(made._search, "finalists", lambda *_: arms)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(world.store, moment, dying)
        with pytest.raises(Killed):
            coordinator().confirm(Extent(finalists=2, rounds=3))
    extent, before = Extent(finalists=2, rounds=3), len(world.attempts)
    agenda = ConfirmAgenda(
        world.store.study("toy"), search=coordinator()._search, baselines=world.baselines, extent=lambda _: extent
    )
    monkeypatch.setattr(agenda._search, "finalists", lambda *_: arms)
    planned = agenda.planned(world.attempts)
    coordinator().confirm(extent)
    assert planned.launches == len(world.attempts) - before, "what is left of it was planned as it came"
    measured_ones = [a for a in world.of(Purpose.CONFIRM) if a.state is AttemptState.MEASURED]
    assert all(a.told for a in measured_ones)
    assert [sorted(names) for names in blocks(measured_ones)] == [
        sorted(c.fingerprint for c in (*arms, world.baselines["simulated"]))
    ] * 3


@pytest.mark.parametrize("taken_apart", [False, True])
def test_what_the_search_was_launching_when_it_was_killed_waits_for_a_resume(
    world: World, monkeypatch: pytest.MonkeyPatch, taken_apart: bool
) -> None:
    arms = [Candidate.of(world.space, "simulated", {**START, "a": a}) for a in (2, 3)]

    def dying(request: TrialRequest) -> Outcome:
        if request.purpose is Purpose.SEARCH:
            raise Killed
        return world.launch(request)

    killed = world.coordinator()
    monkeypatch.setattr(killed._launches._executor, "_script", dying)
    with pytest.raises(Killed):
        killed.run()
    (interrupted,) = world.of(Purpose.SEARCH)

    other, told = world.coordinator(), list[StudyEvent]()
    monkeypatch.setattr(other._search, "finalists", lambda *_: arms)
    monkeypatch.setattr(other._launches, "_notify", told.append)
    end = other.ablate(world.plan({"a": 2}, rounds=2)) if taken_apart else other.confirm(Extent(2, 2))
    assert end.state is world.store.study("toy").state is StudyState.STOPPED
    assert end.reason.endswith(f"; left for `tuner study resume toy`: trial {interrupted.trial}")
    assert len(world.of(Purpose.SEARCH)) == 1
    said = f"trial {interrupted.trial} was interrupted and `tuner study resume toy` launches it again"
    assert [event.text for event in told if isinstance(event, Noted)] == [said]

    assert world.coordinator().run().state is StudyState.FINISHED
    again = [a for a in world.of(Purpose.SEARCH) if a.trial == interrupted.trial]
    assert [a.state for a in again] == [AttemptState.ABANDONED, AttemptState.MEASURED]


def test_a_finalist_that_fails_is_out_and_never_chosen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    best, second = (Candidate.of(world.space, "simulated", {**START, "a": a}) for a in (3, 2))
    world.broken = frozenset({best.fingerprint})
    coordinator = world.coordinator()
    monkeypatch.setattr(coordinator._search, "finalists", lambda *_: [best, second])
    coordinator.confirm(Extent(finalists=2, rounds=3))
    found = confirmation_of(world.space, world.attempts, world.baselines)
    assert found is not None
    assert Counter(a.candidate.fingerprint for a in world.of(Purpose.CONFIRM))[best.fingerprint] <= 2
    assert found.chosen.candidate == second
    assert next(arm for arm in found.arms if arm.candidate == best).failures == 1


def test_the_extent_keeps_to_a_third_of_the_trials() -> None:
    for trials in range(1, 100):
        budget = toy_space(trials=trials).budget
        extent = automatic_extent(budget, engines=1)
        assert extent is None or extent.launches <= trials / 3
    assert automatic_extent(toy_space(trials=40).budget, engines=1) == Extent(3, 3)
    assert automatic_extent(toy_space(confirm_launches=0).budget, engines=1) is None


def test_engines_are_compared_in_the_same_rounds(store: Store, sqlite_url: str, tmp_path: Path) -> None:
    world = World(store, sqlite_url, tmp_path / "runs", toy_space(engines=2, trials=36))
    world.run()
    found = confirmation_of(world.space, world.attempts, world.baselines)
    assert found is not None
    assert [one.best.candidate.engine for one in found.engines] == ["simulated", "vllm"]
    first, second = found.engines
    assert first.effects == ()
    change = second.effects[0].change
    expected = true_logs(second.best.candidate)[0] - true_logs(first.best.candidate)[0]
    assert change == pytest.approx(math.expm1(expected), abs=0.02)
    assert all(len(set(names)) == len(names) for names in blocks(world.of(Purpose.CONFIRM)))


def test_an_ablation_finds_what_each_setting_adds_and_drops_what_adds_nothing(world: World) -> None:
    plan = world.plan(WINNER, rounds=4)
    planned = plan.planned(world.attempts).launches
    end = world.coordinator().ablate(plan)
    found = plan.result(world.attempts)
    assert end.state is StudyState.FINISHED
    assert found.complete
    left_out = {row.setting: row for row in found.rows if row.kind is AblationKind.LEAVE_ONE_OUT}
    assert set(left_out) == {"a", "b + gated", "dead"}
    assert not left_out["dead"].kept
    assert left_out["a"].kept
    assert left_out["a"].effects[0].change == pytest.approx(math.expm1(0.10), abs=0.015)
    assert found.minimal == Candidate.of(world.space, "simulated", {**START, **WINNER, "dead": False})
    assert {effect.finding for effect in found.minimal_effects} <= {Finding.NO_DIFFERENCE, Finding.NOISE}
    path = [row for row in found.rows if row.kind is AblationKind.ADD_ONE_IN]
    assert path[0].without == world.baselines["simulated"]
    assert path[-1].with_it == found.minimal
    assert len(world.of(Purpose.ABLATE)) <= planned


def test_no_row_compares_configurations_that_differ_in_more_than_the_named_setting(world: World) -> None:
    plan = world.plan(WINNER)
    world.coordinator().ablate(plan)
    rows = plan.result(world.attempts).rows
    assert rows
    for row in rows:
        assert row.without is not None
        assert set(row.with_it.differs_from(row.without)) == {k for k, (x, y) in row.values.items() if x != y}
        assert set(row.with_it.differs_from(row.without)) <= set(row.setting.split(" + "))


def test_an_ablation_that_was_stopped_goes_on_and_one_that_is_whole_launches_nothing(world: World) -> None:
    plan, stop = world.plan(WINNER), StopSwitch()
    coordinator = world.coordinator(stop)
    real = world.launch

    def until_five(request: TrialRequest) -> Outcome:
        if len(world.requests) == 4:
            stop.press()
        return real(request)

    coordinator._launches._executor._script = until_five  # type: ignore[attr-defined]
    assert coordinator.ablate(plan).state is StudyState.STOPPED
    assert not plan.result(world.attempts).complete
    world.coordinator().ablate(plan)
    assert plan.result(world.attempts).complete
    count = len(world.attempts)
    world.coordinator().ablate(plan)
    assert len(world.attempts) == count
