"""Run the ranks under the same guard as a server, and know within seconds when they hang."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.domain.launch import LaunchPlan
from tuner.domain.outcome import Failure, FailureClass, Observation, Phase
from tuner.domain.probe import ProbeFailure, ProbeRun
from tuner.engines.failures import explain
from tuner.probe.order import Order, Patience, PlannedRun
from tuner.trial.evidence import collect_evidence
from tuner.trial.gpu import GpuProbe
from tuner.trial.hostlocks import HostLock
from tuner.trial.process import LaunchRefused, ServerHandle, launch

RANKS_PROGRAM = Path(__file__).with_name("ranks.py")
WRONG_SUM = 3
"""Exit code of a rank whose sum was wrong (`ranks.py`)."""

_LOOK_EVERY_S = 0.05
_RESULTS = "results.jsonl"
_BEGINS = re.compile(r"^probe: run (\d+) begins$")
_ENDED = re.compile(r"^probe: run (\d+) ended with (-?\d+)$")
_READY, _DONE = "probe: ready", "probe: done"


@dataclass(slots=True)
class Seen:
    """What was measured and what failed."""

    runs: list[ProbeRun] = field(default_factory=list)
    failures: list[ProbeFailure] = field(default_factory=list)
    library: str | None = None


@dataclass(slots=True)
class RanksWatch:
    """Carries out an order; one launch, and another one for what is left after each hang.

    Attributes:
        plan: the launch without its last arguments.
        folder: for files of the launches, a folder each.
        holds: locks that outlive this process until the ranks are gone.
        gpus: the driver's probe, for evidence and tear-down.
        patience: when something counts as hung.
        is_cancelled: asked twenty times a second.
        say: gets a line per run.
        program: what the ranks run.
        seen: what came out so far.
        slowest_s: seconds of the slowest completed run.
    """

    plan: LaunchPlan
    folder: Path
    holds: Sequence[HostLock] = ()
    gpus: GpuProbe | None = None
    patience: Patience = field(default_factory=Patience)
    is_cancelled: Callable[[], bool] = lambda: False
    say: Callable[[str], None] = lambda text: None
    program: Path = RANKS_PROGRAM
    seen: Seen = field(default_factory=Seen)
    slowest_s: float | None = None

    def carry_out(self, order: Order) -> Seen:
        """Do the runs of an order; nothing is left running when this returns."""
        deadline = time.monotonic() + order.seconds
        left = order.runs
        while left and not self.is_cancelled():
            last = self._launch(replace(order, runs=left, seconds=max(0.0, deadline - time.monotonic())))
            failed = {failure.setting for failure in self.seen.failures}
            if order.must_work in failed and all(run.setting != order.must_work for run in self.seen.runs):
                break
            left = tuple(run for run in left if run.number > last and run.setting not in failed)
        return self.seen

    def _launch(self, order: Order) -> int:
        """One launch; the number of the last run that it dealt with."""
        folder = self.folder / f"from-run-{order.runs[0].number}"
        folder.mkdir(parents=True, exist_ok=True)
        program = (*self.plan.argv, str(self.program), str(order.write(folder)), str(folder / _RESULTS))
        try:
            handle = launch(replace(self.plan, argv=program), folder, holds=self.holds, gpus=self.gpus)
        except LaunchRefused as error:
            failure = Failure(FailureClass.ENV_SETUP, Phase.SPAWN, (error.message,))
            self.seen.failures.append(ProbeFailure(order.runs[0].setting, failure))
            return order.runs[-1].number
        with handle:
            last = _OneLaunch(self, order, handle).follow()
        self._read_results(order, folder / _RESULTS)
        return last

    def _read_results(self, order: Order, file: Path) -> None:
        named = {run.number: run.setting for run in order.runs}
        for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
            found = json.loads(line)
            times = {int(size): tuple(values) for size, values in found["times_us"].items()}
            self.seen.runs.append(ProbeRun(named[found["run"]], found["run"], times, found["init_s"]))
            self.seen.library = found["library"]


class _OneLaunch:
    """Follows the log of one launch."""

    def __init__(self, watch: RanksWatch, order: Order, handle: ServerHandle) -> None:
        self._watch, self._order, self._handle = watch, order, handle
        self._named = {run.number: run for run in order.runs}
        self._failed: set[str] = set()
        self._running: PlannedRun | None = None
        self._lines: list[str] = []
        self._since = time.monotonic()
        self._is_ready = False
        self._last = -1

    def follow(self) -> int:
        """Read the log until the ranks are done, dead or hung; the number of the last run that was dealt with."""
        watch, handle = self._watch, self._handle
        while not watch.is_cancelled():
            exit_code = handle.poll()
            lines = handle.log.lines() if exit_code is None else handle.log.rest()
            if any(self._hears(line) for line in lines):
                return self._order.runs[-1].number
            if exit_code is not None:
                self._give_up(Observation.EXITED, exit_code)
                return self._last
            if time.monotonic() - self._since > self._limit_s():
                handle.is_hung = True
                evidence = collect_evidence(handle, watch.gpus)
                self._give_up(Observation.HUNG, None, f"stacks: {evidence['stacks']}")
                return self._last
            time.sleep(_LOOK_EVERY_S)
        return self._order.runs[-1].number

    def _limit_s(self) -> float:
        if not self._is_ready:
            return self._watch.patience.importing
        return self._watch.patience.for_run(self._watch.slowest_s)

    def _hears(self, line: str) -> bool:
        """Take in a line; True when it was the last."""
        if found := _BEGINS.match(line):
            self._begin(self._named[int(found[1])])
        elif found := _ENDED.match(line):
            self._end(int(found[2]))
        elif line == _READY:
            self._is_ready, self._since = True, time.monotonic()
        else:
            self._lines.append(line)
        return line == _DONE

    def _begin(self, run: PlannedRun) -> None:
        self._running, self._since, self._lines = run, time.monotonic(), []
        self._watch.say(f"{run.number + 1}: {run.setting}")

    def _end(self, code: int) -> None:
        assert self._running is not None
        self._last = self._running.number
        if code == 0:
            took = time.monotonic() - self._since
            self._watch.slowest_s = max(took, self._watch.slowest_s or 0.0)
        else:
            self._note(self._explained(Observation.EXITED, code))
        self._running, self._since = None, time.monotonic()

    def _give_up(self, observation: Observation, code: int | None, *evidence: str) -> None:
        """The launch is over before its order is."""
        failure = self._explained(observation, code, *evidence)
        run = self._running or next(run for run in self._order.runs if run.number > self._last)
        self._running, self._last = run, run.number
        self._note(failure)

    def _note(self, failure: Failure) -> None:
        assert self._running is not None
        setting = self._running.setting
        if setting not in self._failed:
            self._failed.add(setting)
            self._watch.seen.failures.append(ProbeFailure(setting, failure))
            self._watch.say(f"{setting}: {failure.failure_class.value}")

    def _explained(self, observation: Observation, code: int | None, *evidence: str) -> Failure:
        """The class of a failure by the signatures of the engine in whose environment the ranks run."""
        phase = Phase.NCCL_INIT if self._is_ready else Phase.IMPORT
        if code == WRONG_SUM:
            return Failure(FailureClass.WRONG_OUTPUT, phase, tuple(self._lines[-1:]), exit_code=code)
        settings = self._running.env if self._running is not None else {}
        found = explain(
            self._lines,
            engine=self._handle.plan.engine,
            exit_code=code,
            settings=settings,
            observation=observation,
            phase=phase,
        )
        if found is None:
            return Failure(FailureClass.UNKNOWN, phase, tuple(self._lines[-1:]), exit_code=code)
        return replace(found, phase=phase, evidence=(*found.evidence, *evidence))
