"""What a confirmation or an ablation would still launch, and about how long that takes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.domain.candidate import Candidate
from tuner.domain.study import AttemptRecord
from tuner.domain.values import Value
from tuner.study.summary import trial_of


@dataclass(frozen=True, slots=True)
class PlannedArm:
    """One configuration that would be launched, or several that are not known yet.

    Attributes:
        role: what it is launched for, in words.
        candidate: the configuration; None where earlier launches decide which ones.
        trial: the number by which the study names it; None when it was never launched.
        changes: knob → (baseline's value, own value).
        launches: that are still to be made, at most.
        seconds: of one launch; None when nothing tells.
    """

    role: str
    candidate: Candidate | None
    trial: int | None
    changes: Mapping[str, tuple[Value, Value]]
    launches: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """Arms that are launched in the same rounds; `title` says what for."""

    title: str
    arms: tuple[PlannedArm, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """Everything that would be launched; without stages `why` says why nothing would."""

    stages: tuple[PlannedStage, ...]
    why: str = ""

    @property
    def launches(self) -> int:
        """Launches at most, without retries."""
        return sum(arm.launches for stage in self.stages for arm in stage.arms)

    @property
    def seconds(self) -> float | None:
        """How long they take by the study's own launches, one after the other; None when nothing tells."""
        arms = [arm for stage in self.stages for arm in stage.arms if arm.launches]
        known = [arm.launches * arm.seconds for arm in arms if arm.seconds is not None]
        return sum(known) if len(known) == len(arms) else None


class Planner:
    """Tells of a study's configurations what their launches so far say."""

    def __init__(self, attempts: Sequence[AttemptRecord], baselines: Mapping[str, Candidate]) -> None:
        self._attempts = attempts
        self._baselines = baselines

    def arm(self, role: str, candidate: Candidate, launches: int) -> PlannedArm:
        """One known configuration."""
        changes = candidate.differs_from(self._baselines[candidate.engine])
        number = trial_of(self._attempts, candidate)
        return PlannedArm(role, candidate, number, changes, launches, self._seconds(candidate))

    def unknown(self, role: str, engine: str, launches: int) -> PlannedArm:
        """Configurations of an engine that are not known yet."""
        return PlannedArm(role, None, None, {}, launches, self._usual_seconds(engine))

    def _seconds(self, candidate: Candidate) -> float | None:
        """The middle launch of a configuration, else of its engine."""
        own = _seconds(a for a in self._attempts if a.candidate.fingerprint == candidate.fingerprint)
        return statistics.median(own) if own else self._usual_seconds(candidate.engine)

    def _usual_seconds(self, engine: str) -> float | None:
        usual = _seconds(a for a in self._attempts if a.candidate.engine == engine)
        return statistics.median(usual) if usual else None


def _seconds(attempts: Iterable[AttemptRecord]) -> list[float]:
    """How long whole launches took; those that failed or were cut short say nothing."""
    return [a.finished_at - a.started_at for a in attempts if a.finished_at is not None and a.measured is not None]
