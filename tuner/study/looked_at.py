"""What of a study's launches is looked at: its goals and limits. Most of what was measured says nothing there."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from tuner.domain.measurement import Metric
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord, StudyRecord
from tuner.trial.baseline_levels import wanted_metrics

if TYPE_CHECKING:
    # Commands import this module for their help as well, and the database toolkit takes half a second.
    from tuner.store import Store


def metrics_looked_at(space: Space) -> frozenset[Metric]:
    """The metrics that a study's front, proof and warnings are made of; what else was measured says nothing there."""
    # What warm launches do to a server is looked for in the throughput at every load.
    return frozenset({at.metric for at in wanted_metrics(space)} | {Metric.OUTPUT_TOK_S})


def launches_looked_at(store: Store, record: StudyRecord, also: Collection[Metric] = ()) -> list[AttemptRecord]:
    """Every launch of a study, with those of its measurements alone that decide what it found.

    Reading them takes a third of the time that all measurements take.

    Args:
        store: where the study is.
        record: the study.
        also: metrics that are shown beside.
    """
    return store.attempts(record.name, metrics=metrics_looked_at(record.space).union(also))
