"""What an ablation concludes from launches that were written down by hand: no noise but what is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from support import records
from support.scripted import measured

from tuner.domain.candidate import Candidate
from tuner.domain.proof import Ablation, AblationKind, Finding
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Activity, KnobActivity, Purpose
from tuner.search.study import open_search
from tuner.study.ablate import AblateAgenda, AblationPlan, taken_apart
from tuner.study.agenda import Done

KNOBS = ("steps", "quiet", "inert")
SPACE = Space.model_validate(
    {
        "name": "hand",
        "model": "m",
        "engines": {"simulated": {"knobs": {name: {"switch": True, "flag": f"--{name}"} for name in KNOBS}}},
        "workload": {"levels": [1, 16]},
        "budget": {"smallest_gain": 0.02},
    }
)


def config(*on: str, space: Space = SPACE) -> Candidate:
    return Candidate.of(space, "simulated", {name: name in on for name in KNOBS})


BASELINE, WINNER = config(), config(*KNOBS)
Truth = Callable[[set[str]], tuple[float, float]]
"""The knobs that are on → factors on speed alone and under load."""
WOBBLE = (0.998, 1.002, 1.0)
"""Factors on the arms of a round in turn: what launches differ by."""


def attempt(number: int, candidate: Candidate, factors: tuple[float, float], block: int | None) -> AttemptRecord:
    inactive = (KnobActivity("inert", Activity.INACTIVE, "nothing reads it"),) if candidate.values["inert"] else ()
    report = records.measured_report(
        outcome=measured({1: 50 * factors[0], 16: 400 * factors[1]}),
        activity=(KnobActivity("steps", Activity.ACTIVE), *inactive),
    )
    purpose = Purpose.SEARCH if block is None else Purpose.ABLATE
    return records.attempt(number, candidate, report, purpose=purpose, block=block, told=True)


def plan_of(attempts: list[AttemptRecord], winner: Candidate, space: Space, rounds: int) -> AblationPlan:
    record = replace(records.study("hand"), space=space)
    return AblationPlan(record, baseline=BASELINE, winner=winner, rounds=rounds, attempts=attempts)


def launches(
    truth: Truth,
    *,
    winner: Candidate = WINNER,
    space: Space = SPACE,
    rounds: int = 3,
    blocks: int = 30,
    rough: float = 0.0,
) -> list[AttemptRecord]:
    """One launch of the winner, then whatever an ablation asks for, as fast as it is said to be.

    Every fifth launch is slower by `rough`.
    """
    found = [attempt(0, winner, (1.0, 1.0), None)]
    plan = plan_of(found, winner, space, rounds)
    for block in range(1, blocks + 1):
        arms = plan.arms(found[1:])
        if isinstance(arms, Done):
            break
        for place, candidate in enumerate(arms):
            wobble = WOBBLE[(place + block) % len(WOBBLE)] * (1 - rough * (len(found) % 5 == 0))
            alone, loaded = truth({name for name, on in candidate.values.items() if on})
            found.append(attempt(len(found), candidate, (alone * wobble, loaded * wobble), block))
    return found


def carried_out(truth: Truth, *, winner: Candidate = WINNER, space: Space = SPACE, rounds: int = 3) -> Ablation:
    """What the launches of a whole ablation show."""
    found = launches(truth, winner=winner, space=space, rounds=rounds)
    return plan_of(found, winner, space, rounds).result(found)


def left_out(found: Ablation) -> dict[str, bool]:
    return {row.setting: row.kept for row in found.rows if row.kind is AblationKind.LEAVE_ONE_OUT}


def steps_alone(on: set[str]) -> tuple[float, float]:
    return (1.2, 1.2) if "steps" in on else (1.0, 1.0)


def steps_with_company(on: set[str]) -> tuple[float, float]:
    """`steps` gains, and gains more when anything else is on: either of the others can be left out, not both."""
    gain = 1.0 if "steps" not in on else 1.2 if len(on) == 1 else 1.27
    return gain, gain


def test_a_setting_that_the_server_calls_inactive_is_dropped_though_the_rest_looks_slower() -> None:
    # Luck: what differs from the winner in nothing but a setting that does not act comes out 5 % slower.
    found = carried_out(steps_with_company, winner=config("steps", "inert"))
    assert found.complete
    assert left_out(found) == {"steps": True, "inert": False}
    assert found.minimal == config("steps")
    assert {effect.finding for effect in found.minimal_effects} == {Finding.SLOWER}, "what was measured is told"
    inert = next(row for row in found.rows if row.setting == "inert")
    assert (inert.effects, inert.note) == ((), "inactive: inert: nothing reads it")


def test_dropped_settings_that_carry_something_together_come_back_without_the_inactive_one() -> None:
    found = carried_out(steps_with_company)
    assert left_out(found) == {"steps": True, "quiet": True, "inert": False}
    assert found.minimal == config("steps", "quiet")
    quiet = next(row for row in found.rows if row.setting == "quiet")
    assert quiet.note.startswith("without it and others that show nothing alone: single_stream -")


def test_a_reduced_winner_that_is_as_fast_is_the_minimal_configuration() -> None:
    found = carried_out(steps_alone)
    assert left_out(found) == {"steps": True, "quiet": False, "inert": False}
    assert found.minimal == config("steps")
    assert {effect.finding for effect in found.minimal_effects} == {Finding.NO_DIFFERENCE}


def steps_somewhat(on: set[str]) -> tuple[float, float]:
    return (1.03, 1.03) if "steps" in on else (1.0, 1.0)


@pytest.mark.parametrize(
    ("truth", "reason", "undecided"),
    [
        (steps_somewhat, "noise hides what each setting does alone", True),
        (lambda on: (1.0, 1.0), "no setting alone has a measurable effect", False),
    ],
    ids=["a gain within the noise", "no gain"],
)
def test_nothing_shown_is_told_apart_from_nothing_there(truth: Truth, reason: str, undecided: bool) -> None:
    rough = 0.12 if undecided else 0.0
    found = launches(truth, winner=config("steps", "quiet"), rounds=2, rough=rough)
    plan = plan_of(found, config("steps", "quiet"), SPACE, 2)
    done = plan.arms(plan.series(found))
    assert isinstance(done, Done)
    assert done.reason.startswith(reason)
    result = plan.result(found)
    assert result.minimal == BASELINE
    assert result.is_undecided is undecided


def test_a_study_that_ends_with_an_ablation_says_that_it_is_the_ablation_that_ended() -> None:
    found = launches(lambda on: (1.0, 1.0), winner=config("steps", "quiet"), rounds=2)
    plan = plan_of(found, config("steps", "quiet"), SPACE, 2)
    search = open_search(SPACE, storage_url=None, study_name="hand", baselines={"simulated": BASELINE}, seed=1)
    assert AblateAgenda(plan, search=search, seed=1).next(found, ()) == Done(
        "ablation: no setting alone has a measurable effect"
    )


def test_a_loss_that_one_of_two_objectives_shows_by_chance_restores_nothing() -> None:
    space = SPACE.model_copy(update={"budget": SPACE.budget.model_copy(update={"smallest_gain": 0.001})})
    found = carried_out(lambda on: (1.1952 if on == {"steps"} else steps_alone(on)[0], steps_alone(on)[1]), space=space)
    worse = found.minimal_effects[0].better
    assert worse is not None
    assert 0.025 < 2 * worse < 0.05, "alone it would be shown, as one of two it is not"
    assert found.minimal == config("steps")


@pytest.mark.parametrize("needs", ["inert", "quiet"])
def test_what_a_rule_of_the_space_demands_stays(needs: str) -> None:
    rules = [{"forbid": f"steps == on and {needs} == off", "because": "they belong together"}]
    space = Space.model_validate({**SPACE.model_dump(by_alias=True), "rules": rules})
    found = carried_out(steps_alone, space=space)
    assert left_out(found)[needs]
    assert not any(space.broken_rules("simulated", found.minimal.values))


@pytest.mark.parametrize("rounds", [2, 3, 5])
def test_launches_tell_how_often_each_configuration_was_to_be_launched(rounds: int) -> None:
    found = launches(steps_alone, rounds=rounds)
    record = replace(records.study("hand"), space=SPACE)
    plan = AblationPlan.as_launched(record, baseline=BASELINE, winner=WINNER, attempts=found)
    assert plan.result(found) == plan_of(found, WINNER, SPACE, rounds).result(found)
    assert plan.result(found).complete


@pytest.mark.parametrize("blocks", [2, 4])
def test_launches_of_an_ablation_that_was_stopped_do_not_pass_for_a_whole_one(blocks: int) -> None:
    found = launches(steps_alone, rounds=3, blocks=blocks)
    record = replace(records.study("hand"), space=SPACE)
    assert not AblationPlan.as_launched(record, baseline=BASELINE, winner=WINNER, attempts=found).result(found).complete


def test_the_last_ablation_counts_whatever_an_earlier_one_took_apart() -> None:
    baselines = {"simulated": BASELINE}
    first = launches(steps_alone)
    assert taken_apart(first, baselines) == WINNER
    smaller = config("steps", "quiet")
    later = [
        replace(a, id=a.id + len(first), block=a.block and a.block + 50) for a in launches(steps_alone, winner=smaller)
    ]
    assert taken_apart([*first, *later], baselines) == smaller
    assert taken_apart(first[:1], baselines) is None
