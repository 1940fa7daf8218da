"""Limits that follow what good launches took."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.domain.outcome import Phase
from tuner.trial.deadlines import LEARN_FROM, MARGIN_S, PhaseDeadlines, learn_limits

GOOD = {Phase.SPAWN: 2.0, Phase.IMPORT: 20.0, Phase.WEIGHTS: 30.0, Phase.COMPILE: 40.0, Phase.WARMUP: 8.0}


def test_nothing_is_learned_from_too_few_launches() -> None:
    assert learn_limits([GOOD] * (LEARN_FROM - 1)) == {}


def test_a_learned_limit_is_twice_the_median_plus_the_margin() -> None:
    launches = [{**GOOD, Phase.WEIGHTS: seconds} for seconds in (30.0, 31.0, 500.0)]
    assert learn_limits(launches)[Phase.WEIGHTS] == 2 * 31.0 + MARGIN_S


def test_one_slow_launch_among_many_does_not_move_the_limits() -> None:
    slow = {phase: 100 * seconds for phase, seconds in GOOD.items()}
    assert learn_limits([GOOD] * 4 + [slow]) == learn_limits([GOOD] * 4)


def test_a_phase_that_few_launches_had_is_not_learned() -> None:
    launches = [GOOD, GOOD, GOOD, {**GOOD, Phase.GRAPH_CAPTURE: 3.0}]
    assert Phase.GRAPH_CAPTURE not in learn_limits(launches)


def test_a_phase_never_seen_may_take_as_long_as_two_good_launches() -> None:
    limits = PhaseDeadlines.of(900, learn_limits([GOOD] * 3))
    assert limits.limit(Phase.GRAPH_CAPTURE) == 2 * sum(GOOD.values()) + MARGIN_S
    assert PhaseDeadlines.of(100, learn_limits([GOOD] * 3)).limit(Phase.GRAPH_CAPTURE) < 100


def test_the_whole_launch_gets_one_margin_and_not_one_for_each_phase() -> None:
    limits = PhaseDeadlines.of(900, learn_limits([GOOD] * 3))
    assert limits.total(list(GOOD)) == pytest.approx(2 * sum(GOOD.values()) + MARGIN_S)


def test_a_phase_never_seen_brings_its_own_limit() -> None:
    limits = PhaseDeadlines.of(900, learn_limits([{Phase.SPAWN: 1.0}] * 3))
    assert limits.total([Phase.SPAWN, Phase.PARSE]) == pytest.approx(2.0 + MARGIN_S + limits.limit(Phase.PARSE))


@given(
    st.lists(
        st.dictionaries(st.sampled_from(sorted(GOOD)), st.floats(0, 1e4), min_size=1), min_size=LEARN_FROM, max_size=8
    ),
    st.floats(1, 1e4),
)
def test_nothing_ever_exceeds_the_launch_timeout(launches: list[dict[Phase, float]], timeout: float) -> None:
    limits = PhaseDeadlines.of(timeout, learn_limits(launches))
    assert all(0 < limits.limit(phase) <= timeout for phase in Phase)
    assert limits.total(list(Phase)) <= timeout
