"""Repeats of one level → LevelResult: rows with spread, warnings, errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tuner.domain.load import LoadPoint
from tuner.domain.measurement import LevelResult, Measurement, Metric, SpreadKind
from tuner.domain.warnings import WarningCode
from tuner.domain.workload import Workload
from tuner.loadgen.job import LoadResult
from tuner.loadgen.record import CountedBy, RequestRecord, Trouble
from tuner.loadgen.watch import CPU_LIMIT, LAG_LIMIT_MS
from tuner.trial.measure_window import (
    Window,
    falls_behind,
    metrics_in,
    scheduled_rates,
    scheduled_window,
    single_stream_metrics,
    steady_window,
)
from tuner.trial.statistics import (
    Interval,
    gross_outliers,
    positive_interval,
    quantile,
    quantile_interval,
    robust_interval,
)
from tuner.trial.trend import drift

CACHE_LIMIT = 0.01
"""Share of prompt tokens from the prefix cache above which a level is marked."""

LENGTH_LIMIT = 0.01
"""Relative difference between asked and counted prompt lengths above which a level is marked; two tokens are free."""

STEADY_LIMIT = 0.05
"""Relative difference between repeats of a level above which one more is measured."""

SHORTEST_ENERGY_S = 1.0
"""Shorter runs are taken together: the driver's counter moves in steps of up to a tenth of a second."""

_DRIFT_P, _DRIFT_CHANGE = 0.01, 0.02
_LATE_LIMIT_S = 0.005
_ERROR_KINDS = 20


@dataclass(frozen=True, slots=True)
class Repeat:
    """One run of a level: what was sent, what came back, and what the trial's GPUs used meanwhile, if that is known."""

    result: LoadResult
    seconds: float
    joules: float | None = None

    @property
    def records(self) -> tuple[RequestRecord, ...]:
        """Its requests."""
        return self.result.records


def count_errors(results: Sequence[LoadResult]) -> dict[str, int]:
    """Error text → number of requests; requests that we cut ourselves after another one failed are not counted."""
    found = Counter(r.error for result in results for r in result.records if r.trouble not in (None, Trouble.CUT))
    for result in results:
        if result.dead:
            found[f"the server refused a connection: {result.dead}"] += 1
    return dict(found.most_common(_ERROR_KINDS))


def in_server_time(metric: Metric, value: float, time_scale: float) -> float:
    """Convert from the measuring clock to the server's, which runs `time_scale` times as fast."""
    return value * time_scale if metric.unit == "ms" else value / time_scale


def counted_window(load: LoadPoint, repeat: Repeat) -> Window | None:
    """The time of one run whose events count; None when there was no steady window. At C=1 all of it counts."""
    complete = [record for record in repeat.records if record.complete]
    if load.rate is not None:
        return scheduled_window(complete, repeat.result.started_at, repeat.seconds)
    if load.is_single_stream and complete:
        return Window(complete[0].sent_at - 1e-6, complete[-1].last_at + 1e-6)
    return steady_window(complete)


def repeat_metrics(load: LoadPoint, repeat: Repeat, workload: Workload, time_scale: float) -> dict[Metric, float]:
    """Every metric of one repeat, in the server's time; empty when there was no steady window."""
    complete = [record for record in repeat.records if record.complete]
    window = counted_window(load, repeat)
    if window is None:
        return {}
    limits = workload.goodput
    if limits is not None and time_scale != 1:
        limits = limits.model_copy(
            update={name: value / time_scale for name, value in limits.model_dump(exclude_none=True).items()}
        )
    found = metrics_in(
        complete, window, goodput=limits, whole_requests_only=load.rate is None and not workload.lengths_vary
    )
    if load.rate is not None:
        found |= scheduled_rates(complete, window, repeat.seconds, goodput=limits)
    return {metric: in_server_time(metric, value, time_scale) for metric, value in found.items()}


def _rows(load: LoadPoint, values: Mapping[Metric, Sequence[float]], samples: int) -> list[Measurement]:
    """Two or three repeats: the middle one is told, since one of three may have been disturbed as a whole."""
    return [
        _row(metric, load, repeats, positive_interval(repeats), median(repeats), samples)
        for metric, repeats in values.items()
    ]


def _row(
    metric: Metric, load: LoadPoint, repeats: Sequence[float], interval: Interval | None, center: float, samples: int
) -> Measurement:
    return Measurement(
        metric=metric,
        load=load,
        repeats=tuple(repeats),
        center=center,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        spread_kind=SpreadKind.WITHIN_LAUNCH if interval else SpreadKind.NONE,
        samples=samples,
    )


