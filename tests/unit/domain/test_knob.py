"""Knobs: which values they have and where they land."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tuner.domain.knob import LOG_GRID_POINTS, MAX_GRID_POINTS, Knob


def knob(**fields: Any) -> Knob:
    return Knob.model_validate({"flag": "--x"} | fields)


def test_a_switch_is_off_and_on() -> None:
    assert knob(switch=True).grid == (False, True)


def test_categories_keep_their_order_and_unset() -> None:
    assert knob(values=[None, "LL", "LL,LL128,Simple"]).grid == (None, "LL", "LL,LL128,Simple")


def test_one_and_true_are_different_values() -> None:
    assert knob(values=[True, 1]).allows(1)
    assert not knob(values=[True]).allows(1)
    with pytest.raises(ValidationError, match="stands twice"):
        knob(values=[1, 2, 1])


@pytest.mark.parametrize(
    ("range_", "points"),
    [
        ({"low": 1, "high": 4}, (1, 2, 3, 4)),
        ({"low": 1, "high": 10, "step": 4}, (1, 5, 9)),
        ({"low": 1, "high": 8, "log": True}, (1, 2, 4, 8)),
        ({"low": 5, "high": 5}, (5,)),
        ({"low": 5, "high": 5, "log": True}, (5,)),
        ({"low": 1, "high": 3, "unset": True}, (None, 1, 2, 3)),
    ],
)
def test_integer_ranges_as_a_list(range_: dict[str, Any], points: tuple[Any, ...]) -> None:
    assert knob(int=range_).grid == points


def test_float_ranges_hit_their_ends_exactly() -> None:
    grid = knob(float={"low": 0.7, "high": 0.95, "step": 0.01}).grid
    assert (grid[0], grid[-1], len(grid)) == (0.7, 0.95, 26)
    assert len(knob(float={"low": 0.0, "high": 1.0}).grid) == LOG_GRID_POINTS


def test_a_grid_is_bounded_and_keeps_to_the_steps() -> None:
    grid = knob(int={"low": 1, "high": 100_000}).grid
    assert len(grid) <= MAX_GRID_POINTS
    assert all(isinstance(value, int) for value in grid)


def test_small_steps_do_not_vanish_and_large_ones_are_round() -> None:
    assert knob(float={"low": 0, "high": 3e-12, "step": 1e-12}).grid == (0.0, 1e-12, 2e-12, 3e-12)
    assert knob(float={"low": 0.1, "high": 0.4, "step": 0.1}).grid == (0.1, 0.2, 0.3, 0.4)


def test_a_range_allows_what_is_on_its_steps() -> None:
    stepped = knob(int={"low": 2, "high": 10, "step": 4})
    assert [value for value in range(12) if stepped.allows(value)] == [2, 6, 10]
    assert not stepped.allows(None)
    assert not stepped.allows(6.0)
    assert not stepped.allows(True)
    assert knob(float={"low": 0.8, "high": 0.9, "step": 0.02}).allows(0.84)
    assert not knob(float={"low": 0.8, "high": 0.9, "step": 0.02}).allows(0.83)


@pytest.mark.parametrize(
    "range_",
    [
        {"low": 4, "high": 1},
        {"low": 1, "high": 4, "step": 0},
        {"low": 0, "high": 4, "log": True},
        {"low": 1, "high": 4, "step": 1, "log": True},
    ],
)
def test_empty_and_contradictory_ranges_are_refused(range_: dict[str, Any]) -> None:
    for kind in ("int", "float"):
        with pytest.raises(ValidationError):
            knob(**{kind: range_})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"switch": True, "values": [1]},
        {"switch": True, "env": "X"},
        {"switch": True, "flag": None},
        {"values": []},
        {"values": [1], "inverted": True},
        {"values": [1], "split": True, "key": "a"},
        {"values": [1], "flag": None, "env": "X", "key": "a"},
        {"values": [1], "flag": "x"},
        {"values": [1], "flag": None, "env": "A B"},
        {"values": [1], "when": "a ="},
    ],
)
def test_a_knob_that_says_too_little_or_too_much_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        knob(**fields)


def test_the_target_names_the_place() -> None:
    assert knob(switch=True).target == "--x"
    assert knob(switch=True, key="a.b").target == "--x:a.b"
    assert Knob.model_validate({"switch": True, "env": "NCCL_X"}).target == "NCCL_X"


def test_numbers_and_ordered_categories_have_neighbours() -> None:
    assert knob(int={"low": 1, "high": 2}).ordinal
    assert knob(values=[1, 2], ordered=True).ordinal
    assert not knob(values=[1, 2]).ordinal
    assert not knob(switch=True).ordinal


@pytest.mark.parametrize(
    "bounds",
    [
        {"low": -1e308, "high": 1e308},
        {"low": 1e-320, "high": 1e300, "log": True},
    ],
)
def test_a_float_range_too_wide_for_arithmetic_is_refused(bounds: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="too wide"):
        Knob.model_validate({"env": "A", "float": bounds})


def test_a_step_far_below_the_range_still_gives_a_bounded_grid() -> None:
    assert len(Knob.model_validate({"env": "A", "float": {"low": 0, "high": 1, "step": 1e-320}}).grid) == 256


def test_the_largest_integers_are_cut_into_a_bounded_grid_and_larger_ones_are_refused() -> None:
    widest = Knob.model_validate({"env": "A", "int": {"low": -(2**63) + 1, "high": 2**63 - 1}})
    assert 128 <= len(widest.grid) <= 256
    with pytest.raises(ValidationError):
        Knob.model_validate({"env": "A", "int": {"low": 0, "high": 10**30}})
