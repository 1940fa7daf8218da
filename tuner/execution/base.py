"""Where trials run: hand in a request, collect what happens.

Contract, for every executor:
- `submit` returns at once; the trial starts when a slot is free, in the order of submission.
- `poll` returns every event since the last call, each trial's `Finished` last and exactly once.
- A worker that dies yields a `Finished` whose report is a Failure of class `lost_worker`, or `host_oom` where it was
  ended for want of memory; never an exception.
- `cancel` ends a trial as soon as its server is torn down; its `Finished` still comes.
- After `close` no worker and no server of this executor lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tuner.domain.trial import TrialEvent, TrialReport, TrialRequest

TrialKey = tuple[int, int]
"""(trial, attempt)."""


def key_of(request: TrialRequest) -> TrialKey:
    """Identity of a launch within one executor."""
    return request.trial, request.attempt


@dataclass(frozen=True, slots=True)
class Progressed:
    """A trial moved on."""

    key: TrialKey
    event: TrialEvent


@dataclass(frozen=True, slots=True)
class Finished:
    """A trial ended, one way or another."""

    key: TrialKey
    report: TrialReport


Update = Progressed | Finished


class Executor(Protocol):
    """See the module's contract."""

    @property
    def slots(self) -> int:
        """How many trials may run at the same time."""

    def submit(self, request: TrialRequest) -> None:
        """Queue a trial."""

    def poll(self, timeout_s: float) -> Sequence[Update]:
        """Wait up to `timeout_s` for news."""

    def cancel(self) -> None:
        """Tear down every running trial and drop the queued ones."""

    def close(self) -> None:
        """Release workers and everything they hold."""
