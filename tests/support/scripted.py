"""An executor that runs nothing: every launch ends at once, as a script says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tuner.domain.launch import LaunchPlan
from tuner.domain.load import LoadPoint
from tuner.domain.measurement import LevelResult, Measured, Measurement, Metric
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.trial import LaunchKind, Outcome, TrialReport, TrialRequest
from tuner.execution.base import Finished, Update, key_of

Script = Callable[[TrialRequest], Outcome]

SCRIPTED_LAUNCH_S = 2.0
"""How long each launch ran, as the executor reports it."""


def measured(values: dict[int, float], *, simulated: bool = True) -> Measured:
    """Output tok/s by level, two repeats each."""
    levels = tuple(
        LevelResult(
            load=LoadPoint(level=level),
            asked=8,
            completed=8,
            errors={},
            measurements=(
                Measurement(
                    metric=Metric.OUTPUT_TOK_S,
                    load=LoadPoint(level=level),
                    repeats=(value, value),
                    center=value,
                    low=value,
                    high=value,
                ),
            ),
            duration_s=1.0,
        )
        for level, value in values.items()
    )
    return Measured(levels, simulated=simulated)


def failed(kind: FailureClass) -> Failure:
    """A failure of a class, while weights load."""
    return Failure(kind, Phase.WEIGHTS, (f"evidence of {kind.value}",))


class ScriptedExecutor:
    """Keeps the contract of `tuner.execution.base.Executor`; remembers what it was asked."""

    def __init__(
        self, script: Script, *, slots: int = 1, machine: Callable[[TrialRequest], Mapping[str, str]] = lambda _: {}
    ) -> None:
        self._script = script
        self._machine = machine
        self._slots = slots
        self._queue: list[TrialRequest] = []
        self.requests: list[TrialRequest] = []
        self.closed = False
        self.most_at_once = 0

    @property
    def slots(self) -> int:
        return self._slots

    def submit(self, request: TrialRequest) -> None:
        self._queue.append(request)
        self.requests.append(request)
        self.most_at_once = max(self.most_at_once, len(self._queue))

    def poll(self, timeout_s: float) -> Sequence[Update]:
        del timeout_s
        if not self._queue:
            return []
        request = self._queue.pop(0)
        plan = LaunchPlan(request.candidate.engine, ("toy",), {}, "127.0.0.1", 1, simulated=True)
        at = 1000.0 + len(self.requests)
        outcome = self._script(request)
        report = TrialReport(
            outcome,
            plan,
            started_at=at,
            finished_at=at + SCRIPTED_LAUNCH_S,
            machine=self._machine(request),
            kind=LaunchKind.WARM if request.warm else LaunchKind.PLAIN,
        )
        return [Finished(key_of(request), report)]

    def cancel(self) -> None:
        self._queue.clear()

    def close(self) -> None:
        self.closed = True
