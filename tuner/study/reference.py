"""The baseline's answers, as the reference that every other launch is held against."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.domain.measurement import Measured
from tuner.domain.output import Agreement, OutputReference, OutputReport
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import BASELINE_PURPOSES


def output_reference(engine: str, attempts: Sequence[AttemptRecord]) -> OutputReference | None:
    """What the first measured launch of an engine's baseline answered, and how later ones agree with it.

    Each engine has its own reference: engines name tokens differently, and run different kernels.

    Returns:
        None before that launch, or when the space switches the check off.
    """
    reports = [report for attempt in attempts if (report := _baseline_report(attempt, engine)) is not None]
    first = next((report for report in reports if report.answers), None)
    if first is None:
        return None
    alone = [report.alone for report in reports if report.alone is not None]
    loaded = [report.loaded for report in reports if report.loaded is not None]
    return OutputReference(
        prompts=first.prompts,
        answers=first.answers,
        own_alone=_least(alone),
        own_loaded=_least(loaded),
        own_drift=max((found.drift for found in (*alone, *loaded) if found.drift is not None), default=0.0),
    )


def _least(found: Sequence[Agreement]) -> float:
    return min((agreement.share for agreement in found), default=1.0)


def _baseline_report(attempt: AttemptRecord, engine: str) -> OutputReport | None:
    if attempt.purpose not in BASELINE_PURPOSES or attempt.candidate.engine != engine or attempt.report is None:
        return None
    return attempt.report.output if isinstance(attempt.report.outcome, Measured) else None
