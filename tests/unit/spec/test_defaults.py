"""The `default` of a knob against what the knob and its engine can hold."""

from __future__ import annotations

import pytest
from support.space_files import Errors, Load, knob


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("switch: on, flag: --mixed, default: maybe", "must be on or off: the knob is a switch"),
        ("switch: on, env: A, default: 1", "must be on or off: the knob is a switch"),
        ("values: [unset, LL], env: NCCL_PROTO, default: XX", "NCCL_PROTO=XX: NCCL fails at start on 'XX'"),
        ("values: [unset, fa3], flag: --backend, default: fa33", "--backend does not take fa33; it takes triton"),
        ("int: {low: 1, high: 8, unset: true}, env: A, default: auto", "must be a whole number, not auto"),
        ("int: {low: 1, high: 8}, flag: --steps, default: 0.5", "must be a whole number, not 0.5"),
        ("float: {low: 0.1, high: 0.9}, flag: --memory, default: on", "must be a number, not on"),
        ("values: [unset, 4, 8], ordered: true, env: A, default: many", "must be a number, not many"),
        ("values: [unset, 1], env: API_TOKEN, default: abc", "a secret (a) would be stored with the study in clear"),
    ],
)
def test_a_default_that_cannot_be_is_refused_where_it_stands(errors: Errors, text: str, problem: str) -> None:
    (found,) = errors(knob(text))
    column = knob(text).splitlines()[1].index("default: ") + len("default: ") + 1
    assert found.startswith(f"s.yaml:4:{column} knobs.a.default: {problem}")


@pytest.mark.parametrize(
    "text",
    [
        "int: {low: 64, high: 256, unset: true}, flag: --max-running, default: 1024",
        "values: [unset, fa3], flag: --backend, default: triton",
        "values: [unset, fast, slow], env: A, default: usual",
        "values: [unset, low, high], ordered: true, env: A, default: middle",
        "switch: on, inverted: true, flag: --disable-own, default: on",
    ],
)
def test_the_engines_own_value_need_not_be_searched(load: Load, text: str) -> None:
    load(knob(text))


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("values: [unset, Simple, LL], env: A, default: Sipmle", "A"),
        ("values: [unset, Simple, LL], env: A, default: simple", "A"),
        ("values: [unset, Simple, LL], flag: --config, default: Simpel", "--config"),
    ],
)
def test_a_default_that_looks_like_a_slip_of_a_value_is_told_where_nobody_knows_what_is_taken(
    load: Load, text: str, target: str
) -> None:
    (warning,) = load(knob(text)).warnings
    assert warning.path == "knobs.a.default"
    assert warning.message.endswith(f"is not among the knob's values, and nothing here tells what {target} takes")
    assert warning.hint == "did you mean Simple?"


@pytest.mark.parametrize(
    "text",
    [
        "values: [unset, fast, slow], env: A, default: usual",
        "values: [unset, 'LL,LL128'], env: NCCL_PROTO, default: 'LL128,LL'",
        "values: [unset, flashy], flag: --config, default: flash",
        "values: [unset, fa3], flag: --backend, default: flash",
    ],
)
def test_a_default_that_may_well_be_the_engines_own_is_no_slip(load: Load, text: str) -> None:
    assert not load(knob(text)).warnings


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("int: {low: 1, high: 8}, env: A, default: 99", "at 99, which is outside 1…8 (correct it, let the knob"),
        ("int: {low: 2, high: 8, step: 2}, env: A, default: 3", "at 3, which is between the steps of 2…8"),
        ("int: {low: 1, high: 8}, flag: --steps, default: 99", "at 99, which is outside 1…8"),
        (
            "values: [triton, flash], flag: --backend, default: fa3",
            "at fa3, which is not among its values triton, flash",
        ),
    ],
)
def test_a_baseline_at_a_default_that_is_not_searched_names_both(errors: Errors, text: str, problem: str) -> None:
    (found,) = errors(knob(text))
    assert "knobs.a.default: the baseline of engine leaves this knob " + problem in found
    assert "give it a `default`" not in found


def test_a_baseline_at_the_parsers_value_that_is_not_searched_names_both(errors: Errors) -> None:
    (found,) = errors(knob("values: [2, 4], flag: --tp"))
    assert found.startswith("s.yaml:4:3 knobs.a: the baseline of engine leaves this knob at 1, which is not among its")
    assert "(let the knob take 1, add `unset` to its values" in found
