"""Start a server warm where that was asked for and changes nothing, else plainly; say which it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.domain.launch import LaunchPlan
from tuner.domain.trial import LaunchKind, TrialRequest
from tuner.engines.definition import EngineDefinition
from tuner.trial.gpu import GpuProbe
from tuner.trial.hostlocks import HostLock
from tuner.trial.process import ServerHandle, launch
from tuner.trial.warm import ColdError, WarmParents

# One worker process, one set of parents; they end with it.
_PARENTS = WarmParents()


@dataclass(frozen=True, slots=True)
class Started:
    """A server that was started: how, and why not warm where that was asked for."""

    server: ServerHandle
    kind: LaunchKind
    why_plain: str = ""

    @property
    def note(self) -> str:
        """For the report: `launch: warm`, `launch: plain`, or `launch: plain (why)`."""
        return f"launch: {self.kind.value}" + (f" ({self.why_plain})" if self.why_plain else "")


def start_server(
    request: TrialRequest,
    definition: EngineDefinition,
    plan: LaunchPlan,
    *,
    holds: Sequence[HostLock],
    gpus: GpuProbe | None,
) -> Started:
    """Start the server of a plan.

    Raises:
        LaunchRefused: if the program cannot be executed at all.
    """
    run_dir, shared = Path(request.run_dir), definition.shared_temp
    # The parent's log lies beside the attempts, and may be the first file of its trial.
    run_dir.mkdir(parents=True, exist_ok=True)
    if not request.warm:
        return Started(launch(plan, run_dir, holds=holds, gpus=gpus, shared_temp=shared), LaunchKind.PLAIN)
    try:
        parent = _PARENTS.parent_for(plan, definition.warm, run_dir.parent / f"warm-{plan.engine}.log")
        server = launch(plan, run_dir, holds=holds, gpus=gpus, shared_temp=shared, warm=parent)
        return Started(server, LaunchKind.WARM)
    except ColdError as error:
        server = launch(plan, run_dir, holds=holds, gpus=gpus, shared_temp=shared)
        return Started(server, LaunchKind.PLAIN, str(error))
