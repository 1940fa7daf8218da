"""When a study ends, in words."""

from __future__ import annotations

import pytest

from tuner.domain.space import Budget
from tuner.search.base import RemainingGain
from tuner.study.stopping import Spent, ends_when, nothing_left, spent_reason


def test_every_limit_of_a_budget_is_named() -> None:
    assert ends_when(Budget(trials=9), "alone") == "after 9 launches"
    words = ends_when(Budget(trials=9, hours=2, gpu_hours=0.5, stop_below_gain=0.01), "alone")
    assert words == (
        "after 9 launches, or 2 hours, or 0.5 GPU-hours, or once no candidate is expected to be 1.00% better than the "
        "best found in alone (90% confidence)"
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(7200, "2 hours"), (3600, "1 hour"), (420, "7 minutes"), (90, "1.5 minutes"), (30, "30 seconds")],
)
def test_a_time_below_an_hour_is_told_in_minutes_or_seconds_as_it_was_given(seconds: float, words: str) -> None:
    assert ends_when(Budget(trials=9, hours=seconds / 3600), "alone") == f"after 9 launches, or {words}"


@pytest.mark.parametrize(
    ("spent", "named"),
    [
        (Spent(9, 0.0, 0.0), "9 trials"),
        (Spent(0, 2.0, 0.0), "2 hours"),
        (Spent(0, 0.0, 0.5), "0.5 GPU-hours"),
        (Spent(8, 1.9, 0.4), None),
    ],
)
def test_the_limit_that_was_reached_first_is_the_reason(spent: Spent, named: str | None) -> None:
    reason = spent_reason(Budget(trials=9, hours=2, gpu_hours=0.5), spent)
    assert (reason is None) if named is None else (reason is not None and named in reason)


@pytest.mark.parametrize(
    ("gain", "ends"),
    [
        (None, False),
        (RemainingGain(0.002, 0.008, 0.9), True),
        (RemainingGain(0.002, 0.012, 0.9), False),
        (RemainingGain(0.012, 0.008, 0.9), False),
        (RemainingGain(0.002, 0.01, 0.9), False),
    ],
)
def test_a_search_ends_early_only_when_expectation_and_bound_are_below_what_was_asked(
    gain: RemainingGain | None, ends: bool
) -> None:
    words = nothing_left(Budget(stop_below_gain=0.01), gain, "alone")
    assert (words is not None) is ends
    assert nothing_left(Budget(), gain, "alone") is None


def test_the_reason_says_what_was_expected_and_how_sure_that_is() -> None:
    words = nothing_left(Budget(stop_below_gain=0.01), RemainingGain(0.002, 0.008, 0.95), "alone")
    assert words == (
        "no candidate is expected to be 1.00% better than the best found in alone: "
        "0.20% expected, below 0.80% with 95% confidence"
    )


def test_a_budget_of_one_is_told_in_the_singular() -> None:
    budget = Budget(trials=1, hours=1)
    assert ends_when(budget, "alone") == "after 1 launch, or 1 hour"
    assert spent_reason(budget, Spent(1, 0.0, 0.0)) == "the budget of 1 trial is used up"
