"""Do servers that were forked from a warm process measure as plain ones do?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.domain.measurement import Metric, MetricAt
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import BASELINE_PURPOSES, LaunchKind, Purpose
from tuner.domain.warnings import Caution, WarningCode
from tuner.trial.statistics import ratio_interval

_WRONG = 0.05
"""Probability of a false alarm, over all metrics and engines together (Bonferroni)."""


def warm_difference(space: Space, attempts: Sequence[AttemptRecord]) -> Iterator[Caution]:
    """Where warm launches of a baseline differ from its plain ones beyond the noise between launches.

    Objectives are compared, and the throughput at every other load: what a difference comes from may show best where
    nothing is sought. Only baselines: search launched them warm, the confirmation plainly, and nobody chose them for a
    good result, as finalists were. Welch's interval of the ratio, on logarithms.
    """
    labels = {MetricAt(Metric.OUTPUT_TOK_S, load): f"output_tok_s at {load}" for load in space.workload.loads}
    labels |= {goal.at: goal.label for goal in space.goals}
    confidence = 1 - _WRONG / (len(labels) * len(space.engines))
    for engine in space.engines:
        own = [a for a in attempts if a.candidate.engine == engine]
        key = next((a.candidate.fingerprint for a in own if a.purpose in BASELINE_PURPOSES), None)
        same = [a for a in own if a.candidate.fingerprint == key]
        warm = [a for a in same if a.was_launched(LaunchKind.WARM)]
        plain = [a for a in same if a not in warm and a.purpose in {*BASELINE_PURPOSES, Purpose.CONFIRM}]
        found = []
        for at, label in labels.items():
            ours, theirs = ([v for a in group if (v := a.value(at)) is not None and v > 0] for group in (warm, plain))
            interval = ratio_interval(ours, theirs, confidence)
            if interval is not None and not interval.low <= 0 <= interval.high:
                found.append(f"{label}: {interval.center:+.1%} [{interval.low:+.1%}, {interval.high:+.1%}]")
        if found:
            yield Caution(
                WarningCode.WARM_DIFFERS,
                f"{engine}: warm against plain {', '.join(found)} ({len(warm)} and {len(plain)} launches)",
                tuple(sorted({a.trial for a in warm})),
            )
