"""Sums over the injections, and words for them."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Sequence

from benchmarks.faults.trials import Judged

_SUMS = ("lost", "orphans", "ports_held", "wrong_class", "over_bound")


def counts(judged: Sequence[Judged]) -> dict[str, int]:
    """The figures of the target, all to be zero but the first."""
    return {
        "injections": len(judged),
        "lost": sum(one.is_lost for one in judged),
        "orphans": sum(one.orphans for one in judged),
        "ports_held": sum(one.ports_held for one in judged),
        "wrong_class": sum(not one.is_right for one in judged),
        "over_bound": sum(one.is_over_bound for one in judged),
    }


def by_fault(judged: Sequence[Judged]) -> dict[str, dict[str, object]]:
    """The same for each fault, with what it cost in seconds and what was reported how often."""
    grouped: dict[str, list[Judged]] = {}
    for one in judged:
        grouped.setdefault(one.name, []).append(one)
    return {
        name: {
            **counts(group),
            "seconds_median": round(statistics.median(one.seconds for one in group), 2),
            "seconds_max": round(max(one.seconds for one in group), 2),
            "bound_s": round(max(one.bound_s for one in group), 2),
            "said": dict(Counter(one.said or "nothing" for one in group)),
        }
        for name, group in grouped.items()
    }


def summary(judged: Sequence[Judged]) -> str:
    """The last line of the benchmark."""
    return json.dumps({**counts(judged), "by_fault": by_fault(judged)})


def is_on_target(judged: Sequence[Judged]) -> bool:
    """Whether nothing was lost, left, wrong or late."""
    sums = counts(judged)
    return not any(sums[name] for name in _SUMS)
