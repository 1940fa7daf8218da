"""A clock for stores, and launches in the study `night`."""

from __future__ import annotations

from support import records

from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Purpose
from tuner.store import Store

TTL = 30.0
"""Seconds of every lease in these tests."""


class Clock:
    """Seconds since the epoch, set by the test."""

    now = 5000.0

    def __call__(self) -> float:
        return self.now


def opened(store: Store, trial: int = 0, attempt: int = 1, **changes: object) -> AttemptRecord:
    """A launch that runs now."""
    fields = {
        "purpose": Purpose.SEARCH,
        "candidate": records.candidate(),
        "run_dir": f"/runs/night/{trial}/{attempt}",
        "owner": "box:1:2:3",
        "ttl": TTL,
    }
    return store.open_attempt("night", trial=trial, attempt=attempt, **(fields | changes))  # type: ignore[arg-type]
