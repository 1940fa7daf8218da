"""The steps of a single launch, as they come."""

from __future__ import annotations

from tuner.cli.output import console
from tuner.domain.trial import TrialEvent


class StepLines:
    """One dim line for each step that begins, not for each look at how far it is: events come every second."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, event: TrialEvent) -> None:
        """Take an event of a launch; `C=32 run 1: 40/64 requests` is a look at the step `C=32 run 1`."""
        step = f"{event.phase.value}: {event.text.partition(':')[0]}"
        if event.text and step != self._last:
            self._last = step
            console().print(step, style="dim")
