"""Whether launches of one configuration became faster or slower."""

from __future__ import annotations

import pytest

from tuner.domain.trial import LaunchKind
from tuner.trial.change import Point, change_of

FIRST = (100.0, 101.0, 99.0)


def points(*later: float, kind: LaunchKind = LaunchKind.PLAIN) -> tuple[Point, ...]:
    first = [Point(float(n), value, n, True, LaunchKind.PLAIN) for n, value in enumerate(FIRST)]
    return (*first, *(Point(10.0 * n, value, 10 * n, False, kind) for n, value in enumerate(later, start=1)))


def test_a_step_is_found_wherever_it_lies() -> None:
    for later, since in (((70.0,), 10), ((100.0, 70.0), 20), ((100.5, 99.5, 70.0, 70.5), 30)):
        change = change_of(points(*later))
        assert change is not None
        assert change.since == since
        assert change.share == pytest.approx(-0.3, abs=0.01)


def test_a_launch_that_was_made_in_another_way_is_no_step() -> None:
    assert change_of(points(70.0, kind=LaunchKind.WARM)) is None


def test_what_was_shown_once_stays_shown_and_later_launches_tell_how_large_it_is() -> None:
    change = change_of(points(70.0, 88.0))
    assert change is not None
    assert (change.since, change.share) == (10, pytest.approx(-0.215, abs=0.01))


def test_a_single_odd_launch_does_not_hide_a_step() -> None:
    change = change_of(points(100.0, 99.5, 70.0, 30.0, 70.5, 69.5, 70.0))
    assert change is not None
    assert change.since == 30


def test_a_single_odd_launch_is_no_change_once_others_are_as_the_first() -> None:
    assert change_of(points(100.0, 60.0)) is not None
    assert change_of(points(100.0, 60.0, 101.0, 99.5)) is None


def test_a_steady_loss_is_a_trend() -> None:
    change = change_of(points(96.0, 93.0, 90.0, 87.0, 84.0))
    assert change is not None
    assert change.share < -0.1


@pytest.mark.parametrize("later", [(), (99.5, 100.5, 98.7), (101.5,)])
def test_launches_within_chance_or_a_change_of_no_consequence_are_none(later: tuple[float, ...]) -> None:
    assert change_of(points(*later)) is None
