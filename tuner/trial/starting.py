"""Start a server warm where that was asked for and changes nothing, else plainly; say which it was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner.domain.launch import LaunchPlan
from tuner.domain.trial import TrialRequest
from tuner.engines.definition import EngineDefinition
from tuner.trial.gpu import GpuProbe
from tuner.trial.hostlocks import HostLock
from tuner.trial.process import ServerHandle, launch
from tuner.trial.warm import ColdError, WarmParents

WARM_NOTE = "launch: warm"
_PLAIN_NOTE = "launch: plain"

# One worker process, one set of parents; they end with it.
_PARENTS = WarmParents()


def start_server(
    request: TrialRequest,
    definition: EngineDefinition,
    plan: LaunchPlan,
    *,
    holds: Sequence[HostLock],
    gpus: GpuProbe | None,
) -> tuple[ServerHandle, str]:
    """Start the server of a plan.

    Returns:
        The server, and a note for the report: `launch: warm`, `launch: plain`, or `launch: plain (why)`.

    Raises:
        LaunchRefused: if the program cannot be executed at all.
    """
    run_dir = Path(request.run_dir)
    # The parent's log lies beside the attempts, and may be the first file of its trial.
    run_dir.mkdir(parents=True, exist_ok=True)
    if not request.warm:
        return launch(plan, run_dir, holds=holds, gpus=gpus), _PLAIN_NOTE
    try:
        parent = _PARENTS.parent_for(plan, definition.warm, run_dir.parent / f"warm-{plan.engine}.log")
        return launch(plan, run_dir, holds=holds, gpus=gpus, warm=parent), WARM_NOTE
    except ColdError as error:
        return launch(plan, run_dir, holds=holds, gpus=gpus), f"{_PLAIN_NOTE} ({error})"
