"""Confirming and taking apart, told like a manual: real store, real search, launches whose truth is known."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.scripted import ScriptedExecutor, failed, measured

from tuner.domain.candidate import Candidate
from tuner.domain.front import Standing
from tuner.domain.outcome import FailureClass
from tuner.domain.proof import AblationKind, Finding
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord, AttemptState, StudyRecord, StudyState
from tuner.domain.trial import Outcome, Purpose, TrialRequest
from tuner.export.standings import front_of
from tuner.search.study import open_search
from tuner.store import Store, driver_url, open_store
from tuner.study.ablate import AblationPlan
from tuner.study.confirm import ConfirmAgenda, Extent, automatic_extent, confirmation_of
from tuner.study.launches import Means, StudyEnd
from tuner.study.loop import Coordinator
from tuner.study.planned import Planned
from tuner.study.stopping import StopSwitch

KNOBS = {
    "a": {"values": [1, 2, 3], "ordered": True, "flag": "--a"},
    "b": {"switch": True, "env": "B"},
    "gated": {"values": ["unset", "on"], "env": "GATED", "when": "b == on"},
    "dead": {"switch": True, "env": "DEAD"},
}
START = {"a": 1, "b": False, "dead": False}
TRUTH = {
    "a": {1: (0.0, 0.0), 2: (0.10, 0.0), 3: (0.15, -0.20)},
    "b": {True: (0.06, 0.03)},
    "gated": {"on": (0.05, 0.0)},
}
NOISE = 0.004


def toy_space(*, engines: int = 1, **budget: object) -> Space:
    names = ["simulated", "vllm"][:engines]
    return Space.model_validate(
        {
            "name": "toy",
            "model": "m",
            "engines": {name: {"knobs": KNOBS} for name in names},
            "workload": {"levels": [1, 16]},
            "budget": {"trials": 24, "baseline_launches": 2, "sentinel_every": 0, **budget},
        }
    )


def true_logs(candidate: Candidate) -> tuple[float, float]:
    """Logarithm of the speed alone and under load, over the start's."""
    effects = [TRUTH[name].get(value, (0.0, 0.0)) for name, value in candidate.values.items() if name in TRUTH]
    other = 0.08 if candidate.engine == "vllm" else 0.0
    return sum(e[0] for e in effects) + other, sum(e[1] for e in effects)


@dataclass
class World:
    """One study on one database; launches drift, each has noise of its own."""

    store: Store
    url: str
    root: Path
    space: Space
    seed: int = 1
    drift: float = 0.0
    noise: float = NOISE
    requests: list[TrialRequest] = field(default_factory=list)
    broken: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.store.create_study(StudyRecord("toy", self.space, "", "h", "random", self.seed, True, "0", 1.0))

    @property
    def baselines(self) -> Mapping[str, Candidate]:
        return {engine: Candidate.of(self.space, engine, START) for engine in self.space.engines}

    @property
    def attempts(self) -> list[AttemptRecord]:
        return self.store.attempts("toy")

    def launch(self, request: TrialRequest) -> Outcome:
        self.requests.append(request)
        if request.candidate.fingerprint in self.broken and request.purpose is Purpose.CONFIRM:
            return failed(FailureClass.OOM_RUNTIME)
        draw = random.Random(f"{self.seed} {request.trial} {request.attempt}")
        alone, loaded = true_logs(request.candidate)
        slower = self.drift * len(self.requests)
        speeds = {
            level: base * math.exp(log - slower + draw.gauss(0.0, self.noise))
            for level, base, log in ((1, 50.0, alone), (16, 400.0, loaded))
        }
        return measured(speeds)

    def coordinator(self, stop: StopSwitch | None = None) -> Coordinator:
        search = open_search(
            self.space,
            storage_url=driver_url(self.url),
            study_name="toy",
            baselines=self.baselines,
            seed=self.seed,
            sampler="random",
        )
        return Coordinator(
            self.store.study("toy"),
            baselines=self.baselines,
            means=Means(
                store=self.store,
                search=search,
                executor=ScriptedExecutor(self.launch),
                owner="test",
                run_root=self.root,
                gpus=0,
                phase_limits=lambda attempts: {},
                notify=lambda event: None,
                stop=stop or StopSwitch(),
            ),
        )

    def run(self) -> StudyEnd:
        return self.coordinator().run()

    def plan(self, winner: Mapping[str, object], rounds: int = 3) -> AblationPlan:
        chosen = Candidate.of(self.space, "simulated", {**START, **winner})  # type: ignore[dict-item]
        record = self.store.study("toy")
        return AblationPlan(
            record, baseline=self.baselines["simulated"], winner=chosen, rounds=rounds, attempts=self.attempts
        )

    def of(self, purpose: Purpose) -> list[AttemptRecord]:
        return [a for a in self.attempts if a.purpose is purpose]


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with open_store(sqlite_url) as opened:
        yield opened


