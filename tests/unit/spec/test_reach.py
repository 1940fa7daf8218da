"""What can happen in a space: counted exactly, and compared with listing everything."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.domain.candidate import Candidate
from tuner.domain.space import Space
from tuner.spec import space_size
from tuner.spec.reach import CyclicConditions, reach_of


def space(knobs: dict[str, Any], rules: list[str] = []) -> Space:  # noqa: B006 - never changed
    return Space.model_validate(
        {
            "name": "t",
            "model": "m",
            "engines": {"e": {}},
            "knobs": {name: {"env": name.upper()} | fields for name, fields in knobs.items()},
            "rules": [{"forbid": rule} for rule in rules],
        }
    )


def listed(of: Space) -> int:
    """Number of different allowed candidates, by listing every combination."""
    knobs = of.knobs_of("e")
    found = set()
    for values in product(*(knob.grid for knob in knobs.values())):
        candidate = Candidate.of(of, "e", dict(zip(knobs, values, strict=True)))
        if not any(of.broken_rules("e", candidate.values)):
            found.add(tuple(sorted((name, repr(value)) for name, value in candidate.values.items())))
    return len(found)


def test_inactive_knobs_count_once() -> None:
    of = space({"a": {"switch": True}, "b": {"values": [1, 2, 3], "when": "a == on"}})
    assert space_size(of, "e").combinations == 1 + 3
    assert space_size(of, "e").naive == 6


def test_forbidden_combinations_do_not_count() -> None:
    of = space({"a": {"values": [1, 2, 3]}, "b": {"values": [1, 2]}}, ["a == 1 and b == 2"])
    assert space_size(of, "e").combinations == 5


def test_independent_knobs_multiply_without_being_listed() -> None:
    of = space({f"k{index}": {"int": {"low": 1, "high": 100}} for index in range(12)})
    size = space_size(of, "e")
    assert (size.combinations, size.exact, str(size)) == (100**12, True, "about 10^24")


def test_values_that_no_condition_tells_apart_are_one_class() -> None:
    of = space({"a": {"int": {"low": 1, "high": 200}}, "b": {"switch": True, "when": "a > 150"}})
    (group, _) = reach_of(of, "e").groups
    assert len(group.worlds or ()) == 2
    assert group.size == 150 + 50 * 2


def test_a_space_without_knobs_has_one_launch() -> None:
    assert space_size(space({}), "e").combinations == 1


@pytest.mark.slow
def test_too_many_ties_give_an_upper_bound() -> None:
    names = [f"k{index}" for index in range(10)]
    knobs = {name: {"values": [1, 2, 3, 4]} for name in names}
    telling = [" or ".join(f"{name} == {value}" for name in names) for value in (1, 2, 3, 4)]
    of = space(knobs, [f"({text}) and k0 == 1 and k1 == 2 and k2 == 3" for text in telling])
    size = space_size(of, "e")
    assert (size.exact, size.combinations) == (False, 4**10)
    assert str(size).startswith("at most ")


def test_circles_are_refused() -> None:
    of = space({"a": {"switch": True, "when": "b == on"}, "b": {"switch": True, "when": "a == on"}})
    with pytest.raises(CyclicConditions, match="a → b → a"):
        reach_of(of, "e")


_fields = st.sampled_from([{"switch": True}, {"values": [None, 1, 2]}, {"int": {"low": 1, "high": 4}}])
_conditions = st.sampled_from(["{} == on", "{} != 1", "{} > 2", "{} == unset", "not {} == 2", "{} in [1, on]"])


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    names = ["a", "b", "c", "d"]
    knobs: dict[str, Any] = {}
    for index, name in enumerate(names):
        fields = dict(draw(_fields))
        if index and draw(st.booleans()):
            fields["when"] = draw(_conditions).format(draw(st.sampled_from(names[:index])))
        knobs[name] = fields
    pairs = draw(
        st.lists(st.tuples(_conditions, st.sampled_from(names), _conditions, st.sampled_from(names)), max_size=2)
    )
    rules = [f"{one.format(a)} and {two.format(b)}" for one, a, two, b in pairs]
    shuffled = draw(st.permutations(names))
    return space({name: knobs[name] for name in shuffled}, rules)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(spaces())
def test_the_size_equals_the_number_of_different_allowed_candidates(of: Space) -> None:
    size = space_size(of, "e")
    assert size.exact
    assert size.combinations == listed(of)
