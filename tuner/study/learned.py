"""What a study's launches so far say about how long the next one may take."""

from __future__ import annotations

from collections.abc import Mapping

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
    owners = set(filter(since_boot, {a.lease_owner for a in attempts}))
    known = [a for a in attempts if a.state is AttemptState.MEASURED and a.lease_owner in owners]
    return {
        kind: learn_limits([a.report.phase_seconds for a in known if a.report is not None and a.was_launched(kind)])
        for kind in LaunchKind
    }
