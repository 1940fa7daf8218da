"""What a benchmark came to: numbers, or answers that cannot be compared."""

from __future__ import annotations

from tuner.domain.measurement import LevelResult, Measured
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.trial import Outcome
from tuner.trial.protocol import MeasurementFailed


def bad_answers(error: MeasurementFailed) -> Failure:
    """The failure of a server that lives and answers, but not with what was asked for."""
    lines = tuple(f"{count} × {text}" for text, count in error.errors.items())
    return Failure(FailureClass.SHORT_OUTPUT, Phase.SERVING, lines or (error.message,), detail=error.message)


def complete(levels: tuple[LevelResult, ...], *, simulated: bool) -> Outcome:
    """A request that failed or came short makes its level, and so the launch, incomparable."""
    for level in levels:
        if not level.valid:
            lines = tuple(f"C={level.level}: {count} × {text}" for text, count in level.errors.items())
            detail = f"{level.completed} of {level.asked} requests completed at C={level.level}"
            return Failure(FailureClass.SHORT_OUTPUT, Phase.SERVING, lines, detail=detail)
    return Measured(levels, simulated=simulated)
