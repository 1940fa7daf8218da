"""One candidate from launch to outcome, on the machine that has the GPUs.

preflight → plan → launch → one token → what runs now? → warm-up and load levels → tear-down with proof. Whatever goes
wrong on the way becomes a `Failure` with class, phase and evidence; only a defect of tuner raises.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from tuner.domain.launch import LaunchPlan
from tuner.domain.machine import GPU_USED_BEFORE
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.shortage import own_shortage
from tuner.domain.trial import Outcome, TrialReport, TrialRequest
from tuner.engines.plan import Place
from tuner.errors import MachineUnfit, UserError
from tuner.trial.assembly import EngineSetup, engine_setup
from tuner.trial.denyfiles import refuse_denied_script
from tuner.trial.gpu import NvmlProbe, open_nvml
from tuner.trial.hostlocks import GpusTaken, wait_for_gpus
from tuner.trial.launched import SERVER_INFO, Cancelled, LaunchedServer, Notes, Notify
from tuner.trial.machine import machine_facts, model_config_hash
from tuner.trial.naming import NO_ROOM, not_measured, without_room
from tuner.trial.neighbours import Strangers, wait_until_free
from tuner.trial.output_check import ANSWERS
from tuner.trial.ports import reserve_ports
from tuner.trial.process import LOG, LaunchRefused
from tuner.trial.script import PLAN, SCRIPT
from tuner.trial.starting import start_server

HOST = "127.0.0.1"
_GPUS_FREE_S = 1800.0
"""So long a launch waits for others to leave its GPUs: enough for a short job, and no night is spent waiting."""
_STOPPED = Failure(FailureClass.LOST_WORKER, Phase.PREFLIGHT, detail="stopped on request")


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
    notes = Notes(notify)
    started, began = time.time(), time.monotonic()
    try:
        setup = engine_setup(request.space, request.candidate.engine)
        outcome = _run(request, setup, gpus, notes, cancelled, script)
        versions = {request.candidate.engine: setup.installed.version or "unknown", **setup.installed.packages}
    except (MachineUnfit, UserError) as error:
        outcome, versions = not_measured(error, notes.phase), {}
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            outcome, versions = without_room(error, notes.phase), {}
        elif (shortage := own_shortage(error)) is not None:
            outcome, versions = not_measured(shortage, notes.phase), {}
        else:
            raise
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
    notes: Notes,
    cancelled: Cancelled,
    script: Path | None,
) -> Outcome:
    """Reserve GPUs and ports, launch, and measure; the server is gone when this returns."""
    run_dir = Path(request.run_dir)
    probe = open_nvml()
    try:
        own = wait_for_gpus(gpus, timeout_s=_GPUS_FREE_S, tell=notes.say, is_cancelled=cancelled)
    except GpusTaken as taken_gpus:
        return _STOPPED if cancelled() else not_measured(taken_gpus)
    with own as devices, reserve_ports(setup.port_count) as ports:
        place = Place(HOST, ports.ports[0], ports.ports[1:], gpus)
        plan = notes.plan = _plan(request, setup, place, script)
        strangers = Strangers(probe, plan.gpus)
        taken = _taken_gpus(request, plan, notes, cancelled, probe)
        notes.machine |= _before_launch(plan, probe)
        if taken:
            return taken
        try:
            holds = [*devices.locks, *ports.locks]
            started = start_server(request, setup.definition, plan, holds=holds, gpus=probe)
        except LaunchRefused as error:
            return not_measured(error)
        handle, notes.kind = started.server, started.kind
        notes.texts.append(started.note)
        with handle:
            server = LaunchedServer(handle, request, setup, plan, notes, cancelled, gpus=probe, strangers=strangers)
            outcome = server.measured()
            notes.phase = Phase.TEARDOWN
            notes.say("tear-down")
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


def _taken_gpus(
    request: TrialRequest, plan: LaunchPlan, notes: Notes, cancelled: Cancelled, probe: NvmlProbe | None
) -> Failure | None:
    """Wait until the GPUs are as free as before earlier launches; the failure if others stay."""
    known = request.gpu_use.get(machine_facts().hostname, {})
    usual = {gpu: known[gpu] for gpu in plan.gpus if gpu in known}
    if probe is None or not usual:
        return None
    taken = wait_until_free(probe, usual, timeout_s=_GPUS_FREE_S, tell=notes.say, is_cancelled=cancelled)
    if cancelled():
        return _STOPPED
    return Failure(FailureClass.GPU_BUSY, Phase.PREFLIGHT, tuple(map(str, taken))) if taken else None


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
