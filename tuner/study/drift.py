"""Did the machine become faster or slower in the course of a study? Its baseline, launched again and again, tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord
from tuner.domain.warnings import Caution, WarningCode
from tuner.study.summary import baselines_of
from tuner.trial.baseline_levels import BaselineLevels, wanted_metrics
from tuner.trial.change import change_of, points_of


def machine_drift(space: Space, attempts: Sequence[AttemptRecord]) -> Iterator[Caution]:
    """How much each objective and limit of a baseline changed, where that is beyond chance and more than 2 %."""
    labels = {goal.at: goal.label for goal in space.goals}
    changes = []
    for at in wanted_metrics(space):
        for engine, baseline in baselines_of(attempts).items():
            own = [a for a in attempts if a.candidate.fingerprint == baseline.fingerprint]
            label = labels.get(at, at.label)
            whose = f"{label} ({engine})" if len(space.engines) > 1 else label
            if (change := change_of(points_of(own, at))) is not None:
                since = "" if change.since is None else f" from trial {change.since} on"
                changes.append(f"{whose}: {change.share:+.1%}{since}")
    if changes:
        follows = BaselineLevels(space, attempts).limits_of_their_time
        told = "; limits relative to the baseline are judged by what it measured at the time of each launch"
        yield Caution(WarningCode.MACHINE_DRIFTS, ", ".join(changes) + (told if follows else ""))
