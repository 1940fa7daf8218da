"""Conditions and rules that make no sense are found before anything is launched."""

from __future__ import annotations

import pytest
from support.space_files import Errors, Load

KNOBS = """knobs:
  own: {switch: on, flag: --disable-own, inverted: on, default: on}
  backend: {values: [triton, fa3], flag: --backend, default: triton}
  size: {int: {low: 1, high: 64}, flag: --max-running, default: 8, when: own == on}
"""


def rules(*texts: str) -> str:
    return KNOBS + "rules:\n" + "".join(f"  - forbid: {text}\n" for text in texts)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bakend == fa3", "8:13 rules[0].forbid: there is no knob bakend (did you mean backend?)"),
        ("own == on and backend == trito", "8:27 rules[0].forbid: backend is never trito (did you mean triton?)"),
        ("backend in [fa3, fa9]", "rules[0].forbid: backend is never fa9"),
        ("size == 65", "rules[0].forbid: size is never 65"),
        ("size == on", "rules[0].forbid: size is never on"),
        ("backend < 3", "backend < 3 never holds: its values have no such order"),
        ("own >= on", "own >= on never holds: its values have no such order"),
        ("engine == enginne", "rules[0].forbid: this space has no engine enginne (did you mean engine?)"),
    ],
)
def test_comparisons_that_can_never_mean_anything(errors: Errors, text: str, problem: str) -> None:
    found = errors(rules(text))
    assert any(problem in one for one in found), found


def test_a_rule_may_ask_whether_a_knob_is_left_out(load: Load) -> None:
    load(rules("size == unset and backend == fa3"))


def test_circles_are_named_at_every_knob_in_them(errors: Errors) -> None:
    found = errors(
        "knobs:\n"
        "  a: {values: [unset, 1], env: A, when: c == 1}\n"
        "  b: {values: [unset, 1], env: B, when: a == 1}\n"
        "  c: {values: [unset, 1], env: C, when: b == 1}\n"
    )
    assert [problem.split(" ")[0] for problem in found] == ["s.yaml:4:41", "s.yaml:5:41", "s.yaml:6:41"]
    assert all("a → c → b → a" in problem for problem in found)


def test_a_knob_that_depends_on_itself(errors: Errors) -> None:
    assert "in a circle: a → a" in errors("knobs:\n  a: {values: [unset, 1], env: A, when: a == 1}\n")[0]


def test_a_knob_that_can_never_be_active(errors: Errors) -> None:
    found = errors(KNOBS + "  more: {switch: on, flag: --mixed, when: own == off and size > 3}\n")
    assert found == ["s.yaml:7:43 knobs.more.when: this condition never holds, so more can never be active"]


def test_rules_that_leave_nothing(errors: Errors) -> None:
    assert errors(rules("backend in [triton, fa3]")) == [
        "s.yaml:8:13 rules[0].forbid: forbids every combination of engine"
    ]
    found = errors(rules("own == on", "own == off"))
    assert len(found) == 2
    assert all("with the other rules, forbids every combination of engine" in one for one in found)


def test_a_value_that_is_always_forbidden(errors: Errors) -> None:
    assert errors(rules("backend == fa3")) == [
        "s.yaml:5:30 knobs.backend.values[1]: backend=fa3 is forbidden in every combination"
    ]


def test_a_rule_that_forbids_the_baseline(errors: Errors) -> None:
    (problem,) = errors(rules("backend == triton and own == on"))
    assert problem.startswith("s.yaml:8:13 rules[0].forbid: forbids the baseline of engine: engine(own=on")


def test_a_rule_that_never_applies_is_a_warning(load: Load) -> None:
    (warning,) = load(rules("size > 3 and own == off")).warnings
    assert "rules[0].forbid: this rule never applies" in str(warning)


def test_engines_rules_stand_in_the_engines_part(errors: Errors) -> None:
    found = errors(KNOBS + "engines:\n  engine:\n    rules:\n      - forbid: own in [on, off]\n")
    assert found == ["s.yaml:10:17 engines.engine.rules[0].forbid: forbids every combination of engine"]


def test_a_shared_rule_may_name_a_knob_of_one_engine_only(load: Load) -> None:
    loaded = load(
        "engines:\n"
        "  engine: {knobs: {x: {values: [unset, 1], env: X}}}\n"
        "  other: {}\n"
        "rules:\n  - forbid: engine == engine and x == 1 and y == 2\n"
        "knobs:\n  y: {values: [unset, 2], env: Y}\n"
    )
    assert loaded.warnings == ()


def test_an_engines_condition_cannot_see_anothers_knob(errors: Errors) -> None:
    found = errors(
        "engines:\n"
        "  engine: {knobs: {x: {values: [unset, 1], env: X}}}\n"
        "  other: {knobs: {y: {values: [unset, 1], env: Y, when: x == 1}}}\n"
    )
    assert "engines.other.knobs.y.when: there is no knob x" in found[0]


def test_a_prior_names_values_of_its_knob(errors: Errors) -> None:
    found = errors("knobs:\n  a: {values: [unset, 1], env: A, prior: {likely: [unset, 2], reason: r}}\n")
    assert found == ["s.yaml:4:59 knobs.a.prior.likely[1]: a is never 2"]
