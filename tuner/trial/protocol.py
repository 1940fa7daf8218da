"""How one launch is measured: find out how the server wants to be asked, warm up until steady, then every level.

1. The first request settles the dialect: which fields make answers equally long, token ids or text, usage or not.
2. Warm-up: single requests until the last four take equally long (`is_steady`), or an upper bound.
3. C = 1: single requests until the 95 % interval of decode tok/s is within the workload's precision, or a bound.
4. C > 1: `repeats` runs, each counted over its steady window only; one more when they differ by more than 5 %.
5. Open-loop rates, if the workload has any.

Warm-up and measured requests are made by the same code. One failed or short request invalidates its level.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.domain.load import LoadPoint
from tuner.domain.measurement import LevelResult, Metric
from tuner.domain.warnings import WarningCode
from tuner.domain.workload import Workload
from tuner.loadgen.arrivals import arrival_instants, window_seconds
from tuner.loadgen.ask import CacheCounters, cache_counters
from tuner.loadgen.dialect import variants
from tuner.loadgen.job import LoadResult
from tuner.loadgen.pool import LoadPool
from tuner.loadgen.prompts import Prompts, seeded
from tuner.loadgen.record import RequestRecord
from tuner.loadgen.target import Target
from tuner.loadgen.vocabulary import Vocabulary
from tuner.trial.energy import Joules
from tuner.trial.measure_events import LevelProgress, MeasurementFailed, MeasurementTrouble, Stage
from tuner.trial.measure_failure import WRONG_LENGTH, failure_of
from tuner.trial.measure_level import Repeat, count_errors, counted_window, differ, level_result, repeat_metrics
from tuner.trial.measure_sender import Sender
from tuner.trial.measure_window import decode_tok_s
from tuner.trial.statistics import is_steady, requests_needed, robust_interval

__all__ = ["LevelProgress", "MeasurementFailed", "MeasurementTrouble", "Stage", "measure"]

_ALONE = LoadPoint(level=1)
_BAD_REQUEST = (400, 413, 422)


@dataclass(slots=True)
class _Measurer:
    sender: Sender
    workload: Workload
    vocabulary: Vocabulary
    prompts: Prompts
    time_scale: float
    flush: Callable[[], None] | None
    on_level: Callable[[LevelResult], None] | None
    raw_dir: Path | None
    keep_invalid: bool
    compiled: Callable[[float, float], bool] | None
    cache: CacheCounters | None = None
    is_warm: bool = True

    @property
    def levels(self) -> list[LevelResult]:
        """What was measured so far."""
        return self.sender.levels

    # -- stages ------------------------------------------------------------------------------------------------------

    def settle(self, model: str) -> list[RequestRecord]:
        """Find the first way of asking that gives a full answer."""
        worst: LoadResult | None = None
        for dialect in variants(model, self.workload.api, self.vocabulary):
            self.sender.dialect = dialect
            result = self.sender.send(Stage.PROBE, _ALONE, 1, 1, "probe")
            first = result.records[0]
            if all(record.complete for record in result.records):
                return list(result.records)
            unequal = first.trouble in WRONG_LENGTH
            retry = unequal or first.status in _BAD_REQUEST
            if worst is None or unequal:
                worst = result
            if not retry:
                worst = result
                break
        assert worst is not None
        raise self._failure(worst, Stage.PROBE, _ALONE)

    def warm_up(self, records: list[RequestRecord]) -> None:
        """Single requests until they take equally long."""
        times = [record.e2e_s for record in records]
        while len(times) < self.workload.warmup_requests and not is_steady(times):
            batch = min(max(1, 4 - len(times)), self.workload.warmup_requests - len(times))
            result = self.sender.send(Stage.WARMUP, _ALONE, batch, 1, f"warmup-{len(times)}")
            self._refuse_failures(result, Stage.WARMUP, _ALONE)
            times += [record.e2e_s for record in result.records]
            records += result.records
        self.is_warm = is_steady(times)
        self._keep_raw("warmup", 1, records)
        self.cache = cache_counters(self.sender.target)

    def measure_at(self, load: LoadPoint) -> LevelResult:
        """One load, in the way that fits it."""
        if load.rate is not None:
            return self.open_loop(load, load.rate)
        assert load.level is not None
        return self.single_stream() if load.is_single_stream else self.closed_loop(load, load.level)

    def single_stream(self) -> LevelResult:
        """C = 1: until the interval of decode tok/s is narrow enough."""
        work, load = self.workload, _ALONE
        self._flush()
        repeats: list[Repeat] = []
        speeds: list[float] = []
        records: list[RequestRecord] = []
        batch = work.single_stream_min_requests
        while True:
            result = self.sender.send(Stage.LEVEL, load, batch, 1, f"c1-{len(records)}")
            repeats.append(Repeat(result, result.wall_s, self.sender.joules))
            records += result.records
            self._keep_raw("c1", 1, records)
            if count_errors([result]):
                return self._close_level(load, repeats, result)
            speeds += [speed for record in result.records if (speed := decode_tok_s(record) or 1 / record.e2e_s)]
            left = work.single_stream_max_requests - len(records)
            interval = robust_interval(speeds)
            if left <= 0 or (interval is not None and interval.relative <= work.precision):
                return self._close_level(load, repeats)
            batch = min(left, max(1, requests_needed(speeds, work.precision) - len(speeds)), len(records))

    def closed_loop(self, load: LoadPoint, level: int) -> LevelResult:
        """C > 1: repeats over the steady window."""
        work = self.workload
        counted = max(work.min_requests, work.requests_per_slot * level)
        repeats: list[Repeat] = []
        wanted = work.repeats
        while len(repeats) < wanted:
            self._flush()
            number = len(repeats) + 1
            result = self.sender.send(Stage.LEVEL, load, level + counted, number, f"{load.slug}/r{number}")
            repeats.append(Repeat(result, result.wall_s, self.sender.joules))
            self._keep_raw(load.slug, number, result.records)
            if count_errors([result]):
                return self._close_level(load, repeats, result)
            if number == wanted == work.repeats and differ(self._speeds(load, repeats)):
                wanted += 1
        return self._close_level(load, repeats)

    def open_loop(self, load: LoadPoint, rate: float) -> LevelResult:
        """Requests by schedule, whether or not earlier ones have ended."""
        work = self.workload
        requests = max(work.min_requests, round(rate * work.rate_seconds))
        our_rate = rate * self.time_scale
        repeats: list[Repeat] = []
        for number in range(1, work.repeats + 1):
            self._flush()
            # Not of the launch's seed: launches shall differ by the server alone.
            random = seeded(work.seed, f"{load.slug}/{number}", "arrivals")
            due = arrival_instants(our_rate, requests, work.arrivals, random)
            result = self.sender.send(Stage.LEVEL, load, len(due), number, f"{load.slug}/r{number}", due)
            repeats.append(Repeat(result, window_seconds(our_rate, requests), self.sender.joules))
            self._keep_raw(load.slug, number, result.records)
            if count_errors([result]):
                return self._close_level(load, repeats, result)
        return self._close_level(load, repeats)

    # -- parts -------------------------------------------------------------------------------------------------------

    def _speeds(self, load: LoadPoint, repeats: Sequence[Repeat]) -> list[float]:
        found = [repeat_metrics(load, repeat, self.workload, 1.0) for repeat in repeats]
        return [metrics[Metric.OUTPUT_TOK_S] for metrics in found if Metric.OUTPUT_TOK_S in metrics]

    def _flush(self) -> None:
        if self.flush is not None:
            self.flush()

    def _keep_raw(self, label: str, repeat: int, records: Sequence[RequestRecord]) -> None:
        if self.raw_dir is None:
            return
        self.raw_dir.mkdir(parents=True, exist_ok=True)
        with gzip.open(self.raw_dir / f"requests-{label}-r{repeat}.jsonl.gz", "wt", compresslevel=1) as file:
            file.writelines(record.to_json() + "\n" for record in records)

    def _close_level(self, load: LoadPoint, repeats: Sequence[Repeat], failed: LoadResult | None = None) -> LevelResult:
        if failed is not None and (not self.keep_invalid or failed.stall):
            raise self._failure(failed, Stage.LEVEL, load)
        result = level_result(
            load,
            repeats,
            self.workload,
            time_scale=self.time_scale,
            exact_input=self.sender.exact_input,
            cache_counted=self._cache_share(),
            extra_warnings=self._noticed(load, repeats),
        )
        self.levels.append(result)
        if self.on_level is not None:
            self.on_level(result)
        return result

    def _noticed(self, load: LoadPoint, repeats: Sequence[Repeat]) -> list[WarningCode]:
        windows = [window for repeat in repeats if (window := counted_window(load, repeat)) is not None]
        noticed = {
            WarningCode.DATASET_REPEATED: self.prompts.repeated,
            WarningCode.NOT_WARM: not self.is_warm and not self.levels,  # later levels were warmed by the first
            WarningCode.COMPILED_MEANWHILE: self.compiled is not None
            and any(self.compiled(window.start, window.end) for window in windows),
        }
        return [warning for warning, holds in noticed.items() if holds]

    def _cache_share(self) -> float | None:
        """Share of prompt tokens that the server took from its cache since this was last asked, by its own counters."""
        now, before = cache_counters(self.sender.target), self.cache
        self.cache = now
        return now.share_since(before) if now and before else None

    def _refuse_failures(self, result: LoadResult, stage: Stage, load: LoadPoint) -> None:
        if count_errors([result]):
            raise self._failure(result, stage, load)

    def _failure(self, result: LoadResult, stage: Stage, load: LoadPoint) -> MeasurementFailed:
        return failure_of(result, stage, load, self.sender.target, self.levels)


def measure(
    base_url: str,
    model: str,
    workload: Workload,
    *,
    seed: int,
    time_scale: float = 1.0,
    flush: Callable[[], None] | None = None,
    on_progress: Callable[[LevelProgress], None] | None = None,
    on_level: Callable[[LevelResult], None] | None = None,
    should_abort: Callable[[], bool] | None = None,
    is_enough: Callable[[Sequence[LevelResult]], bool] | None = None,
    raw_dir: Path | None = None,
    keep_invalid: bool = False,
    headers: tuple[tuple[str, str], ...] = (),
    energy: Joules | None = None,
    compiled: Callable[[float, float], bool] | None = None,
) -> tuple[LevelResult, ...]:
    """Measure a running server at every level of a workload. Blocks; load runs in processes of its own.

    Args:
        base_url: `http://host:port`, with or without `/v1`.
        model: name that the server knows the model by; a local folder also gives the tokenizer.
        workload: what to send.
        seed: differs per launch, so that no two launches see the same prompts.
        time_scale: the server's seconds per second of ours; results are in the server's seconds.
        flush: empties the server's prefix cache; called before each run, while nothing is in flight.
        on_progress: called about twice a second from this thread.
        on_level: called with each level once it is measured.
        should_abort: asked about twenty times a second; True ends the measurement.
        is_enough: asked before each load whether what was measured so far suffices; True leaves out the rest.
        raw_dir: gets one `requests-<level>-r<repeat>.jsonl.gz` per run: a RequestRecord a line.
        keep_invalid: give back levels with failed requests (`valid` is False, no rows) and go on; else raise.
        headers: extra request headers, such as Authorization.
        energy: meter of the server's GPUs; None gives no tokens per joule.
        compiled: whether the server said that it compiled something between two instants, in monotonic seconds.

    Returns:
        One result per level, then one per open-loop rate, as far as `is_enough` let it come; without `keep_invalid` all
        are valid.

    Raises:
        MeasurementFailed: dead server, stalled stream, failed or short requests, or `should_abort`.
        UserError: a tokenizer or data set cannot be read.
        UsageError: the URL is none.
    """
    vocabulary = Vocabulary.load(workload.tokenizer) if workload.tokenizer else Vocabulary.guess(model)
    with LoadPool() as pool:
        prompts = Prompts(workload, seed, vocabulary)
        sender = Sender(
            target=Target.parse(base_url, headers),
            workload=workload,
            prompts=prompts,
            pool=pool,
            time_scale=time_scale,
            on_progress=on_progress,
            should_abort=should_abort,
            energy=energy,
        )
        measurer = _Measurer(
            sender=sender,
            workload=workload,
            vocabulary=vocabulary,
            prompts=prompts,
            time_scale=time_scale,
            flush=flush,
            on_level=on_level,
            raw_dir=raw_dir,
            keep_invalid=keep_invalid,
            compiled=compiled,
        )
        measurer.warm_up(measurer.settle(model))
        for load in workload.loads:
            if is_enough is not None and is_enough(measurer.levels):
                break
            measurer.measure_at(load)
        return tuple(measurer.levels)