@pytest.fixture
def world(store: Store, sqlite_url: str, tmp_path: Path) -> World:
    return World(store, sqlite_url, tmp_path / "runs", toy_space())


def blocks(attempts: list[AttemptRecord]) -> list[list[str]]:
    grouped: dict[int, list[str]] = {}
    for attempt in attempts:
        assert attempt.block is not None
        grouped.setdefault(attempt.block, []).append(attempt.candidate.fingerprint)
    return [grouped[key] for key in sorted(grouped)]


def test_a_study_ends_by_confirming_within_its_trials(world: World) -> None:
    end = world.run()
    assert end.state is StudyState.FINISHED
    assert "24 trials" in end.reason
    assert end.reason.endswith("confirmation complete")
    assert len({a.trial for a in world.attempts}) == 24
    # A third of 24 trials: three rounds of the baseline and one finalist.
    assert len(world.of(Purpose.CONFIRM)) == 6


def test_every_round_holds_each_arm_once_in_an_order_of_its_own(world: World) -> None:
    world.run()
    world.coordinator().confirm(Extent(finalists=2, rounds=6))
    rounds = blocks(world.of(Purpose.CONFIRM))
    arms = set(rounds[-1])
    assert world.baselines["simulated"].fingerprint in arms
    assert all(len(names) == len(set(names)) and set(names) <= arms for names in rounds)
    assert len({tuple(names) for names in rounds}) > 1


def test_a_true_gain_is_shown_and_what_does_nothing_is_not_part_of_the_choice(world: World) -> None:
    world.run()
    world.coordinator().confirm(Extent(finalists=3, rounds=4))
    found = confirmation_of(world.space, world.attempts, world.baselines)
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


def test_a_confirmation_that_is_asked_for_again_launches_nothing_new(world: World) -> None:
    world.run()
    before = len(world.attempts)
    world.coordinator().confirm(Extent(finalists=1, rounds=3))
    first = len(world.attempts)
    end = world.coordinator().confirm(Extent(finalists=1, rounds=3))
    assert end.reason == "confirmation complete"
    assert len(world.attempts) == first >= before


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
    coordinator().confirm(Extent(finalists=2, rounds=3))
    measured_ones = [a for a in world.of(Purpose.CONFIRM) if a.state is AttemptState.MEASURED]
    assert all(a.told for a in measured_ones)
    assert [sorted(names) for names in blocks(measured_ones)] == [
        sorted(c.fingerprint for c in (*arms, world.baselines["simulated"]))
    ] * 3


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


WINNER = {"a": 2, "b": True, "gated": "on", "dead": True}


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


# ---- what would be launched


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


@pytest.fixture
def searched(store: Store, sqlite_url: str, tmp_path: Path) -> World:
    """A world whose search is over, and nothing confirmed."""
    found = World(store, sqlite_url, tmp_path / "runs", toy_space(confirm_launches=0))
    found.run()
    return found


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
