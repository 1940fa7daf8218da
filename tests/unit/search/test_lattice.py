"""Candidates as integer points, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.search_spaces import BASELINE, candidate, lattice, space

from tuner.search.pool import random_points


@given(st.data())
def test_every_allowed_point_survives_the_way_to_a_candidate_and_back(data: st.DataObject) -> None:
    grid = lattice()
    row = [data.draw(st.integers(0, int(size) - 1)) for size in grid.sizes]
    point = grid.canonical(np.array([row]))[0]
    assert (grid.encode(grid.decode(point)) == point).all()


def test_an_inactive_knob_makes_no_difference() -> None:
    grid = lattice()
    off = {**BASELINE, "graph": False}
    off.pop("graph_size")
    one = grid.encode(candidate(space(), {**off, "graph_size": 8}))
    other = grid.encode(candidate(space(), {**off, "graph_size": 128}))
    assert (one == other).all()
    assert "graph_size" not in grid.decode(one).values


def test_a_knob_behind_an_inactive_knob_is_inactive() -> None:
    knobs = {
        "a": {"switch": True, "flag": "--a"},
        "b": {"switch": True, "flag": "--b", "when": "a == on"},
        "c": {"switch": True, "flag": "--c", "when": "b == on"},
    }
    grid = lattice(space(knobs), {"a": True, "b": True, "c": True})
    point = np.array([[0, 1, 1]])
    assert grid.inactive(point).tolist() == [[False, True, True]]


def test_rules_forbid_points_and_do_not_see_inactive_knobs() -> None:
    forbidding = space(rules=[{"forbid": "graph_size > 100"}])
    grid = lattice(forbidding)
    on = grid.encode(candidate(forbidding, {**BASELINE, "graph_size": 256}))
    off = on.copy()
    off[[axis.name for axis in grid.axes].index("graph")] = 0
    assert grid.allowed(np.array([on, off])).tolist() == [False, True]


def test_a_baseline_value_off_the_grid_joins_its_axis_in_order() -> None:
    grid = lattice(space(), {**BASELINE, "graph_size": 48})
    axis = next(a for a in grid.axes if a.name == "graph_size")
    assert axis.values[axis.baseline] == 48
    assert list(axis.values) == sorted(axis.values)


def test_a_setting_that_the_baseline_leaves_out_counts_as_its_known_default() -> None:
    knobs = {"backend": {"values": ["triton", "fa3"], "flag": "--b", "default": "triton"}}
    grid = lattice(space(knobs), {})
    assert grid.axes[0].values == (None, "fa3")
    assert grid.encode(candidate(space(knobs), {"backend": "fa3"})).tolist() == [1]


def test_a_setting_left_out_without_known_default_is_a_value_of_its_own() -> None:
    knobs = {"backend": {"values": ["triton", "fa3"], "flag": "--b"}}
    assert lattice(space(knobs), {}).axes[0].values == (None, "triton", "fa3")


def test_wide_positive_scales_are_logarithmic_and_narrow_ones_linear() -> None:
    axes = {axis.name: axis for axis in lattice().axes}
    assert np.allclose(np.diff(axes["graph_size"].positions), 0.2)
    assert np.allclose(np.diff(axes["fraction"].positions), 0.2)
    assert np.allclose(np.diff(axes["channels"].positions), 0.25), "zero or unset first: steps count"


def test_a_fine_grid_is_thinned_but_keeps_its_ends_and_the_baseline() -> None:
    knobs = {"n": {"int": {"low": 1, "high": 200}, "flag": "--n"}}
    axis = lattice(space(knobs), {"n": 77}).axes[0]
    assert len(axis.values) <= 34
    assert {1, 77} <= set(axis.values)
    assert max(v for v in axis.values if isinstance(v, int)) == 200


@pytest.mark.parametrize("value", [True, 1])
def test_on_and_one_are_different_values(value: object) -> None:
    knobs = {"x": {"values": [True, 1], "flag": "--x"}, "y": {"switch": True, "flag": "--y", "when": "x == 1"}}
    grid = lattice(space(knobs), {"x": value})
    absent = grid.inactive(np.array([[0, 0], [1, 0]]))
    assert absent[:, 1].tolist() == [True, False]


def test_a_resting_knob_stays_where_the_baseline_has_it() -> None:
    grid = lattice()
    steps = [axis.name for axis in grid.axes].index("steps")
    other = grid.baseline.copy()
    other[steps] += 2
    assert grid.allowed(other[None]).all()
    grid.rest(["steps"])
    assert grid.allowed(np.array([grid.baseline, other])).tolist() == [True, False]
    assert (grid.launchable(other[None]) == grid.baseline).all()
    # What was launched before stays what it was.
    assert grid.decode(other).values["steps"] == 3
    assert set(random_points(grid, 500, np.random.default_rng(0))[:, steps]) == {grid.baseline[steps]}
    grid.rest([])
    assert grid.allowed(other[None]).all()
