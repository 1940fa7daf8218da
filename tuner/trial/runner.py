"""One candidate from launch to outcome, on the machine that has the GPUs.

preflight → plan → launch → one token → what runs now? → warm-up and load levels → tear-down with proof. Whatever goes
wrong on the way becomes a `Failure` with class, phase and evidence; only a defect of tuner raises.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.domain.launch import LaunchPlan
from tuner.domain.machine import GPU_USED_BEFORE
from tuner.domain.measurement import Measured
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.output import OutputReport
from tuner.domain.trial import KnobActivity, LaunchKind, Outcome, TrialEvent, TrialReport, TrialRequest
from tuner.engines.activity import knob_activity, logged_settings
from tuner.engines.answers import StoppedError, TooLateError
from tuner.engines.control import ControlPlane, NotReadyError
from tuner.engines.failures import is_compiling_line, is_fatal_line
from tuner.engines.nccl_log import own_all_reduce
from tuner.engines.phasemarks import phase_of_line
from tuner.engines.plan import Place
from tuner.errors import MachineUnfit, UserError
from tuner.secrets import redact_tree
from tuner.trial.assembly import EngineSetup, engine_setup
from tuner.trial.conditions import ConditionWatch
from tuner.trial.deadlines import PhaseDeadlines
from tuner.trial.denyfiles import refuse_denied_script
from tuner.trial.energy import Joules
from tuner.trial.gpu import NvmlProbe, open_nvml
from tuner.trial.hostlocks import lock_gpus
from tuner.trial.judging import bad_answers, beaten, judged
from tuner.trial.logfile import first_lines
from tuner.trial.machine import loaded_nccl, machine_facts, model_config_hash
from tuner.trial.naming import NO_ROOM, failure_of, never_launched, without_room
from tuner.trial.neighbours import Strangers, wait_until_free
from tuner.trial.output_check import ANSWERS, OutputChecker
from tuner.trial.ports import reserve_ports
from tuner.trial.process import LOG, LaunchRefused, ServerHandle
from tuner.trial.protocol import MeasurementFailed, MeasurementTrouble, measure
from tuner.trial.script import PLAN, SCRIPT
from tuner.trial.serving import ServingWatch
from tuner.trial.starting import start_server
from tuner.trial.watchdog import LaunchFailed, WaitCancelled, wait_ready

HOST = "127.0.0.1"
SERVER_INFO = "server_info.json"
_PROBE_PROMPT = "The"
_PROBE_TIMEOUT_S = 60.0
_GPUS_FREE_S = 1800.0
"""So long a launch waits for others to leave its GPUs: enough for a short job, and no night is spent waiting."""
# The server lives and answers, but not with what was asked for.
_BAD_ANSWERS = frozenset({MeasurementTrouble.REQUESTS_FAILED, MeasurementTrouble.SHORT_OUTPUT})
Notify = Callable[[TrialEvent], None]
Cancelled = Callable[[], bool]


@dataclass(slots=True)
class _Notes:
    """What is learned on the way; goes into the report even when the trial fails."""

    plan: LaunchPlan | None = None
    phase_seconds: dict[Phase, float] = field(default_factory=dict)
    activity: tuple[KnobActivity, ...] = ()
    output: OutputReport | None = None
    machine: dict[str, str] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    phase: Phase = Phase.PREFLIGHT
    kind: LaunchKind = LaunchKind.PLAIN


class _CancelledError(Exception):
    """The coordinator asked for the end of this trial."""


def run_trial(
    request: TrialRequest,
    *,
    gpus: tuple[int, ...],
    notify: Notify,
    cancelled: Cancelled,
    script: Path | None = None,
) -> TrialReport:
    """Launch, measure and tear down one candidate.

    Args:
        request: what to do.
        gpus: device indices for the server; as many as the request wants.
        notify: called with every step, from this thread.
        cancelled: asked often; True ends the trial after its tear-down.
        script: exported script that starts the server instead of the candidate's own launch; it takes its address
            from `HOST` and `PORT`.

    Returns:
        The report; its outcome is a Failure of class `lost_worker` when the trial was cancelled.
    """
    notes = _Notes()
    started, began = time.time(), time.monotonic()
    try:
        setup = engine_setup(request.space, request.candidate.engine)
        outcome = _run(request, setup, gpus, notes, notify, cancelled, script)
        versions = {request.candidate.engine: setup.installed.version or "unknown", **setup.installed.packages}
    except (MachineUnfit, UserError) as error:
        outcome, versions = never_launched(error), {}
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        outcome, versions = without_room(error, notes.phase), {}
    return TrialReport(
        outcome=outcome,
        plan=notes.plan,
        phase_seconds=notes.phase_seconds,
        activity=notes.activity,
        versions=versions,
        machine={**machine_facts().summary(), **notes.machine},
        artifacts=notes.artifacts,
        started_at=started,
        # A clock that is set meanwhile must not use up a budget of GPU-hours.
        finished_at=started + time.monotonic() - began,
        notes=tuple(notes.texts),
        output=notes.output,
        kind=notes.kind,
    )


def _run(
    request: TrialRequest,
    setup: EngineSetup,
    gpus: tuple[int, ...],
    notes: _Notes,
    notify: Notify,
    cancelled: Cancelled,
    script: Path | None,
) -> Outcome:
    """Reserve GPUs and ports, launch, and measure; the server is gone when this returns."""
    run_dir = Path(request.run_dir)
    probe = open_nvml()
    with lock_gpus(gpus) as devices, reserve_ports(setup.port_count) as ports:
        place = Place(HOST, ports.ports[0], ports.ports[1:], gpus)
        plan = notes.plan = _plan(request, setup, place, script)
        trial = _Trial(request, setup, plan, notes, notify, cancelled, probe)
        taken = trial.taken_gpus()
        notes.machine |= _before_launch(plan, probe)
        if taken:
            return taken
        try:
            holds = [*devices.locks, *ports.locks]
            started = start_server(request, setup.definition, plan, holds=holds, gpus=probe)
        except LaunchRefused as error:
            return never_launched(error)
        handle, notes.kind = started.server, started.kind
        notes.texts.append(started.note)
        with handle:
            outcome = trial.measured(handle)
            notes.phase = Phase.TEARDOWN
            trial.say("tear-down")
        proof = handle.close()
        notes.phase_seconds[Phase.TEARDOWN] = proof.seconds
        notes.texts += proof.notes
        notes.artifacts |= _files(run_dir)
        if proof.is_clean:
            return outcome
        notes.texts.append(str(proof))
        if proof.gpus:
            return Failure(FailureClass.GPU_BUSY, Phase.TEARDOWN, tuple(map(str, proof.gpus)))
        return outcome


def _plan(request: TrialRequest, setup: EngineSetup, place: Place, script: Path | None) -> LaunchPlan:
    plan = setup.plan(request.candidate, place)
    if script is None:
        return plan
    refuse_denied_script(script, plan.engine, setup.catalogue, setup.deny)
    return replace(plan, argv=("bash", str(script.absolute())), env={"HOST": plan.host, "PORT": str(plan.port)})


def _before_launch(plan: LaunchPlan, probe: NvmlProbe | None) -> dict[str, str]:
    """Facts that are true only before the server runs, and the model's."""
    facts = {}
    if (digest := model_config_hash(plan.model)) is not None:
        facts["model_config"] = digest
    if probe is not None and plan.gpus:
        facts[GPU_USED_BEFORE] = ", ".join(str(state.used_mib) for state in probe.states(plan.gpus))
    return facts