def _single_rows(records: Sequence[RequestRecord], workload: Workload, time_scale: float) -> list[Measurement]:
    """Each request alone is a repeat; percentiles come from all of them together.

    The centre is that of the interval: of many skewed speeds the median may lie outside the interval of their mean.
    """
    load, per_request = LoadPoint(level=1), dict[Metric, list[float]]()
    for record in records:
        for metric, value in single_stream_metrics(record).items():
            per_request.setdefault(metric, []).append(in_server_time(metric, value, time_scale))
    rows = []
    for metric, values in per_request.items():
        interval = robust_interval(values)
        center = interval.center if interval else median(values)
        rows.append(_row(metric, load, values, interval, center, len(values)))
    first, last = records[0], records[-1]
    window = Window(first.sent_at - 1e-6, last.last_at + 1e-6)
    latencies = {m: v for m, v in metrics_in(records, window).items() if m.unit == "ms"}
    samples = {
        Metric.TTFT_P50_MS: [r.ttft_s * 1000 for r in records],
        Metric.E2E_P50_MS: [r.e2e_s * 1000 for r in records],
        Metric.TPOT_P50_MS: [tpot * 1000 for r in records if (tpot := r.tpot_s)],
    }
    for metric, value in latencies.items():
        interval = quantile_interval(samples[metric], 0.5) if metric in samples else None
        scaled = in_server_time(metric, value, time_scale)
        rows.append(
            Measurement(
                metric=metric,
                load=load,
                repeats=(scaled,),
                center=scaled,
                low=in_server_time(metric, interval.low, time_scale) if interval else None,
                high=in_server_time(metric, interval.high, time_scale) if interval else None,
                spread_kind=SpreadKind.WITHIN_LAUNCH if interval else SpreadKind.NONE,
                samples=len(records),
            )
        )
    return rows


def tokens_per_joule(repeats: Sequence[Repeat]) -> list[float]:
    """Output tokens of all requests, ramp-up and drain included, for each joule that the GPUs used meanwhile.

    One value per repeat; those shorter than `SHORTEST_ENERGY_S` are joined with their neighbours. Empty where nobody
    counted energy.
    """
    groups: list[tuple[float, float]] = []
    tokens = joules = seconds = 0.0
    for repeat in repeats:
        if repeat.joules is None:
            return []
        tokens += sum(record.output_tokens for record in repeat.records)
        joules += repeat.joules
        seconds += repeat.result.wall_s
        if seconds >= SHORTEST_ENERGY_S:
            groups.append((tokens, joules))
            tokens = joules = seconds = 0.0
    if seconds:
        last = groups.pop() if groups else (0.0, 0.0)
        groups.append((last[0] + tokens, last[1] + joules))
    return [tokens / joules for tokens, joules in groups if joules > 0]


def differ(values: Sequence[float]) -> bool:
    """True when repeats lie further apart than `STEADY_LIMIT`."""
    return len(values) > 1 and max(values) - min(values) > STEADY_LIMIT * median(values)


def _queued(records: Sequence[RequestRecord]) -> bool:
    """True when some request of the first round got its first token only after another one had ended."""
    firsts: dict[int, RequestRecord] = {}
    for record in sorted(records, key=lambda r: r.sent_at):
        firsts.setdefault(record.slot, record)
    if len(firsts) < 2:
        return False
    return max(r.first_at for r in firsts.values()) > min(r.last_at for r in firsts.values())


def _warnings(
    load: LoadPoint,
    repeats: Sequence[Repeat],
    rows: Sequence[Measurement],
    workload: Workload,
    *,
    exact_input: bool,
    cached: float | None,
) -> list[WarningCode]:
    results = [repeat.result for repeat in repeats]
    records = [r for repeat in repeats for r in repeat.records if r.complete]
    alone = load.is_single_stream
    speed = next((row.repeats for row in rows if row.metric is Metric.OUTPUT_TOK_S), ())
    trend = drift(speed) if alone else None
    decode = next((row for row in rows if row.metric is Metric.DECODE_TOK_S), None)
    wide = alone and decode is not None and not _precise(decode, workload.precision)
    checks = {
        WarningCode.CLIENT_NEAR_LIMIT: any(r.cpu_share > CPU_LIMIT or r.lag_ms > LAG_LIMIT_MS for r in results),
        WarningCode.PREFIX_CACHE_HIT: (cached or 0) > CACHE_LIMIT and workload.shape.kind == "random",
        WarningCode.QUEUED_AT_SERVER: load.rate is None and any(_queued(r.records) for r in repeats if r.records),
        WarningCode.BUNDLED_CHUNKS: any(r.bundled for r in records),
        WarningCode.COUNTED_BY_CHUNKS: any(r.counted_by is CountedBy.CHUNKS for r in records),
        WarningCode.INPUT_LENGTH_APPROXIMATE: not exact_input and workload.shape.kind not in ("sharegpt", "jsonl"),
        WarningCode.RECONNECTED: any(r.reconnects for r in results),
        WarningCode.PRECISION_NOT_REACHED: wide,
        # At a rate, the throughput differs as the arrivals do.
        WarningCode.NOT_STEADY: not alone and load.rate is None and differ(speed),
        WarningCode.DRIFTING: trend is not None and trend.p_value < _DRIFT_P and abs(trend.relative) > _DRIFT_CHANGE,
        WarningCode.OUTLIERS: alone and decode is not None and bool(gross_outliers(decode.repeats)),
        WarningCode.SCHEDULE_MISSED: load.rate is not None
        and bool(records)
        and quantile([r.sent_at - r.scheduled_at for r in records], 0.99) > _LATE_LIMIT_S,
        WarningCode.FALLING_BEHIND: load.rate is not None and all(falls_behind(r.records) for r in repeats),
    }
    return [warning for warning, holds in checks.items() if holds]


