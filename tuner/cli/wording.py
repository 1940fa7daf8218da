"""Numbers and settings as people read them; shared by every table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.domain.front import Estimate
from tuner.domain.measurement import LevelResult, Measurement, SpreadKind
from tuner.domain.space import Limit, Objective
from tuner.domain.values import Value, readable, spell

SIMULATED = "simulated"
number = readable


def with_spread(row: Measurement | None) -> str:
    """`63.6 ±0.3`; the centre alone when the sample is too small for an interval, `–` when there is none."""
    if row is None:
        return "–"
    if row.low is None or row.high is None or row.spread_kind is SpreadKind.NONE:
        return number(row.center)
    return f"{number(row.center)} ±{number((row.high - row.low) / 2)}"


def estimated(value: Estimate | None) -> str:
    """`90.0 ±0.3`, with the larger half of the interval; `90.0 [20.1, 402.5]` where that is more than the value itself.

    The centre alone when the sample is too small for an interval, `–` when there is none.
    """
    if value is None:
        return "–"
    if value.low is None or value.high is None:
        return number(value.center)
    half = max(value.above, value.below)
    if half > value.center:
        return f"{number(value.center)} [{number(value.low)}, {number(value.high)}]"
    return f"{number(value.center)} ±{number(half)}"


def gain(value: float, baseline: float | None) -> str:
    """`+12.3 %` against the baseline, empty without one."""
    return "" if not baseline else f"{(value / baseline - 1) * 100:+.1f} %"


def changes(pairs: Mapping[str, tuple[Value, Value]]) -> str:
    """`nccl_proto=LL, attention_backend=triton`; `baseline` when nothing differs."""
    return ", ".join(f"{name}={spell(own)}" for name, (_, own) in pairs.items()) or "baseline"


def duration(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    if whole < 5400:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def loads_in_words(levels: Sequence[int], rates: Sequence[float]) -> str:
    """Where a workload is measured: `C=1, 32, 128 and 2.5, 5 req/s`."""
    words = f"C={', '.join(map(str, levels))}"
    return f"{words} and {', '.join(f'{rate:.12g}' for rate in rates)} req/s" if rates else words


def measurement_document(row: Measurement | None) -> dict[str, Any] | None:
    """A measurement as every JSON document has it; `low` and `high` are the 95 % interval or null."""
    return None if row is None else {**row.document, "repeats": list(row.repeats)}


def level_document(level: LevelResult) -> dict[str, Any]:
    """What was measured at one load as every JSON document has it, but for the measurements themselves."""
    return {
        **level.load.document,
        "in_flight": level.in_flight,
        "valid": level.valid,
        "asked": level.asked,
        "completed": level.completed,
        "errors": dict(level.errors),
        "duration_s": level.duration_s,
        "client_cpu_share": level.client_cpu_share,
        "client_lag_ms": level.client_lag_ms,
        "client_processes": level.client_processes,
        "prompt_tokens": level.prompt_tokens,
        "cached_share": level.cached_share,
        "warnings": list(level.warnings),
    }


def goal_document(goal: Objective) -> dict[str, Any]:
    """An objective as every JSON document has it."""
    return {
        "label": goal.label,
        "words": goal.words,
        "metric": goal.metric.value,
        "unit": goal.metric.unit,
        **goal.load.document,
        "direction": "maximize" if goal.maximize else "minimize",
    }


def limit_document(limit: Limit) -> dict[str, Any]:
    """A limit as every JSON document has it; three of its four bounds are null."""
    return {
        "label": limit.label,
        "words": limit.words,
        "metric": limit.metric.value,
        "unit": limit.metric.unit,
        **limit.load.document,
        "max": limit.max,
        "min": limit.min,
        "max_of_baseline": limit.max_of_baseline,
        "min_of_baseline": limit.min_of_baseline,
    }
