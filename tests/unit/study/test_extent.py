"""Why a budget has no confirmation."""

from __future__ import annotations

import re

import pytest

from tuner.domain.space import Budget
from tuner.study.extent import automatic_extent, no_extent_words


@pytest.mark.parametrize("engines", [1, 2, 3])
def test_the_trials_that_are_named_are_the_fewest_with_a_confirmation(engines: int) -> None:
    said = re.search(r"from budget\.trials (\d+) on", no_extent_words(Budget(trials=1), engines=engines))
    assert said is not None
    fewest = int(said[1])
    assert automatic_extent(Budget(trials=fewest - 1), engines=engines) is None
    assert automatic_extent(Budget(trials=fewest), engines=engines) is not None


@pytest.mark.parametrize("launches", [0, 1])
def test_a_space_that_wants_too_few_rounds_is_told_so_whatever_its_trials(launches: int) -> None:
    budget = Budget(trials=100, confirm_launches=launches)
    assert automatic_extent(budget, engines=1) is None
    assert no_extent_words(budget, engines=1).startswith(f"budget.confirm_launches is {launches}:")
