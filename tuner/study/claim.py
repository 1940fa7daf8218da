"""Becoming the coordinator of a study that somebody may claim already, perhaps with a clock that is ahead of ours."""

from __future__ import annotations

import time
from collections.abc import Callable

from tuner.domain.space import Budget
from tuner.domain.study import StudyRecord
from tuner.errors import Stopped
from tuner.store import Store
from tuner.study.events import Noted, StudyEvent
from tuner.study.stopping import StopSwitch, Urgency

LEASE_S = 60.0
"""So long somebody is believed to work on a study or a launch without a sign of life."""
_RENEWALS = 4
"""In `LEASE_S`: a few may come late, or find the database away for a while."""
_GLANCE_S = 1.0


def claim(
    store: Store,
    record: StudyRecord,
    owner: str,
    notify: Callable[[StudyEvent], None],
    stop: StopSwitch,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Become the coordinator for `LEASE_S` seconds.

    A claim that would hold for longer than any of this study can was made by a clock that is ahead: it may be years
    until it runs out, and whether its owner lives shows in whether it is renewed (see `Heartbeat`).

    Raises:
        StudyError: another coordinator runs the study.
        Stopped: the user did not wait for a sign of life.
    """
    lease = store.coordinator(record.name)
    if lease is not None and lease.expires_at - time.time() > whole_launch_s(record.space.budget):
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(lease.expires_at))
        text = f"{lease.owner} claims {record.name} until {until}, so its clock is ahead"
        notify(Noted(f"{text}: waiting {LEASE_S:.0f} s for a sign of life"))
        for _ in range(round(LEASE_S / _GLANCE_S)):
            if stop.urgency > Urgency.NONE:
                raise Stopped("stopped; the study was left as it was")
            sleep(_GLANCE_S)
        if store.coordinator(record.name) == lease:
            store.release_coordinator(record.name, lease.owner)
            notify(Noted("there was none: the study is taken over"))
    store.acquire_coordinator(record.name, owner, LEASE_S)


def whole_launch_s(budget: Budget) -> float:
    """The longest claim there is: `verify-knobs` makes it for one whole launch, and renews nothing."""
    return budget.launch_timeout_s + budget.benchmark_timeout_s + LEASE_S


class Heartbeat:
    """Renews a claim often enough, as long as it is asked to even oftener.

    Args:
        renew: does so.
    """

    def __init__(self, renew: Callable[[], object]) -> None:
        self._renew = renew
        self._due = 0.0

    def beat(self) -> None:
        """Renew what is due."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + LEASE_S / _RENEWALS
            self._renew()
