"""Becoming the coordinator of a study that somebody may claim already, perhaps with a clock that is ahead of ours."""

from __future__ import annotations

import time
from collections.abc import Callable

from tuner.domain.study import StudyRecord
from tuner.errors import Stopped
from tuner.store import Store
from tuner.study.events import Noted, StudyEvent
from tuner.study.launches import LEASE_S
from tuner.study.stopping import StopSwitch, Urgency

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
    until it runs out, and whether its owner lives shows in whether it is renewed, as is done four times in `LEASE_S`.

    Raises:
        StudyError: another coordinator runs the study.
        Stopped: the user did not wait for a sign of life.
    """
    lease = store.coordinator(record.name)
    if lease is not None and lease.expires_at - time.time() > _longest_s(record):
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


def _longest_s(record: StudyRecord) -> float:
    """`verify-knobs` claims a study for one whole launch, and renews nothing."""
    budget = record.space.budget
    return budget.launch_timeout_s + budget.benchmark_timeout_s + LEASE_S
