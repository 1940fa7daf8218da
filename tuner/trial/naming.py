"""Which failure it is that ended a launch: from its log, from its exit code, or from what only supervision saw."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tuner.domain.launch import LaunchPlan
from tuner.domain.outcome import Failure, FailureClass, Observation, Phase
from tuner.domain.trial import TrialRequest
from tuner.engines.failures import explain
from tuner.errors import MachineUnfit, OwnShortage, SpecError, UserError
from tuner.trial.assembly import ModelMissing
from tuner.trial.hostlocks import GpusTaken
from tuner.trial.process import LaunchRefused
from tuner.trial.watchdog import LaunchFailed, LaunchTrouble

_OBSERVATIONS = {
    LaunchTrouble.EXITED: Observation.EXITED,
    LaunchTrouble.FATAL_LINE: Observation.EXITED,
    LaunchTrouble.HUNG: Observation.HUNG,
    LaunchTrouble.DEADLINE: Observation.DEADLINE,
}
# What no log can tell.
_SEEN_FROM_OUTSIDE = {
    LaunchTrouble.FOREIGN_PORT: FailureClass.PORT_IN_USE,
    LaunchTrouble.GUARD_LOST: FailureClass.LOST_WORKER,
    LaunchTrouble.STARVED: FailureClass.HOST_STARVED,
    LaunchTrouble.GPU_SHARED: FailureClass.GPU_BUSY,
}


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers of a full disk: no space left, quota used up, file as large as it may become."""


def without_room(error: OSError, phase: Phase) -> Failure:
    """The failure of a trial that could not write its files; the study stops, since no other could either."""
    where = f": {error.filename}" if error.filename else ""
    hint = "free some space under the runs folder, then resume the study"
    return Failure(FailureClass.ENV_SETUP, phase, (f"{error.strerror}{where}",), detail=hint)


def not_measured(error: MachineUnfit | UserError | LaunchRefused, phase: Phase = Phase.PREFLIGHT) -> Failure:
    """The failure of a trial that had no server, or that tuner itself could not go on with.

    Args:
        error: what kept it from it.
        phase: where.
    """
    match error:
        case LaunchRefused():
            failure_class = FailureClass.HOST_STARVED if error.is_late else FailureClass.ENV_SETUP
            return Failure(failure_class, Phase.SPAWN, (error.message,))
        case ModelMissing():
            failure_class = FailureClass.MODEL_ACCESS
        case SpecError():
            failure_class = FailureClass.BAD_FLAG
        case GpusTaken():
            failure_class = FailureClass.GPU_BUSY
        case OwnShortage():
            failure_class = FailureClass.CLIENT_STARVED
        case _:
            failure_class = FailureClass.ENV_SETUP
    return Failure(failure_class, phase, (error.message,), detail=error.hint or "")


def failure_of(error: LaunchFailed, log: Path, plan: LaunchPlan, request: TrialRequest) -> Failure:
    """The failure of a server that did not become ready, or died or stalled later.

    Args:
        error: what supervision noticed.
        log: the server's log.
        plan: how it was started.
        request: the trial.
    """
    if (seen := _SEEN_FROM_OUTSIDE.get(error.kind)) is not None:
        return Failure(seen, error.phase, (error.observation,))
    found = explain(
        log,
        engine=plan.engine,
        exit_code=error.exit_code,
        settings=_settings(plan, request),
        observation=_OBSERVATIONS[error.kind],
        phase=error.phase,
        seen=error.observation,
    )
    if found is None:
        found = Failure(FailureClass.UNKNOWN, error.phase, exit_code=error.exit_code)
    # A server that shuts down because it was hurt failed where it was hurt, not in its own tear-down.
    phase = error.phase if found.phase is Phase.TEARDOWN else found.phase
    return replace(
        found,
        phase=phase,
        evidence=found.evidence or (error.observation,),
        detail=found.detail or error.observation,
    )


def _settings(plan: LaunchPlan, request: TrialRequest) -> Mapping[str, str]:
    """Variables and flags that this candidate set, by the name under which they reach the engine."""
    knobs = request.space.knobs_of(plan.engine)
    values = request.candidate.values.items()
    return {(knobs[name].env or knobs[name].flag or name): str(value) for name, value in values if value is not None}
