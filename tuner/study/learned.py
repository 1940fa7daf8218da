"""What a study's launches so far say about the next one: how long it may take, how free its GPUs should be."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.domain.machine import gpu_use_before
from tuner.domain.outcome import Phase
from tuner.domain.study import AttemptRecord, AttemptState
from tuner.domain.trial import LaunchKind
from tuner.store.owner import since_boot
from tuner.trial.deadlines import learn_limits


def learned_limits(attempts: list[AttemptRecord]) -> Mapping[LaunchKind, Mapping[Phase, float]]:
    """Seconds per phase for the next launch, by its kind, learned from the launches that were measured.

    Only launches since this machine was started say how long the next one may take: a machine that begins with empty
    caches reads and compiles everything anew.
    """
    known = [a for a in _since_boot(attempts) if a.state is AttemptState.MEASURED]
    return {
        kind: learn_limits([a.report.phase_seconds for a in known if a.report is not None and a.was_launched(kind)])
        for kind in LaunchKind
    }


def learned_gpu_use(attempts: list[AttemptRecord]) -> Mapping[str, Mapping[int, int]]:
    """Host → GPU → least MiB in use there before a launch since this machine was started.

    The least, since whoever was there before a later launch need not be there now.
    """
    least: dict[str, dict[int, int]] = {}
    for attempt in _since_boot(attempts):
        report = attempt.report
        if report is None or report.plan is None:
            continue
        on_host = least.setdefault(report.machine.get("hostname", ""), {})
        for gpu, used in zip(report.plan.gpus, gpu_use_before(report.machine), strict=False):
            on_host[gpu] = min(used, on_host.get(gpu, used))
    return least


def _since_boot(attempts: list[AttemptRecord]) -> list[AttemptRecord]:
    owners = set(filter(since_boot, {a.lease_owner for a in attempts}))
    return [a for a in attempts if a.lease_owner in owners]
