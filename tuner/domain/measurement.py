"""Numbers with their spread: metrics are rows, not attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tuner.domain.load import LoadPoint


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
    def follows_arrivals(self) -> bool:
        """True for what any server that keeps up with arrivals at a given rate makes of them, however fast it is."""
        return self in (Metric.OUTPUT_TOK_S, Metric.REQUEST_S)

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


@dataclass(frozen=True, slots=True)
class MetricAt:
    """A metric at a load: what objectives, limits and measurements are about."""

    metric: Metric
    load: LoadPoint

    @property
    def label(self) -> str:
        """Short and without blanks: `output_tok_s@128`, `ttft_p99_ms@5/s`."""
        return f"{self.metric.value}@{self.load.label}"

    @property
    def words(self) -> str:
        """For people: `output token throughput at C=128`."""
        return f"{self.metric.words} at {self.load}"

    def __str__(self) -> str:
        """By its name in space files: `output_tok_s at C=128`."""
        return f"{self.metric.value} at {self.load}"


class SpreadKind(StrEnum):
    """What an interval was computed from; a within-launch spread is never sold as more."""

    WITHIN_LAUNCH = "within_launch"
    BETWEEN_LAUNCHES = "between_launches"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One metric at one load.

    Attributes:
        metric: what.
        load: at which it was measured.
        repeats: every single value, in the order measured (a repeat inside one launch, or one per launch).
        center: of single requests at C=1 their mean, trimmed where some are far off (the interval's own centre); of two
            or three repeats under load the middle one.
        low: lower end of the 95 % interval, or None when the sample is too small to have one.
        high: upper end.
        spread_kind: what the interval was computed from.
        samples: number of underlying observations (requests) behind all repeats.
    """

    metric: Metric
    load: LoadPoint
    repeats: tuple[float, ...]
    center: float
    low: float | None = None
    high: float | None = None
    spread_kind: SpreadKind = SpreadKind.NONE
    samples: int = 0

    @property
    def at(self) -> MetricAt:
        """What was measured, and where."""
        return MetricAt(self.metric, self.load)

    @property
    def document(self) -> dict[str, Any]:
        """As every JSON document, CSV and parquet table has it; the repeats are told by each in its own way."""
        return {
            "metric": self.metric.value,
            "unit": self.metric.unit,
            **self.load.document,
            "center": self.center,
            "low": self.low,
            "high": self.high,
            "spread_kind": self.spread_kind.value,
            "samples": self.samples,
        }


@dataclass(frozen=True, slots=True)
class LevelResult:
    """One load on one launch.

    Attributes:
        load: a level or a rate.
        asked: requests sent, ramp-up and drain included, over all repeats.
        completed: requests that gave every token asked for.
        errors: error text → count; any entry invalidates the level.
        measurements: one row per metric.
        duration_s: length of the timed part.
        client_cpu_share: share of one core that the load client used, 0–1; above its limit the level is marked.
        client_lag_ms: 99th percentile of the load client's own event-loop delay.
        warnings: codes of `WarningCode`, the closed list.
        in_flight: most requests in flight at once at a rate; None in a closed loop, whose level says it.
        client_processes: how many load processes shared the work.
        prompt_tokens: median prompt length that the server counted, None if it counts none.
        cached_share: share of prompt tokens that the server took from its prefix cache, None if it does not say.
    """

    load: LoadPoint
    asked: int
    completed: int
    errors: Mapping[str, int]
    measurements: tuple[Measurement, ...]
    duration_s: float
    client_cpu_share: float | None = None
    client_lag_ms: float | None = None
    warnings: tuple[str, ...] = ()
    in_flight: int | None = None
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
    """A launch that was measured at every load asked for."""

    levels: tuple[LevelResult, ...]
    simulated: bool
    warnings: tuple[str, ...] = ()

    def value(self, at: MetricAt) -> float | None:
        """Centre of a metric at a load, or None when it was not measured."""
        return value_at(self.levels, at)


@dataclass(frozen=True, slots=True)
class MeasuredInPart:
    """A launch that was ended before its last loads, because it was beaten beyond noise already; it has not failed.

    Attributes:
        levels: those that were measured, each in full.
        simulated: True when the numbers are a model's.
        reason: one sentence.
    """

    levels: tuple[LevelResult, ...]
    simulated: bool
    reason: str

    def value(self, at: MetricAt) -> float | None:
        """Centre of a metric at a load, or None when it was not measured."""
        return value_at(self.levels, at)


def row_at(levels: Sequence[LevelResult], at: MetricAt) -> Measurement | None:
    """The row of a metric at a load, or None when it was not measured."""
    for found in levels:
        if found.load == at.load:
            for row in found.measurements:
                if row.metric is at.metric:
                    return row
    return None


def value_at(levels: Sequence[LevelResult], at: MetricAt) -> float | None:
    """Centre of a metric at a load, or None when it was not measured."""
    row = row_at(levels, at)
    return None if row is None else row.center