def _precise(row: Measurement, precision: float) -> bool:
    if row.low is None or row.high is None:
        return False
    return (row.high - row.low) / 2 <= precision * row.center


def _counted_as_asked(records: Sequence[RequestRecord], workload: Workload) -> bool:
    """False when the server counts other prompt lengths than asked: the tokenizer that made the texts is not its own.

    Only where lengths are known beforehand: files have their own, chat templates add tokens.
    """
    counted = [r.prompt_tokens for r in records if r.prompt_tokens is not None]
    known = workload.shape.kind in ("random", "shared_prefix") and workload.input_lengths.kind == "fixed"
    if not counted or not known or workload.api == "chat":
        return True
    return abs(median(counted) - workload.input_tokens) <= max(2, LENGTH_LIMIT * workload.input_tokens)


def cached_share(records: Sequence[RequestRecord]) -> float | None:
    """Share of prompt tokens that came from the prefix cache; None when the server does not say."""
    known = [r for r in records if r.cached_tokens is not None and r.prompt_tokens]
    if not known:
        return None
    return sum(r.cached_tokens or 0 for r in known) / sum(r.prompt_tokens or 0 for r in known)


def level_result(
    load: LoadPoint,
    repeats: Sequence[Repeat],
    workload: Workload,
    *,
    time_scale: float,
    exact_input: bool,
    cache_counted: float | None = None,
    extra_warnings: Sequence[WarningCode] = (),
) -> LevelResult:
    """Everything about one load.

    Args:
        load: level, or rate in the server's time.
        repeats: its runs, in order; at C=1 the batches of single requests.
        workload: what was sent.
        time_scale: how much faster than ours the server's clock runs.
        exact_input: prompts have exactly the asked number of tokens.
        cache_counted: share of prompt tokens from the prefix cache by the server's own counters, where it has any.
        extra_warnings: what the caller noticed.
    """
    records = [r for repeat in repeats for r in repeat.records]
    complete = [r for r in records if r.complete]
    errors = count_errors([repeat.result for repeat in repeats])
    if errors or not complete:
        rows: list[Measurement] = []
    elif load.is_single_stream:
        rows = _single_rows(complete, workload, time_scale)
    else:
        values: dict[Metric, list[float]] = {}
        for repeat in repeats:
            for metric, value in repeat_metrics(load, repeat, workload, time_scale).items():
                values.setdefault(metric, []).append(value)
        rows = _rows(load, values, len(complete))
    if rows and (efficiency := tokens_per_joule(repeats)):
        rows += _rows(load, {Metric.OUTPUT_TOK_PER_JOULE: efficiency}, len(complete))
    exact_input = exact_input and _counted_as_asked(complete, workload)
    cached = cached_share(complete)
    cached = cache_counted if cached is None else cached
    warnings = _warnings(load, repeats, rows, workload, exact_input=exact_input, cached=cached) if complete else []
    prompts = [r.prompt_tokens for r in complete if r.prompt_tokens is not None]
    return LevelResult(
        load=load,
        asked=len(records) + sum(repeat.result.unsent for repeat in repeats),
        completed=len(complete),
        errors=errors,
        measurements=tuple(rows),
        duration_s=sum(repeat.result.wall_s for repeat in repeats) * time_scale,
        client_cpu_share=max(repeat.result.cpu_share for repeat in repeats),
        client_lag_ms=max(repeat.result.lag_ms for repeat in repeats),
        warnings=tuple(w.value for w in [*warnings, *extra_warnings]),
        in_flight=None if load.rate is None else max(repeat.result.in_flight_max for repeat in repeats),
        client_processes=max(repeat.result.processes for repeat in repeats),
        prompt_tokens=median(prompts) if prompts else None,
        cached_share=cached,
    )
