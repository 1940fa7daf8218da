"""Which values the first launches look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from support.search_spaces import lattice, space

from tuner.domain.values import Value
from tuner.search.lattice import Lattice
from tuner.search.start import telling_changes

CATEGORIES: Mapping[str, Any] = {"way": {"values": [f"way {i}" for i in range(20)], "flag": "--way"}}


def of_a_scale(highest: int, start: int, **more: Any) -> Lattice:
    """A space with the scale 0, 1, … highest, of which the baseline takes `start`."""
    knobs = {"scale": {"int": {"low": 0, "high": highest}, "flag": "--scale"}, **more}
    values = {"scale": start, **({"way": "way 0"} if more else {})}
    return lattice(space(knobs), values)


def looked_at(of: Lattice, seed: int = 0, knob: str = "scale") -> list[Value]:
    """The values of one knob that the start looks at, in the order of its values."""
    column = next(i for i, axis in enumerate(of.axes) if axis.name == knob)
    changes = telling_changes(of, np.random.default_rng(seed))
    return [of.axes[column].values[index] for axis, index in sorted(changes) if axis == column]


def test_of_a_scale_one_point_is_looked_at_halfway_to_an_end_left_to_chance() -> None:
    found = [looked_at(of_a_scale(12, 4), seed) for seed in range(20)]
    assert all(len(values) == 1 for values in found)
    assert {values[0] for values in found} == {2, 8}


@pytest.mark.parametrize(("highest", "start", "expected"), [(12, 0, [6]), (12, 12, [6]), (1, 0, [1]), (0, 0, [])])
def test_where_the_baseline_is_an_end_of_a_scale_it_is_halfway_to_the_other(
    highest: int, start: int, expected: list[int]
) -> None:
    assert looked_at(of_a_scale(highest, start)) == expected


def test_every_other_category_is_looked_at() -> None:
    of = of_a_scale(12, 4, **CATEGORIES)
    assert looked_at(of, knob="way") == [f"way {i}" for i in range(1, 20)]


def test_the_order_is_left_to_chance_and_the_same_for_the_same_seed() -> None:
    of = of_a_scale(12, 4, **CATEGORIES)
    first, again, other = (telling_changes(of, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again != other
