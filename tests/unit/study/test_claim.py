"""A dead coordinator's claim runs out, also where its clock was years ahead; a living one's is respected."""

from __future__ import annotations

import time

import pytest
from support import records

from tuner.errors import Stopped, StudyError
from tuner.store import Store
from tuner.study.claim import LEASE_S, claim
from tuner.study.events import Noted, StudyEvent
from tuner.study.stopping import StopSwitch

YEAR_S = 365 * 86_400.0
THEIRS, OURS = "far:1:2:3", "here:1:2:3"


@pytest.fixture
def store(store: Store) -> Store:
    """It holds the study `night`."""
    store.create_study(records.study())
    return store


def test_a_claim_by_a_clock_that_is_ahead_ends_without_a_sign_of_life(store: Store) -> None:
    store.acquire_coordinator("night", THEIRS, YEAR_S)
    slept: list[float] = []
    told: list[StudyEvent] = []
    claim(store, records.study(), OURS, told.append, StopSwitch(), slept.append)
    lease = store.coordinator("night")
    assert lease is not None
    assert lease.owner == OURS
    assert sum(slept) == LEASE_S
    texts = [event.text for event in told if isinstance(event, Noted)]
    year = time.localtime(time.time() + YEAR_S).tm_year
    assert texts[0].startswith(f"{THEIRS} claims night until {year}-")
    assert texts[1:] == ["there was none: the study is taken over"]


def test_one_that_is_renewed_meanwhile_is_respected(store: Store) -> None:
    store.acquire_coordinator("night", THEIRS, YEAR_S)

    def renewed(_seconds: float) -> None:
        store.acquire_coordinator("night", THEIRS, YEAR_S + 1)

    with pytest.raises(StudyError, match=f"is being run by {THEIRS}"):
        claim(store, records.study(), OURS, lambda _event: None, StopSwitch(), renewed)


def test_ctrl_c_ends_the_wait_and_leaves_the_claim(store: Store) -> None:
    store.acquire_coordinator("night", THEIRS, YEAR_S)
    stop = StopSwitch()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        stop.press()

    with pytest.raises(Stopped, match="left as it was"):
        claim(store, records.study(), OURS, lambda _event: None, stop, sleep)
    assert len(slept) == 1
    lease = store.coordinator("night")
    assert lease is not None
    assert lease.owner == THEIRS


@pytest.mark.parametrize("seconds", [LEASE_S, 1800.0])
def test_one_that_a_right_clock_can_have_made_is_not_waited_for(store: Store, seconds: float) -> None:
    store.acquire_coordinator("night", THEIRS, seconds)
    slept: list[float] = []
    with pytest.raises(StudyError, match=f"is being run by {THEIRS}"):
        claim(store, records.study(), OURS, lambda _event: None, StopSwitch(), slept.append)
    assert slept == []


def test_whoever_meets_a_claim_of_years_learns_what_takes_it_over(store: Store) -> None:
    store.acquire_coordinator("night", THEIRS, YEAR_S)
    with pytest.raises(StudyError) as far:
        store.refuse_running("night")
    store.acquire_coordinator("night", THEIRS, LEASE_S)
    with pytest.raises(StudyError) as near:
        store.refuse_running("night")
    takes_over = "`tuner study resume night` takes the study over unless it gives a sign of life"
    assert [takes_over in str(told.value.hint) for told in (far, near)] == [True, False]
