"""A study's launches as rows: one per trial, the last attempt deciding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuner.domain.candidate import Candidate
from tuner.domain.measurement import Measured, MeasuredInPart, Measurement, row_at
from tuner.domain.outcome import Failure
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord, AttemptState
from tuner.domain.trial import BASELINE_PURPOSES, Purpose
from tuner.domain.values import Value
from tuner.study.silence import inactive_knobs
from tuner.study.verdict import violations
from tuner.trial.baseline_levels import BaselineLevels


@dataclass(frozen=True, slots=True)
class TrialSummary:
    """One trial.

    Attributes:
        trial: number.
        launches: attempts so far.
        last: the attempt that decides.
        changes: knob → (baseline's value, own value).
        values: the measurement of each objective, in the order of `Space.goals`; None where not measured.
        broken: limits that the trial breaks → by how much, as a share of the bound.
        of_its_time: limits, by label, that were judged by the baseline at this launch's time, since the machine drifts.
        failure: why there is no measurement, or None.
        cut_short: why it was measured in part only; empty otherwise.
        inactive: knobs that did not take effect → why.
        seconds: that all its attempts ran.
        failed_seconds: that those of them ran which failed.
        is_interrupted: whether its last launch never ended because whoever made it is gone.
    """

    trial: int
    launches: int
    last: AttemptRecord
    changes: Mapping[str, tuple[Value, Value]]
    values: tuple[Measurement | None, ...]
    broken: Mapping[str, float] = field(default_factory=dict)
    of_its_time: frozenset[str] = frozenset()
    failure: Failure | None = None
    cut_short: str = ""
    inactive: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    failed_seconds: float = 0.0
    is_interrupted: bool = False

    @property
    def is_baseline(self) -> bool:
        """Whether this is a launch of a baseline."""
        return self.last.purpose in BASELINE_PURPOSES

    @property
    def is_verification(self) -> bool:
        """Whether it was launched to see what its settings do; such a launch has no numbers to compare."""
        return self.last.state is AttemptState.PARTIAL and self.last.purpose is Purpose.VERIFY

    @property
    def state(self) -> str:
        """`measured`, `over limit`, `measured in part`, `verified`, `failed`, `running`, `interrupted` or
        `abandoned`.
        """
        if self.is_interrupted:
            return "interrupted"
        if self.last.state is AttemptState.PARTIAL:
            return "verified" if self.is_verification else "measured in part"
        if self.last.state is AttemptState.MEASURED and self.broken:
            return "over limit"
        return self.last.state.value

    @property
    def simulated(self) -> bool:
        """Whether the numbers are a model's."""
        report = self.last.report
        return report is not None and report.plan is not None and report.plan.simulated


def baselines_of(attempts: Sequence[AttemptRecord]) -> Mapping[str, Candidate]:
    """Engine → its baseline, from the launches that were made of it."""
    return {a.candidate.engine: a.candidate for a in attempts if a.purpose in BASELINE_PURPOSES}


def trial_of(attempts: Sequence[AttemptRecord], candidate: Candidate) -> int | None:
    """The number by which a study names a configuration, wherever it is told: the first trial that measured it.

    Else the first that launched it; None where none did.
    """
    own = [a for a in attempts if a.candidate.fingerprint == candidate.fingerprint]
    measured = [a for a in own if a.measured is not None]
    return next((a.trial for a in (*measured, *own)), None)


def summarise(
    space: Space, attempts: Sequence[AttemptRecord], lost: Sequence[AttemptRecord] = ()
) -> list[TrialSummary]:
    """One row per trial, by number.

    Args:
        space: of the study.
        attempts: all of the study.
        lost: those of them that run only because nobody was left to say that they ended.
    """
    gone = {attempt.id for attempt in lost}
    levels = BaselineLevels(space, attempts)
    baselines = baselines_of(attempts)
    by_trial: dict[int, list[AttemptRecord]] = {}
    for attempt in attempts:
        by_trial.setdefault(attempt.trial, []).append(attempt)
    rows = []
    for trial, launches in sorted(by_trial.items()):
        last = launches[-1]
        outcome = last.outcome
        shown = outcome if isinstance(outcome, Measured | MeasuredInPart) else None
        baseline = baselines.get(last.candidate.engine)
        excess = (
            violations(space.limits, outcome.value, *levels.around(last.started_at))
            if isinstance(outcome, Measured)
            else {}
        )
        rows.append(
            TrialSummary(
                trial=trial,
                launches=len(launches),
                last=last,
                changes=last.candidate.differs_from(baseline) if baseline is not None else {},
                values=tuple(None if shown is None else row_at(shown.levels, goal.at) for goal in space.goals),
                broken={label: amount for label, amount in excess.items() if amount > 0},
                of_its_time=levels.limits_of_their_time,
                failure=outcome if isinstance(outcome, Failure) else None,
                cut_short=outcome.reason if isinstance(outcome, MeasuredInPart) else "",
                inactive=inactive_knobs([last], last.candidate),
                seconds=sum(a.ran_s for a in launches),
                failed_seconds=sum(a.ran_s for a in launches if a.state is AttemptState.FAILED),
                is_interrupted=last.id in gone,
            )
        )
    return rows
