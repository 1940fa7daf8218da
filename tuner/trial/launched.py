"""A launched server, from its first token to its last request; what ends it early becomes a failure."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from tuner.domain.launch import LaunchPlan
from tuner.domain.measurement import Measured
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.output import OutputReport
from tuner.domain.trial import KnobActivity, LaunchKind, Outcome, TrialEvent, TrialRequest
from tuner.engines.activity import knob_activity, logged_settings
from tuner.engines.answers import StoppedError, TooLateError
from tuner.engines.control import ControlPlane, NotReadyError
from tuner.engines.failures import is_compiling_line, is_fatal_line
from tuner.engines.nccl_log import own_all_reduce
from tuner.engines.phasemarks import phase_of_line
from tuner.secrets import redact_tree
from tuner.trial.assembly import EngineSetup
from tuner.trial.conditions import ConditionWatch
from tuner.trial.deadlines import PhaseDeadlines
from tuner.trial.energy import Joules
from tuner.trial.gpu import NvmlProbe
from tuner.trial.judging import bad_answers, beaten, judged
from tuner.trial.logfile import first_lines
from tuner.trial.machine import loaded_nccl
from tuner.trial.naming import failure_of
from tuner.trial.neighbours import Strangers
from tuner.trial.output_check import OutputChecker
from tuner.trial.process import LOG, ServerHandle
from tuner.trial.protocol import MeasurementFailed, MeasurementTrouble, measure
from tuner.trial.serving import ServingWatch
from tuner.trial.watchdog import LaunchFailed, WaitCancelled, wait_ready

SERVER_INFO = "server_info.json"
"""What the server says of itself, in the run directory."""

_PROBE_PROMPT = "The"
_PROBE_TIMEOUT_S = 60.0

_BAD_ANSWERS = frozenset({MeasurementTrouble.REQUESTS_FAILED, MeasurementTrouble.SHORT_OUTPUT})
"""The server lives and answers, but not with what was asked for."""

Notify = Callable[[TrialEvent], None]
Cancelled = Callable[[], bool]


@dataclass(slots=True)
class Notes:
    """What is learned on the way; goes into the report even when the trial fails."""

    notify: Notify
    plan: LaunchPlan | None = None
    phase_seconds: dict[Phase, float] = field(default_factory=dict)
    activity: tuple[KnobActivity, ...] = ()
    output: OutputReport | None = None
    machine: dict[str, str] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    phase: Phase = Phase.PREFLIGHT
    kind: LaunchKind = LaunchKind.PLAIN

    def say(self, text: str) -> None:
        """Tell the coordinator where the trial is."""
        self.notify(TrialEvent(time.time(), self.phase, text))


class _CancelledError(Exception):
    """The coordinator asked for the end of this trial."""


class LaunchedServer:
    """Waits for a server's first token and measures it; whatever happens is kept in the notes."""

    def __init__(
        self,
        handle: ServerHandle,
        request: TrialRequest,
        setup: EngineSetup,
        plan: LaunchPlan,
        notes: Notes,
        cancelled: Cancelled,
        *,
        gpus: NvmlProbe | None,
        strangers: Strangers,
    ) -> None:
        """Take a server that was just started.

        Args:
            handle: the server.
            request: what is measured.
            setup: how its engine is launched here.
            plan: how it was started.
            notes: of the trial.
            cancelled: asked often; True ends the measurement.
            gpus: the driver, where there is one.
            strangers: who came to its GPUs since before the launch.
        """
        self._handle = handle
        self._request = request
        self._setup = setup
        self._plan = plan
        self._notes = notes
        self._cancelled = cancelled
        self._gpus = gpus
        self._strangers = strangers

    def measured(self) -> Outcome:
        """Wait for the first token, then measure; every way to fail becomes a Failure."""
        try:
            with ControlPlane(self._plan.base_url, self._setup.definition) as control:
                model = self._wait_ready(control)
                return self._benchmark(control, model)
        except LaunchFailed as error:
            self._notes.phase_seconds |= error.phase_seconds
            self._notes.artifacts |= error.evidence
            return failure_of(error, self._handle.run_dir / LOG, self._plan, self._request)
        except (_CancelledError, WaitCancelled):
            return Failure(FailureClass.LOST_WORKER, self._notes.phase, detail="stopped on request")

    def _wait_ready(self, control: ControlPlane) -> str:
        """Name of the served model, once it has generated a token."""
        self._notes.phase = Phase.SPAWN
        self._notes.say("launching")
        served: list[str] = []
        phase_of = phase_of_line(self._plan.engine)

        def one_token() -> bool:
            try:
                model = control.served_model()
                control.complete(model, _PROBE_PROMPT, max_tokens=1, timeout_s=_PROBE_TIMEOUT_S)
            except NotReadyError:
                return False
            served.append(model)
            return True

        def phase_seen(line: str) -> Phase | None:
            phase = phase_of(line)
            if phase is not None and phase is not self._notes.phase:
                self._notes.phase = phase
                self._notes.say("")
            return phase

        learned = self._request.phase_limits.get(self._notes.kind)
        ready = wait_ready(
            self._handle,
            one_token,
            phase_seen,
            PhaseDeadlines.of(self._request.space.budget.launch_timeout_s, learned),
            is_fatal_line(self._plan.engine),
            gpus=self._gpus,
            is_cancelled=self._cancelled,
        )
        self._notes.phase_seconds |= ready.phase_seconds
        return served[0]

    def _benchmark(self, control: ControlPlane, model: str) -> Outcome:
        info = control.server_info()
        if info is not None:
            (self._handle.run_dir / SERVER_INFO).write_text(json.dumps(redact_tree(info), indent=1, default=str) + "\n")
        candidate = self._request.candidate
        knobs = self._request.space.knobs_of(candidate.engine)
        self._notes.activity = knob_activity(
            candidate,
            knobs,
            self._setup.catalogue,
            info,
            own_all_reduce(first_lines(self._handle.run_dir / LOG)),
            logged_settings(first_lines(self._handle.run_dir / LOG)),
            self._setup.definition.codes,
        )
        self._notes.phase = Phase.SERVING
        limit_s = self._request.space.budget.benchmark_timeout_s
        watch = ServingWatch(
            self._handle,
            timeout_s=limit_s,
            is_fatal=is_fatal_line(self._plan.engine),
            is_compiling=is_compiling_line(self._plan.engine),
            gpus=self._gpus,
            strangers=self._strangers,
        )
        checker = OutputChecker(
            self._request,
            base_url=self._plan.base_url,
            model=model,
            model_path=self._plan.model,
            run_dir=self._handle.run_dir,
            time_scale=_time_scale(info),
            should_stop=lambda: self._cancelled() or watch.is_over(),
        )
        began = time.monotonic()
        outcome: Outcome | None = self._checked(checker, checker.alone, watch)
        if outcome is None:
            outcome = self._measured_levels(control, model, watch, _time_scale(info))
        if isinstance(outcome, Measured):
            outcome = self._checked(checker, checker.loaded, watch) or outcome
        # A crash after the last request fails the trial too.
        watch.check()
        self._notes.phase_seconds[Phase.SERVING] = time.monotonic() - began
        return outcome

    def _checked(
        self, checker: OutputChecker, ask: Callable[[], Failure | None], watch: ServingWatch
    ) -> Failure | None:
        """One part of the output check; a server that dies of it has failed for that reason, not for its answers."""
        if self._request.space.output_check.enabled:
            self._notes.say("output check")
        try:
            failure = ask()
        except StoppedError as error:
            if self._cancelled():
                raise _CancelledError from error
            watch.check()
            raise
        except TooLateError as error:
            raise watch.stalled(str(error)) from error
        finally:
            self._notes.output = checker.report
        if failure is not None and failure.failure_class is FailureClass.SHORT_OUTPUT:
            watch.settle()
        return failure

    def _measured_levels(self, control: ControlPlane, model: str, watch: ServingWatch, time_scale: float) -> Outcome:
        if (library := loaded_nccl(member.pid for member in self._handle.members())) is not None:
            self._notes.machine["nccl"] = library
        conditions = ConditionWatch(None if self._gpus is None else self._gpus.sensors(), self._plan.gpus)
        try:
            with conditions, self._energy() as joules:
                levels = measure(
                    self._plan.base_url,
                    model,
                    self._request.workload,
                    seed=self._request.seed,
                    time_scale=time_scale,
                    flush=control.flush,
                    on_progress=lambda progress: self._notes.say(str(progress)),
                    should_abort=lambda: self._cancelled() or watch.is_over(),
                    is_enough=lambda done: beaten(done, self._request.cutoffs) is not None,
                    raw_dir=self._handle.run_dir / "requests",
                    energy=joules,
                    compiled=watch.compiled_between,
                )
        except MeasurementFailed as error:
            if self._cancelled():
                raise _CancelledError from error
            watch.settle()
            if error.kind in _BAD_ANSWERS:
                return bad_answers(error)
            raise watch.stalled(str(error)) from error
        finally:
            self._notes.machine |= conditions.summary()
        planned, cutoffs = len(self._request.workload.loads), self._request.cutoffs
        return judged(levels, planned=planned, cutoffs=cutoffs, simulated=self._plan.simulated)

    def _energy(self) -> AbstractContextManager[Joules | None]:
        return nullcontext() if self._gpus is None else self._gpus.energy_of(self._plan.gpus)


def _time_scale(info: Mapping[str, object] | None) -> float:
    """How much faster than a wall clock the server's own clock runs; only simulated servers say so."""
    scale = (info or {}).get("time_scale", 1.0)
    return float(scale) if isinstance(scale, int | float) and (info or {}).get("simulated") is True else 1.0
