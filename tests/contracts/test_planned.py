"""What a confirmation or an ablation would launch, told before anything is launched, and then held to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.proof_world import WINNER, Ended, World, toy_space

from tuner.domain.front import Standing
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Purpose
from tuner.export.standings import front_of
from tuner.study.confirm import ConfirmAgenda, confirmation_of
from tuner.study.extent import Extent
from tuner.study.planned import Planned


@pytest.fixture(scope="module")
def search_alone(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return Ended.of(tmp_path_factory.mktemp("search"), toy_space(confirm_launches=0))


@pytest.fixture
def searched(search_alone: Ended, tmp_path: Path) -> Iterator[World]:
    """A world whose search is over, and nothing confirmed."""
    with search_alone.copy(tmp_path) as world:
        yield world


def planned_confirmation(world: World, extent: Extent) -> Planned:
    agenda = ConfirmAgenda(
        world.store.study("toy"),
        search=world.coordinator()._search,
        baselines=world.baselines,
        extent=lambda _: extent,
    )
    return agenda.planned(world.attempts)


def standings(world: World) -> tuple[Standing, ...]:
    front = front_of(world.space, world.attempts)
    return (*front.members, *front.beaten, *front.infeasible)


def launches_of(attempts: list[AttemptRecord]) -> Counter[str]:
    return Counter(attempt.candidate.fingerprint for attempt in attempts)


def launches_in(planned: Planned, stage: int = 0) -> dict[str, int]:
    """Fingerprint → launches of the known configurations of a stage."""
    return {arm.candidate.fingerprint: arm.launches for arm in planned.stages[stage].arms if arm.candidate is not None}


def test_a_planned_confirmation_is_the_one_that_is_launched(searched: World) -> None:
    extent = Extent(finalists=2, rounds=2)
    planned = planned_confirmation(searched, extent)
    assert planned.launches == extent.launches == 6
    assert [arm.role for arm in planned.stages[0].arms] == ["baseline", "finalist", "finalist"]
    searched.coordinator().confirm(extent)
    assert launches_in(planned) == launches_of(searched.of(Purpose.CONFIRM))


def test_a_planned_arm_is_named_by_the_trial_that_the_front_names_it_by(searched: World) -> None:
    named = {standing.candidate.fingerprint: standing.trial for standing in standings(searched)}
    for arm in planned_confirmation(searched, Extent(finalists=3, rounds=2)).stages[0].arms:
        assert arm.candidate is not None
        assert arm.trial == named[arm.candidate.fingerprint]
        assert arm.changes == arm.candidate.differs_from(searched.baselines["simulated"])


def test_a_confirmed_configuration_keeps_the_number_that_the_front_and_exports_name_it_by(searched: World) -> None:
    before = {standing.candidate.fingerprint: standing.trial for standing in standings(searched)}
    searched.coordinator().confirm(Extent(finalists=2, rounds=2))
    found = confirmation_of(searched.space, searched.attempts, searched.baselines)
    assert found is not None
    after = {standing.candidate.fingerprint: standing.trial for standing in standings(searched)}
    for arm in found.arms:
        assert arm.trial == before[arm.candidate.fingerprint] == after[arm.candidate.fingerprint]
        assert arm.trial not in arm.trials, "its launches in the confirmation are told beside it"


def test_a_confirmation_that_was_begun_plans_what_is_left_of_it(searched: World) -> None:
    searched.coordinator().confirm(Extent(finalists=1, rounds=2))
    assert planned_confirmation(searched, Extent(finalists=1, rounds=5)).launches == 6
    done = planned_confirmation(searched, Extent(finalists=1, rounds=2))
    assert (done.stages, done.why) == ((), "every finalist had its launches")


def test_the_time_is_told_by_the_launches_so_far(searched: World) -> None:
    planned = planned_confirmation(searched, Extent(finalists=2, rounds=2))
    ends = [(a, a.finished_at) for a in searched.attempts]
    took = [end - a.started_at for a, end in ends if end is not None]
    assert planned.seconds is not None
    assert min(took) * planned.launches <= planned.seconds <= max(took) * planned.launches


def test_without_any_launch_there_are_no_finalists_to_plan(world: World) -> None:
    planned = planned_confirmation(world, Extent(finalists=2, rounds=2))
    assert (planned.launches, planned.why) == (0, "no candidate is expected to be better than the baseline")


def test_a_planned_ablation_names_its_first_stage_and_bounds_the_second(world: World) -> None:
    plan = world.plan(WINNER, rounds=2)
    planned = plan.planned(world.attempts)
    world.coordinator().ablate(plan)
    series = plan.series(world.attempts)
    end = plan._stage_end(series)
    first = [a for a in series if a.block is not None and a.block <= end]
    assert launches_in(planned) == launches_of(first)
    assert [arm.role for arm in planned.stages[0].arms][:2] == ["baseline", "winner"]
    assert sum(arm.launches for arm in planned.stages[1].arms) >= len(series) - len(first)


def test_a_single_setting_needs_no_second_stage(world: World) -> None:
    plan = world.plan({"a": 2}, rounds=2)
    planned = plan.planned(world.attempts)
    assert len(planned.stages) == 1
    world.coordinator().ablate(plan)
    assert len(world.of(Purpose.ABLATE)) == planned.launches == 4


def test_once_the_first_stage_is_launched_the_second_is_planned_by_name(world: World) -> None:
    plan = world.plan(WINNER, rounds=3)
    world.coordinator().ablate(plan)
    series = plan.series(world.attempts)
    end = plan._stage_end(series)
    (stage,) = plan.planned([a for a in series if a.block is not None and a.block <= end]).stages
    assert {arm.candidate.fingerprint: arm.launches for arm in stage.arms if arm.candidate} == launches_of(
        [a for a in series if a.block is not None and a.block > end]
    )
    done = plan.planned(world.attempts)
    assert (done.stages, done.why) == ((), "every setting was measured")
