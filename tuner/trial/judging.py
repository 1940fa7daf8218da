"""What a benchmark came to: numbers, or answers that cannot be compared."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.domain.measurement import LevelResult, Measured, MeasuredInPart
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.trial import Cutoff, Outcome
from tuner.domain.values import counted
from tuner.trial.protocol import MeasurementFailed


def bad_answers(error: MeasurementFailed) -> Failure:
    """The failure of a server that lives and answers, but not with what was asked for."""
    lines = tuple(f"{count} × {text}" for text, count in error.errors.items())
    return Failure(FailureClass.SHORT_OUTPUT, Phase.SERVING, lines or (error.message,), detail=error.message)


def beaten(levels: Sequence[LevelResult], cutoffs: Sequence[Cutoff]) -> Cutoff | None:
    """The first cutoff that these levels miss, or None."""
    return next((cutoff for cutoff in cutoffs if cutoff.beats(levels)), None)


def judged(levels: tuple[LevelResult, ...], *, planned: int, cutoffs: Sequence[Cutoff], simulated: bool) -> Outcome:
    """A request that failed or came short makes its level, and so the launch, incomparable.

    Args:
        levels: what was measured.
        planned: how many loads the workload has; fewer are a launch measured in part.
        cutoffs: of the launch.
        simulated: whether the numbers are a model's.
    """
    for level in levels:
        if not level.valid:
            lines = tuple(f"{level.load}: {count} × {text}" for text, count in level.errors.items())
            detail = f"{level.completed} of {counted(level.asked, 'request')} completed at {level.load}"
            return Failure(FailureClass.SHORT_OUTPUT, Phase.SERVING, lines, detail=detail)
    if len(levels) < planned and (cutoff := beaten(levels, cutoffs)) is not None:
        bounds = ", ".join(bound.at.label for bound in cutoff.bounds)
        reason = f"beaten by trial {cutoff.rival} on every objective beyond noise, as {bounds} showed"
        return MeasuredInPart(levels, simulated=simulated, reason=reason)
    return Measured(levels, simulated=simulated)
