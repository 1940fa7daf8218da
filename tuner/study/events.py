"""What a running study tells whoever watches."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.domain.outcome import Action
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import TrialEvent, TrialReport


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """A launch was handed to a worker; `why` is the search's reason."""

    attempt: AttemptRecord
    why: str


@dataclass(frozen=True, slots=True)
class AttemptProgressed:
    """A launch moved on."""

    attempt: AttemptRecord
    event: TrialEvent


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """A launch ended; `action` says what a failure leads to (None for a measured launch)."""

    attempt: AttemptRecord
    report: TrialReport
    action: Action | None


@dataclass(frozen=True, slots=True)
class Noted:
    """Something that the user should know: a recovery, a stop request, a retry."""

    text: str


StudyEvent = AttemptStarted | AttemptProgressed | AttemptEnded | Noted
