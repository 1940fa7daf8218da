"""Numbers with their spread: metrics are rows, not attributes."""

from __future__ import annotations

from collections.abc import Mapping
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

    @property
    def unit(self) -> str:
        """Unit of the metric: `tok/s`, `req/s` or `ms`."""
        if self.value.endswith("_ms"):
            return "ms"
        return "req/s" if self in (Metric.REQUEST_S, Metric.GOODPUT_S) else "tok/s"

    @property
    def higher_is_better(self) -> bool:
        """True for rates, False for latencies."""
        return self.unit != "ms"


class SpreadKind(StrEnum):
    """What an interval was computed from; a within-launch spread is never sold as more."""

    WITHIN_LAUNCH = "within_launch"
    BETWEEN_LAUNCHES = "between_launches"
    NONE = "none"


class LevelWarning(StrEnum):
    """What may be wrong with a level that completed; the value is the code in `LevelResult.warnings`."""

    CLIENT_NEAR_LIMIT = "client_near_limit"
    PREFIX_CACHE_HIT = "prefix_cache_hit"
    QUEUED_AT_SERVER = "queued_at_server"
    BUNDLED_CHUNKS = "bundled_chunks"
    COUNTED_BY_CHUNKS = "counted_by_chunks"
    INPUT_LENGTH_APPROXIMATE = "input_length_approximate"
    RECONNECTED = "reconnected"
    PRECISION_NOT_REACHED = "precision_not_reached"
    NOT_STEADY = "not_steady"
    DRIFTING = "drifting"
    OUTLIERS = "outliers"
    DATASET_REPEATED = "dataset_repeated"
    SCHEDULE_MISSED = "schedule_missed"

    @property
    def words(self) -> str:
        """What it means and what to do about it."""
        return _WARNING_WORDS[self]


_WARNING_WORDS = {
    LevelWarning.CLIENT_NEAR_LIMIT: "the load client was near its own limit: free CPU cores, or trust lower levels",
    LevelWarning.PREFIX_CACHE_HIT: "the server took part of the prompts from its cache: flush it, or change the seed",
    LevelWarning.QUEUED_AT_SERVER: "the server ran fewer requests at once than were sent: TTFT holds waiting time",
    LevelWarning.BUNDLED_CHUNKS: "several tokens share a chunk: times between tokens are left out, see TPOT",
    LevelWarning.COUNTED_BY_CHUNKS: "the server gives no token counts: chunks were counted, which may be fewer",
    LevelWarning.INPUT_LENGTH_APPROXIMATE: "no tokenizer: prompt lengths are only about right; give one",
    LevelWarning.RECONNECTED: "the server closed connections between requests: raise its keep-alive time",
    LevelWarning.PRECISION_NOT_REACHED: "the interval is wider than asked after the most requests allowed",
    LevelWarning.NOT_STEADY: "repeats of this level differ by more than 5 %: measure longer",
    LevelWarning.DRIFTING: "speed changed steadily while measuring: heat, memory or a neighbour",
    LevelWarning.OUTLIERS: "some requests were far off: the interval leaves the tails out, the raw data keep them",
    LevelWarning.DATASET_REPEATED: "the data set was too short: prompts were sent again and may come from a cache",
    LevelWarning.SCHEDULE_MISSED: "requests left later than scheduled; the delay is part of their latency",
}


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
        warnings: codes of `LevelWarning`, the closed list.
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
        return next((found.value(metric) for found in self.levels if found.level == level and found.rate is None), None)
