"""Which launches of a study may be forked from a warm process, and what follows when such a launch fails."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.domain.outcome import Failure, FailureClass
from tuner.domain.study import AttemptRecord, AttemptState
from tuner.domain.trial import LaunchKind, Purpose, TrialReport

_MAY_BE_WARM = frozenset({Purpose.BASELINE, Purpose.SEARCH, Purpose.SENTINEL})
_WORKS = 3
"""So many launches measured warm, and a warm one that fails is its candidate's: no hang costs its time-out twice."""
_MAY_BE_THE_FORKS = frozenset({FailureClass.UNKNOWN, FailureClass.CUDA_FAULT})


class Forks:
    """Remembers which trials failed when they were launched warm; one that then works plainly ends warm launches.

    Args:
        enabled: whether any launch may be warm.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._blamed: set[int] = set()

    def may_make(self, purpose: Purpose, attempt: int) -> bool:
        """Whether a launch may be warm.

        What is to be proven is launched as a user would launch it, and so is what failed once.
        """
        return self._enabled and purpose in _MAY_BE_WARM and attempt == 1

    def may_be_at_fault(self, report: TrialReport, attempts: Iterable[AttemptRecord]) -> bool:
        """Whether a launch failed warm that might have worked plainly, by the study's launches so far."""
        if report.kind is not LaunchKind.WARM or not isinstance(report.outcome, Failure):
            return False
        if report.outcome.failure_class in _MAY_BE_THE_FORKS:
            return True
        measured = (a for a in attempts if a.state is AttemptState.MEASURED)
        return sum(a.was_launched(LaunchKind.WARM) for a in measured) < _WORKS

    def blamed(self, trial: int) -> None:
        """This trial failed warm and is launched again plainly."""
        self._blamed.add(trial)

    def are_at_fault(self, trial: int, report: TrialReport) -> bool:
        """Whether a plain launch did what a warm one of the same trial could not; from then on none is warm."""
        found = self._enabled and trial in self._blamed and not isinstance(report.outcome, Failure)
        self._enabled = self._enabled and not found
        return found
