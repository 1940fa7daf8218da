"""Which configuration is meant where the user names none."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.domain.front import DEFAULT_PICK
from tuner.domain.study import AttemptRecord, StudyRecord

CONFIRMED = "confirmed"
"""The pick that stands for the result of the last confirmation; without one, for the front's default pick."""


def resolved_pick(record: StudyRecord, attempts: Sequence[AttemptRecord], pick: str) -> str:
    """A pick that `Front.pick` knows: `confirmed` becomes the chosen trial's number, anything else stays."""
    from tuner.study.confirm import confirmation_of
    from tuner.study.summary import baselines_of

    if pick != CONFIRMED:
        return pick
    found = confirmation_of(record.space, attempts, baselines_of(attempts))
    return DEFAULT_PICK if found is None or not found.chosen.launches else str(found.chosen.trial)
