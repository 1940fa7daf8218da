"""How many requests of an open loop arrive, and how they are spaced."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import fmean, pstdev

import pytest
import scipy.stats

from tuner.loadgen.arrivals import arrival_instants, window_seconds


@pytest.mark.parametrize("spacing", ["poisson", "constant"])
@pytest.mark.parametrize(("rate", "requests"), [(1.0, 20), (5.0, 100), (0.3, 7)])
def test_as_many_arrive_as_asked_all_within_the_window(rate: float, requests: int, spacing: str) -> None:
    for seed in range(20):
        due = arrival_instants(rate, requests, spacing, Random(seed))  # type: ignore[arg-type]
        assert len(due) == requests
        assert list(due) == sorted(due)
        assert due[0] >= 0
        assert due[-1] < window_seconds(rate, requests) == pytest.approx(requests / rate)


def test_gaps_of_poisson_arrivals_are_exponential() -> None:
    due = arrival_instants(50.0, 3000, "poisson", Random(1))
    gaps = [after - before for before, after in pairwise(due)]
    assert scipy.stats.kstest(gaps, "expon", args=(0, 1 / 50)).pvalue > 0.01
    assert pstdev(gaps) == pytest.approx(fmean(gaps), rel=0.05)


def test_numbers_in_parts_of_the_window_spread_like_a_poisson_process_given_its_total() -> None:
    """Over many draws, the number in the first fifth of the window is binomial(100, 1/5)."""
    numbers = [sum(at < 4 for at in arrival_instants(5.0, 100, "poisson", Random(seed))) for seed in range(2000)]
    assert fmean(numbers) == pytest.approx(20, abs=0.5)
    assert pstdev(numbers) == pytest.approx(4, rel=0.1)


def test_constant_arrivals_are_equally_far_apart_from_the_start() -> None:
    assert arrival_instants(4.0, 4, "constant", Random(1)) == (0, 0.25, 0.5, 0.75)


def test_the_same_seed_draws_the_same_instants_and_another_one_others() -> None:
    first, again, other = (arrival_instants(5.0, 100, "poisson", Random(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
