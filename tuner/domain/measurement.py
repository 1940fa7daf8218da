"""Numbers with their spread: metrics are rows, not attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Metric(StrEnum):
    """Every quantity that tuner measures; the value is its name in tables, JSON and space files."""

    OUTPUT_TOK_S = "output_tok_s"
    DECODE_TOK_S = "decode_tok_s"
    REQUEST_S = "request_s"
    GOODPUT_S = "goodput_s"
    TTFT_P50_MS = "ttft_p50_ms"
    TTFT_P90_MS = "ttft_p90_ms"
    TTFT_P99_MS = "ttft_p99_ms"
    ITL_P50_MS = "itl_p50_ms"
    ITL_P90_MS = "itl_p90_ms"
    ITL_P99_MS = "itl_p99_ms"
    TPOT_P50_MS = "tpot_p50_ms"
    TPOT_P90_MS = "tpot_p90_ms"
    TPOT_P99_MS = "tpot_p99_ms"
    E2E_P50_MS = "e2e_p50_ms"
    E2E_P90_MS = "e2e_p90_ms"
    E2E_P99_MS = "e2e_p99_ms"
    OUTPUT_TOK_PER_JOULE = "output_tok_per_joule"

    @property
    def unit(self) -> str:
        """Unit of the metric: `tok/s`, `req/s`, `ms` or `tok/J`."""
        if self.value.endswith("_ms"):
            return "ms"
        if self is Metric.OUTPUT_TOK_PER_JOULE:
            return "tok/J"
        return "req/s" if self in (Metric.REQUEST_S, Metric.GOODPUT_S) else "tok/s"

    @property
    def higher_is_better(self) -> bool:
        """True for rates and for tokens per joule, False for latencies."""
        return self.unit != "ms"

    @property
    def words(self) -> str:
        """Name for people: `output token throughput`, `time to first token (p99)`."""
        name, _, quantile = self.value.removesuffix("_ms").rpartition("_p")
        return f"{_LATENCIES[name]} ({_QUANTILES[quantile]})" if self.unit == "ms" else _RATES[self]


_LATENCIES = {
    "ttft": "time to first token",
    "itl": "time between tokens",
    "tpot": "time per output token",
    "e2e": "time to the whole answer",
}
_QUANTILES = {"50": "median", "90": "p90", "99": "p99"}
_RATES = {
    Metric.OUTPUT_TOK_S: "output token throughput",
    Metric.DECODE_TOK_S: "decode speed of a request",
    Metric.REQUEST_S: "request throughput",
    Metric.GOODPUT_S: "goodput",
    Metric.OUTPUT_TOK_PER_JOULE: "output tokens per joule",
}


class SpreadKind(StrEnum):
    """What an interval was computed from; a within-launch spread is never sold as more."""

    WITHIN_LAUNCH = "within_launch"
    BETWEEN_LAUNCHES = "between_launches"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One metric at one load level.

    Attributes:
        metric: what.
        level: concurrency.
        repeats: every single value, in the order measured (a repeat inside one launch, or one per launch).
        center: the median of `repeats`.
        low: lower end of the 95 % interval, or None when the sample is too small to have one.
        high: upper end.
        spread_kind: what the interval was computed from.
        samples: number of underlying observations (requests) behind all repeats.
        rate: open-loop arrival rate in requests/s; None for a closed loop.
    """

    metric: Metric
    level: int
    repeats: tuple[float, ...]
    center: float
    low: float | None = None
    high: float | None = None
    spread_kind: SpreadKind = SpreadKind.NONE
    samples: int = 0
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class LevelResult:
    """One load level on one launch.

    Attributes:
        level: concurrency; at an open-loop rate the highest number of requests in flight.
        asked: requests sent, ramp-up and drain included, over all repeats.
        completed: requests that gave every token asked for.
        errors: error text → count; any entry invalidates the level.
        measurements: one row per metric.
        duration_s: length of the timed part.
        client_cpu_share: share of one core that the load client used, 0–1; above its limit the level is marked.
        client_lag_ms: 99th percentile of the load client's own event-loop delay.
        warnings: codes of `WarningCode`, the closed list.
        rate: open-loop arrival rate in requests/s; None for a closed loop.
        client_processes: how many load processes shared the work.
        prompt_tokens: median prompt length that the server counted, None if it counts none.
        cached_share: share of prompt tokens that the server took from its prefix cache, None if it does not say.
    """

    level: int
    asked: int
    completed: int
    errors: Mapping[str, int]
    measurements: tuple[Measurement, ...]
    duration_s: float
    client_cpu_share: float | None = None
    client_lag_ms: float | None = None
    warnings: tuple[str, ...] = ()
    rate: float | None = None
    client_processes: int = 1
    prompt_tokens: float | None = None
    cached_share: float | None = None

    @property
    def valid(self) -> bool:
        """True when every request asked for completed in full."""
        return not self.errors and self.completed == self.asked > 0

    def value(self, metric: Metric) -> float | None:
        """Centre of a metric at this level, or None when it was not measured."""
        return next((m.center for m in self.measurements if m.metric is metric), None)


@dataclass(frozen=True, slots=True)
class Measured:
    """A launch that was measured at every level asked for."""

    levels: tuple[LevelResult, ...]
    simulated: bool
    warnings: tuple[str, ...] = ()

    def value(self, metric: Metric, level: int) -> float | None:
        """Centre of a metric at a level, or None when it was not measured."""
        return value_at(self.levels, metric, level)


@dataclass(frozen=True, slots=True)
class MeasuredInPart:
    """A launch that was ended before its last levels, because it was beaten beyond noise already; it has not failed.

    Attributes:
        levels: those that were measured, each in full.
        simulated: True when the numbers are a model's.
        reason: one sentence.
    """

    levels: tuple[LevelResult, ...]
    simulated: bool
    reason: str

    def value(self, metric: Metric, level: int) -> float | None:
        """Centre of a metric at a level, or None when it was not measured."""
        return value_at(self.levels, metric, level)


def value_at(levels: Sequence[LevelResult], metric: Metric, level: int) -> float | None:
    """Centre of a metric at a closed-loop level, or None when it was not measured."""
    return next((found.value(metric) for found in levels if found.level == level and found.rate is None), None)
