"""What decides which launch comes next, and how a study that follows such decisions ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tuner.domain.study import AttemptRecord, StudyState
from tuner.errors import TunerError
from tuner.search.base import Proposal


@dataclass(frozen=True, slots=True)
class StudyEnd:
    """Why a study ended; `error` is set when it could not go on."""

    state: StudyState
    reason: str
    error: TunerError | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """An agenda has nothing more to launch, and why."""

    reason: str


class Agenda(Protocol):
    """Decides what a study launches next."""

    def next(self, attempts: list[AttemptRecord], in_hand: tuple[Proposal, ...]) -> Proposal | Done | None:
        """What to launch now.

        Args:
            attempts: every attempt of the study so far.
            in_hand: what runs or waits to be launched again.

        Returns:
            A proposal of the search; None to wait for what is in hand; `Done` when nothing more will come. With
            something in hand the question is put again, since what it shows may change the answer.
        """
        ...
