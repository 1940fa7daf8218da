"""What counts as one setting when a configuration is taken apart."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tuner.domain.candidate import Candidate
from tuner.domain.space import Space
from tuner.errors import StudyError
from tuner.study.settings import mixed, settings_between

KNOBS: Mapping[str, object] = {
    "plain": {"values": [1, 2, 3], "flag": "--plain"},
    "switch": {"switch": True, "flag": "--switch"},
    "child": {"values": ["x", "y"], "flag": "--child", "when": "switch == on"},
    "other": {"values": [1, 2], "env": "OTHER", "when": "switch == off"},
}


def space(**more: object) -> Space:
    engines = {"e": {"knobs": KNOBS}, "f": {"knobs": KNOBS}}
    return Space.model_validate({"name": "s", "model": "m", "engines": engines, **more})


def candidate(engine: str = "e", **values: object) -> Candidate:
    assignment = {"plain": 1, "switch": False, "other": 1, **values}
    return Candidate.of(space(), engine, assignment)  # type: ignore[arg-type]


def names(baseline: Candidate, winner: Candidate, **more: object) -> list[str]:
    return [setting.name for setting in settings_between(space(**more), baseline, winner)]


def test_knobs_that_depend_on_nothing_are_settings_of_their_own() -> None:
    assert names(candidate(), candidate(plain=2, other=2)) == ["plain", "other"]


def test_a_switch_and_what_it_switches_on_and_off_are_one_setting() -> None:
    assert names(candidate(), candidate(plain=3, switch=True, child="y")) == ["plain", "switch + child + other"]


def test_a_child_that_changes_under_an_unchanged_switch_stands_alone() -> None:
    assert names(candidate(switch=True, child="x"), candidate(switch=True, child="y", plain=2)) == ["plain", "child"]


@pytest.mark.parametrize("setting", range(2))
def test_leaving_a_setting_out_changes_nothing_else(setting: int) -> None:
    winner = candidate(plain=3, switch=True, child="y")
    found = settings_between(space(), candidate(), winner)[setting]
    assert found.without is not None
    assert set(winner.differs_from(found.without)) == set(found.knobs)


def test_taking_every_setting_out_leads_back_to_the_baseline() -> None:
    baseline, winner = candidate(), candidate(plain=3, switch=True, child="y")
    knobs = [knob for setting in settings_between(space(), baseline, winner) for knob in setting.knobs]
    assert mixed(space(), winner, baseline, knobs) == baseline


def test_a_setting_that_a_rule_forbids_to_leave_out_says_so() -> None:
    rules = [{"forbid": "plain == 1 and other == 2", "because": "they do not fit"}]
    found = settings_between(space(rules=rules), candidate(), candidate(plain=2, other=2))
    assert [(setting.name, setting.without is None) for setting in found] == [("plain", True), ("other", False)]
    assert "they do not fit" in found[0].note


def test_settings_that_rules_allow_together_only_are_one_setting() -> None:
    rules = [{"forbid": "plain == 2 and other != 2"}, {"forbid": "plain != 2 and other == 2"}]
    baseline, winner = candidate(switch=True, child="x"), candidate(plain=2, other=2)
    found = settings_between(space(rules=rules), candidate(), winner)
    assert [(setting.name, setting.without) for setting in found] == [("plain + other", candidate())]
    assert names(baseline, candidate(switch=True, child="y", plain=3), rules=rules) == ["plain", "child"]


def test_three_settings_may_be_bound_together() -> None:
    knobs = {name: {"values": [1, 2], "flag": f"--{name}"} for name in ("a", "b", "c", "free")}
    pairs = [("a", "b"), ("b", "c"), ("c", "a")]
    bound = Space.model_validate(
        {
            "name": "s",
            "model": "m",
            "engines": {"e": {"knobs": knobs}},
            "rules": [{"forbid": f"{one} == 2 and {other} == 1"} for one, other in pairs],
        }
    )
    low, high = (Candidate.of(bound, "e", dict.fromkeys(knobs, value)) for value in (1, 2))
    assert [setting.name for setting in settings_between(bound, low, high)] == ["a + b + c", "free"]


def test_the_baseline_itself_has_nothing_to_take_apart() -> None:
    with pytest.raises(StudyError, match="baseline itself"):
        settings_between(space(), candidate(), candidate())


def test_engines_are_not_taken_apart_against_each_other() -> None:
    with pytest.raises(StudyError, match="one engine"):
        settings_between(space(), candidate(), candidate("f", plain=2))
