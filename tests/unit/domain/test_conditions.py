"""The comparison grammar of `when` and `forbid`."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.domain.conditions import ConditionSyntaxError, comparisons, literal, parse_condition
from tuner.domain.values import Value


@pytest.mark.parametrize(
    ("text", "assignment", "holds"),
    [
        ("a == LL", {"a": "LL"}, True),
        ("a == LL", {"a": "ll"}, False),
        ("a != LL", {"a": "Simple"}, True),
        ("a == on", {"a": True}, True),
        ("a == on", {"a": 1}, False),
        ("a == 1", {"a": True}, False),
        ("a == 'on'", {"a": "on"}, True),
        ("a == on", {"a": "on"}, False),
        ("a < 8", {"a": 4}, True),
        ("a >= 0.8", {"a": 0.80}, True),
        ("a < 8", {"a": "4"}, False),
        ("a in [x, 2, unset]", {"a": None}, True),
        ("a in [x, 2]", {"a": 2}, True),
        ("a not in [x, 2]", {"a": 3}, True),
        ("a == 1 and b == 2 or c == 3", {"a": 0, "b": 2, "c": 3}, True),
        ("a == 1 and (b == 2 or c == 3)", {"a": 0, "b": 2, "c": 3}, False),
        ("not a == 1", {"a": 2}, True),
        ("not (a == 1 or b == 2)", {"a": 2, "b": 2}, False),
        ('a == "ring,tree;allreduce:tree"', {"a": "ring,tree;allreduce:tree"}, True),
        ("a == ring;allreduce:tree", {"a": "ring;allreduce:tree"}, True),
    ],
)
def test_conditions_hold_as_written(text: str, assignment: dict[str, Value], holds: bool) -> None:
    assert parse_condition(text).holds(assignment) is holds


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
def test_no_order_holds_for_an_unset_or_missing_knob(operator: str) -> None:
    assert not parse_condition(f"a {operator} 1").holds({"a": None})
    assert not parse_condition(f"a {operator} 1").holds({})


def test_a_missing_knob_equals_unset_only() -> None:
    assert parse_condition("a == unset").holds({})
    assert parse_condition("a != on").holds({})


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("", 0),
        ("a", 1),
        ("a = 1", 2),
        ("a == ", 5),
        ("a == 1 b", 7),
        ("== 1", 0),
        ("a in x", 5),
        ("a in [x", 7),
        ("(a == 1", 7),
        ("and == 1", 0),
        ("a == or", 5),
        ("a not 1", 6),
        ('a == "x', 5),
    ],
)
def test_syntax_errors_say_where(text: str, offset: int) -> None:
    with pytest.raises(ConditionSyntaxError) as caught:
        parse_condition(text)
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    ("word", "value"),
    [("on", True), ("off", False), ("unset", None), ("8", 8), ("0.5", 0.5), ("LL", "LL"), ("1e3", 1000.0)],
)
def test_words_are_read_as_values(word: str, value: Value) -> None:
    assert literal(word) == value
    assert isinstance(literal(word), type(value))


def test_every_comparison_is_found_with_its_place() -> None:
    found = list(comparisons(parse_condition("a == 1 and not (b in [2] or c > 3)")))
    assert [(one.name, one.offset) for one in found] == [("a", 0), ("b", 16), ("c", 28)]


_names = st.sampled_from(["a", "b", "c"])
_comparisons = st.builds(
    lambda name, operator, value: f"{name} {operator} {value}",
    _names,
    st.sampled_from(["==", "!=", "<", ">="]),
    st.sampled_from(["1", "2", "on", "unset", "LL", '"on"', '"ring,tree;allreduce:tree"', '"1"', "'and'"]),
)
_conditions = st.recursive(
    _comparisons,
    lambda inner: st.one_of(
        st.builds(lambda one: f"not ({one})", inner),
        st.builds(lambda one, word, two: f"({one}) {word} ({two})", inner, st.sampled_from(["and", "or"]), inner),
    ),
    max_leaves=6,
)
_values = st.sampled_from([None, True, False, 1, 2, "LL", "on", "1", "and", "ring,tree;allreduce:tree"])


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(_conditions, st.fixed_dictionaries({"a": _values, "b": _values, "c": _values}))
def test_a_condition_written_out_again_means_the_same(text: str, assignment: dict[str, Value]) -> None:
    condition = parse_condition(text)
    assert parse_condition(str(condition)).holds(assignment) is condition.holds(assignment)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(_conditions, st.fixed_dictionaries({"a": _values, "b": _values, "c": _values}))
def test_a_negation_is_the_opposite(text: str, assignment: dict[str, Value]) -> None:
    assert parse_condition(f"not ({text})").holds(assignment) is not parse_condition(text).holds(assignment)


@pytest.mark.parametrize("text", ["(" * 5000 + "a == 1" + ")" * 5000, "not " * 5000 + "a == 1"])
def test_endless_nesting_is_an_error_of_the_text_and_not_of_the_program(text: str) -> None:
    with pytest.raises(ConditionSyntaxError, match="nested more than"):
        parse_condition(text)


def test_many_terms_beside_each_other_are_no_nesting() -> None:
    condition = parse_condition(" or ".join(f"(a == {number})" for number in range(200)))
    assert condition.holds({"a": 199})
    assert not condition.holds({"a": 200})
