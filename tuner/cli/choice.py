"""Which configuration is meant where the user names none."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.domain.front import DEFAULT_PICK, PICKS
from tuner.domain.proof import Confirmation
from tuner.domain.study import AttemptRecord, StudyRecord
from tuner.errors import StudyError

CONFIRMED = "confirmed"
"""The pick that stands for the result of the last confirmation; without one, for the front's default pick."""


def confirmation(record: StudyRecord, attempts: Sequence[AttemptRecord]) -> Confirmation | None:
    """The study's last confirmation."""
    from tuner.study.confirm import confirmation_of
    from tuner.study.summary import baselines_of

    return confirmation_of(record.space, attempts, baselines_of(attempts))


def resolved_pick(record: StudyRecord, attempts: Sequence[AttemptRecord], pick: str) -> str:
    """A pick that `Front.pick` knows: `confirmed` becomes the number of a measured trial of the chosen configuration.

    Of a measured one, because one launch of the chosen configuration may have failed: the first of a baseline, say.
    Anything else stays.

    Raises:
        StudyError: there is no such pick.
    """
    if pick != CONFIRMED:
        if pick not in PICKS and not pick.isdecimal():
            known = ", ".join((CONFIRMED, *PICKS))
            raise StudyError(f"no such pick: {pick}", hint=f"choose {known} or a trial number")
        return pick
    found = confirmation(record, attempts)
    if found is None:
        return DEFAULT_PICK
    measured = {a.trial for a in attempts if a.measured is not None}
    return next((str(trial) for trial in found.chosen.trials if trial in measured), DEFAULT_PICK)