def _files(run_dir: Path) -> dict[str, str]:
    """Kind → path relative to the run directory, of what every launch writes."""
    kinds = {"launch_script": SCRIPT, "plan": PLAN, "server_log": LOG, "server_info": SERVER_INFO, "answers": ANSWERS}
    found = {kind: name for kind, name in kinds.items() if (run_dir / name).is_file()}
    raw = {f"requests:{path.name}": str(path.relative_to(run_dir)) for path in sorted(run_dir.glob("requests/*"))}
    return {**found, **raw}


class _Trial:
    """One launched server, from its first token to its last request."""

    def __init__(
        self,
        request: TrialRequest,
        setup: EngineSetup,
        plan: LaunchPlan,
        notes: _Notes,
        notify: Notify,
        cancelled: Cancelled,
        probe: NvmlProbe | None,
    ) -> None:
        self._request = request
        self._setup = setup
        self._plan = plan
        self._notes = notes
        self._notify = notify
        self._cancelled = cancelled
        self._gpus = probe
        self._strangers = Strangers(probe, plan.gpus)

    def say(self, text: str) -> None:
        """Tell the coordinator where the trial is."""
        self._notify(TrialEvent(time.time(), self._notes.phase, text))

    def taken_gpus(self) -> Failure | None:
        """Wait until the GPUs are as free as before earlier launches; the failure if others stay."""
        known = self._request.gpu_use.get(machine_facts().hostname, {})
        usual = {gpu: known[gpu] for gpu in self._plan.gpus if gpu in known}
        if self._gpus is None or not usual:
            return None
        taken = wait_until_free(self._gpus, usual, timeout_s=_GPUS_FREE_S, tell=self.say, is_cancelled=self._cancelled)
        if self._cancelled():
            return Failure(FailureClass.LOST_WORKER, Phase.PREFLIGHT, detail="stopped on request")
        return Failure(FailureClass.GPU_BUSY, Phase.PREFLIGHT, tuple(map(str, taken))) if taken else None

    def measured(self, handle: ServerHandle) -> Outcome:
        """Wait for the first token, then measure; every way to fail becomes a Failure."""
        try:
            with ControlPlane(self._plan.base_url, self._setup.definition) as control:
                model = self._wait_ready(handle, control)
                return self._benchmark(handle, control, model)
        except LaunchFailed as error:
            self._notes.phase_seconds |= error.phase_seconds
            self._notes.artifacts |= error.evidence
            return failure_of(error, handle.run_dir / LOG, self._plan, self._request)
        except (_CancelledError, WaitCancelled):
            return Failure(FailureClass.LOST_WORKER, self._notes.phase, detail="stopped on request")

    # ---- start-up

    def _wait_ready(self, handle: ServerHandle, control: ControlPlane) -> str:
        """Name of the served model, once it has generated a token."""
        self._notes.phase = Phase.SPAWN
        self.say("launching")
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
                self.say("")
            return phase

        learned = self._request.phase_limits.get(self._notes.kind)
        ready = wait_ready(
            handle,
            one_token,
            phase_seen,
            PhaseDeadlines.of(self._request.space.budget.launch_timeout_s, learned),
            is_fatal_line(self._plan.engine),
            gpus=self._gpus,
            is_cancelled=self._cancelled,
        )
        self._notes.phase_seconds |= ready.phase_seconds
        return served[0]

    # ---- benchmark

    def _benchmark(self, handle: ServerHandle, control: ControlPlane, model: str) -> Outcome:
        info = control.server_info()
        if info is not None:
            (handle.run_dir / SERVER_INFO).write_text(json.dumps(redact_tree(info), indent=1, default=str) + "\n")
        candidate = self._request.candidate
        knobs = self._request.space.knobs_of(candidate.engine)
        self._notes.activity = knob_activity(
            candidate,
            knobs,
            self._setup.catalogue,
            info,
            own_all_reduce(first_lines(handle.run_dir / LOG)),
            logged_settings(first_lines(handle.run_dir / LOG)),
            self._setup.definition.codes,
        )
        self._notes.phase = Phase.SERVING
        limit_s = self._request.space.budget.benchmark_timeout_s
        watch = ServingWatch(
            handle,
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
            run_dir=handle.run_dir,
            time_scale=_time_scale(info),
            should_stop=lambda: self._cancelled() or watch.is_over(),
        )
        began = time.monotonic()
        outcome: Outcome | None = self._checked(checker, checker.alone, watch)
        if outcome is None:
            outcome = self._measured_levels(handle, control, model, watch, _time_scale(info))
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
            self.say("output check")
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

    def _measured_levels(
        self, handle: ServerHandle, control: ControlPlane, model: str, watch: ServingWatch, time_scale: float
    ) -> Outcome:
        if (library := loaded_nccl(member.pid for member in handle.members())) is not None:
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
                    on_progress=lambda progress: self.say(str(progress)),
                    should_abort=lambda: self._cancelled() or watch.is_over(),
                    is_enough=lambda done: beaten(done, self._request.cutoffs) is not None,
                    raw_dir=handle.run_dir / "requests",
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
