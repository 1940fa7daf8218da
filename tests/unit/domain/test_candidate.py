"""Candidates: equal launches are equal, whatever was written for knobs that do not act."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from tuner.domain.candidate import Candidate
from tuner.domain.space import Space


def space(*names: str, **changes: Any) -> Space:
    knobs: dict[str, Any] = {
        "graphs": {"switch": True, "flag": "--g"},
        "size": {"values": [None, 8, 16], "flag": "--s", "when": "graphs == on"},
        "pad": {"switch": True, "flag": "--p", "when": "size == 16"},
    }
    ordered = {name: knobs[name] for name in names or knobs}
    return Space.model_validate({"name": "t", "model": "m", "engines": {"e": {}}, "knobs": ordered} | changes)


def test_inactive_knobs_are_dropped() -> None:
    candidate = Candidate.of(space(), "e", {"graphs": False, "size": 8, "pad": True})
    assert candidate.values == {"graphs": False}


def test_a_knob_behind_an_inactive_one_is_inactive_too() -> None:
    assert "pad" not in Candidate.of(space(), "e", {"graphs": False, "size": 16, "pad": True}).values
    assert Candidate.of(space(), "e", {"graphs": True, "size": 16, "pad": True}).values["pad"] is True


def test_the_value_of_an_inactive_knob_decides_nothing() -> None:
    knobs = {
        "a": {"switch": True, "flag": "--a"},
        "b": {"values": [None, 1, 2], "flag": "--b", "when": "a == on"},
        "c": {"switch": True, "flag": "--c", "when": "b != 1"},
    }
    found = [Candidate.of(space(knobs=knobs), "e", {"a": False, "b": b, "c": True}).values for b in (None, 1, 2)]
    assert found == [{"a": False, "c": True}] * 3


def test_the_order_of_knobs_in_the_file_does_not_matter() -> None:
    fingerprints = {
        Candidate.of(space(*order), "e", {"graphs": True, "size": 8, "pad": True}).fingerprint
        for order in permutations(["graphs", "size", "pad"])
    }
    assert len(fingerprints) == 1


def test_unset_values_do_not_count_for_identity() -> None:
    one = Candidate.of(space(), "e", {"graphs": True})
    two = Candidate.of(space("graphs"), "e", {"graphs": True})
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint != Candidate.of(space(), "e", {"graphs": True, "size": 8}).fingerprint


def test_a_number_and_a_truth_value_are_different_candidates() -> None:
    assert Candidate("e", {"a": 1}).fingerprint != Candidate("e", {"a": True}).fingerprint
    assert Candidate("e", {"a": 1}).fingerprint != Candidate("other", {"a": 1}).fingerprint


def test_unknown_knobs_are_refused() -> None:
    with pytest.raises(KeyError, match="nothing"):
        Candidate.of(space(), "e", {"nothing": 1})


def test_differences_name_both_values() -> None:
    base = Candidate.of(space(), "e", {"graphs": False})
    other = Candidate.of(space(), "e", {"graphs": True, "size": 8})
    assert other.differs_from(base) == {"graphs": (False, True), "size": (None, 8)}


def test_conditions_may_name_the_engine() -> None:
    two = space(
        engines={"e": {}, "f": {}},
        knobs={"a": {"switch": True, "flag": "--a", "when": "engine == f"}},
    )
    assert Candidate.of(two, "e", {"a": True}).values == {}
    assert Candidate.of(two, "f", {"a": True}).values == {"a": True}


def test_an_engines_own_knob_wins_over_the_shared_one() -> None:
    two = space(engines={"e": {"knobs": {"graphs": {"values": [1], "flag": "--own"}}}, "f": {}})
    assert two.knobs_of("e")["graphs"].flag == "--own"
    assert two.knobs_of("f")["graphs"].flag == "--g"
