"""The live view of a running study: a table on a terminal, one line per event otherwise."""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tuner.cli.output import console
from tuner.cli.wording import SIMULATED, changes, duration, number
from tuner.domain.measurement import Measured, MeasuredInPart
from tuner.domain.outcome import Action, Failure, Phase
from tuner.domain.trial import Purpose
from tuner.domain.values import counted
from tuner.study.events import AttemptEnded, AttemptProgressed, AttemptStarted, Noted, StudyEvent
from tuner.study.preparing import Prepared
from tuner.study.stopping import StopSwitch, Urgency

_SHOWN_TRIALS = 12
_WORDS = {
    Action.RETRY_SAME_ONCE: "launched again",
    Action.RETRY_WAIT: "launched again after a pause",
    Action.STOP: "the study stops",
    Action.MARK_INFEASIBLE: "marked infeasible",
}


class StudyView:
    """Collects a study's events and draws them."""

    def __init__(self, prepared: Prepared, launches: int | None = None, begun: int = 0) -> None:
        self._record = prepared.record
        self._goals = prepared.record.space.goals
        self._budget = launches or prepared.record.space.budget.trials
        self._is_of_budget = launches is None
        self._begun = begun
        self._baselines = prepared.baselines
        self._started = time.monotonic()
        self._ended: list[AttemptEnded] = []
        self._now: dict[int, tuple[float, str]] = {}
        self._seconds: list[float] = []
        self._measured_seconds: list[float] = []
        self._done: set[int] = set()
        self.on_terminal = False
        """Whether a terminal's live area draws this view; else one line is printed per event."""

    def notify(self, event: StudyEvent) -> None:
        """Take one event."""
        if isinstance(event, AttemptStarted):
            self._now[event.attempt.trial] = (time.monotonic(), "launching")
            self._line(f"trial {event.attempt.trial}: {self._intent(event)}")
        elif isinstance(event, AttemptProgressed):
            since, before = self._now.get(event.attempt.trial, (time.monotonic(), ""))
            text = f"{event.event.phase.value} {event.event.text}".strip()
            if text != before:
                self._now[event.attempt.trial] = (since, text)
                if event.event.phase is Phase.PREFLIGHT:
                    self._line(f"trial {event.attempt.trial}: {event.event.text}")  # what it waits for
        elif isinstance(event, AttemptEnded):
            self._now.pop(event.attempt.trial, None)
            self._ended.append(event)
            # A worker that died tells no times.
            if (seconds := event.report.finished_at - event.report.started_at) > 0:
                self._seconds.append(seconds)
                if not isinstance(event.report.outcome, Failure):
                    self._measured_seconds.append(seconds)
            is_beside = self._is_of_budget and event.attempt.purpose.is_beside_the_budget
            if event.action not in (Action.RETRY_SAME_ONCE, Action.RETRY_WAIT) and not is_beside:
                self._done.add(event.attempt.trial)
            self._line(f"trial {event.attempt.trial}: {self._result(event)}")
        elif isinstance(event, Noted):
            console().print(event.text, style="yellow")

    def _line(self, text: str) -> None:
        if not self.on_terminal:
            progress = f" [{', '.join(self._progress())}]" if self._seconds else ""
            console().print(f"{time.strftime('%H:%M:%S')} {text}{progress}")

    def _progress(self) -> Iterator[str]:
        """How many trials have ended, and how long all the others would take at the pace so far.

        That is an estimate, no bound: later launches may be slower. A search or confirmation may also end early. What
        fails at once makes no pace, since the search learns to avoid it; what fails late, after a time-out, does.
        """
        ended = self._begun + len(self._done)
        yield f"{ended} of at most {counted(self._budget, 'trial')}"
        left = max(0, self._budget - ended)
        if not self._measured_seconds:
            yield "time left unknown"
        elif left:
            mean = max(map(statistics.fmean, (self._seconds, self._measured_seconds)))
            yield f"about {duration(mean * left)} left at this pace"

    def _intent(self, event: AttemptStarted) -> str:
        """`search: nccl_proto=LL`; the word `baseline` once where purpose and configuration are both the baseline."""
        purpose, shown = event.attempt.purpose.value, self._changes(event)
        return shown if shown == purpose else f"{purpose}: {shown}"

    def _changes(self, event: AttemptStarted | AttemptEnded) -> str:
        candidate = event.attempt.candidate
        baseline = self._baselines.get(candidate.engine)
        shown = changes(candidate.differs_from(baseline)) if baseline is not None else str(candidate)
        return shown if len(self._baselines) == 1 else f"{candidate.engine}: {shown}"

    def _values(self, measured: Measured | MeasuredInPart) -> list[str]:
        found = [measured.value(goal.at) for goal in self._goals]
        return ["–" if value is None else number(value) for value in found]

    def _result(self, event: AttemptEnded) -> str:
        outcome = event.report.outcome
        if isinstance(outcome, Failure):
            end = f", {_WORDS[event.action]}" if event.action is not None else ""
            return f"failed: {outcome.failure_class.value} at {outcome.phase.value}{end}"
        pairs = zip(self._goals, self._values(outcome), strict=True)
        shown = ", ".join(f"{goal.label} {value} {goal.metric.unit}" for goal, value in pairs)
        shown += f" ({SIMULATED})" if outcome.simulated else ""
        return f"measured in part: {shown}: {outcome.reason}" if isinstance(outcome, MeasuredInPart) else shown

    def render(self) -> RenderableType:
        """The whole view: last trials, what runs now, progress."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("trial", justify="right")
        for goal in self._goals:
            table.add_column(f"{goal.label}\n{goal.metric.unit}", justify="right")
        table.add_column("configuration (against the baseline)", overflow="fold")
        for event in self._ended[-_SHOWN_TRIALS:]:
            outcome = event.report.outcome
            trial = str(event.attempt.trial)
            if isinstance(outcome, Failure):
                cells = [outcome.failure_class.value, *[""] * (len(self._goals) - 1)]
                table.add_row(trial, *cells, self._changes(event), style="red")
            else:
                style = "cyan" if event.attempt.purpose is not Purpose.SEARCH else ""
                style = "dim" if isinstance(outcome, MeasuredInPart) else style
                table.add_row(trial, *self._values(outcome), self._changes(event), style=style)
        running = [
            Text(f"trial {trial}: {text} ({duration(time.monotonic() - since)})", style="dim")
            # A copy: this is drawn by another thread than the one that takes events.
            for trial, (since, text) in list(self._now.items())
        ]
        if not running and self._begun + len(self._done) < self._budget:
            running = [Text("preparing the next launch", style="dim")]
        label = f" ({SIMULATED})" if self._record.simulated else ""
        elapsed = duration(time.monotonic() - self._started)
        ended, *left = self._progress()
        foot = f"{self._record.name}{label}: {', '.join([ended, f'{elapsed} so far', *left])}"
        return Group(table, *running, Text(foot, style="bold"))


@contextmanager
def watching(prepared: Prepared, launches: int | None = None, begun: int = 0) -> Iterator[tuple[StudyView, StopSwitch]]:
    """Show a study while it runs; Ctrl-C or SIGTERM once finishes the running trial, twice tears it down now.

    A terminal that is closed counts as once, unless the caller ignores that (`nohup`).
    `launches` is how many are planned; None takes the budget's. `begun` of them were made before.
    """
    view, stop = StudyView(prepared, launches, begun), StopSwitch()

    def press(_number: int, _frame: FrameType | None) -> None:
        urgency = stop.press()
        text = (
            "stopping after the running trial; once more to tear it down now"
            if urgency is Urgency.FINISH_TRIAL
            else "tearing down now"
        )
        view.notify(Noted(text))

    def hang_up(_number: int, _frame: FrameType | None) -> None:
        # Shell and kernel both tell it, so twice means no more than once.
        stop.at_least(Urgency.FINISH_TRIAL)
        view.notify(Noted("the terminal was closed: stopping after the running trial"))

    before = {number: signal.signal(number, press) for number in (signal.SIGINT, signal.SIGTERM)}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, hang_up)
    try:
        if console().is_terminal:
            view.on_terminal = True
            # Asked for by the refresh itself, so that the clocks run between events, too.
            with Live(get_renderable=view.render, console=console(), refresh_per_second=4, transient=False):
                yield view, stop
        else:
            yield view, stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
