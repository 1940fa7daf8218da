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
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path

from tuner.domain.load import OPEN_LOOP_HEADER, LoadPoint
from tuner.domain.measurement import LevelResult, Metric
from tuner.domain.warnings import WarningCode
from tuner.domain.workload import Workload
from tuner.loadgen.arrivals import arrival_instants, window_seconds
from tuner.loadgen.ask import CacheCounters, cache_counters
from tuner.loadgen.dialect import Dialect, variants
from tuner.loadgen.job import Conversation, Job, LoadResult, Progress, TooFewConnections
from tuner.loadgen.pool import Interrupted, LoadPool
from tuner.loadgen.prompts import Prompts, seeded
from tuner.loadgen.record import RequestRecord
from tuner.loadgen.target import Target
from tuner.loadgen.vocabulary import Vocabulary
from tuner.loadgen.watch import CPU_LIMIT, FAN_OUT_SHARE
from tuner.trial.energy import Joules
from tuner.trial.measure_events import LevelProgress, MeasurementFailed, MeasurementTrouble, Stage
from tuner.trial.measure_failure import WRONG_LENGTH, failure_of
from tuner.trial.measure_level import Repeat, count_errors, counted_window, differ, level_result, repeat_metrics
from tuner.trial.measure_window import decode_tok_s
from tuner.trial.statistics import is_steady, requests_needed, robust_interval

__all__ = ["LevelProgress", "MeasurementFailed", "MeasurementTrouble", "Stage", "measure"]

_MIN_LIMIT_S = 5.0  # with a fast simulated clock, limits in real time never fall below what a busy machine may pause
_OPEN_LOOP_CONNECTIONS = 64
_ALONE = LoadPoint(level=1)
_BAD_REQUEST = (400, 413, 422)


@dataclass(slots=True)
class _Measurer:
    target: Target
    workload: Workload
    vocabulary: Vocabulary
    prompts: Prompts
    pool: LoadPool
    time_scale: float
    flush: Callable[[], None] | None
    on_progress: Callable[[LevelProgress], None] | None
    on_level: Callable[[LevelResult], None] | None
    should_abort: Callable[[], bool] | None
    raw_dir: Path | None
    keep_invalid: bool
    energy: Joules | None
    compiled: Callable[[float, float], bool] | None
    levels: list[LevelResult] = field(default_factory=list)
    dialect: Dialect | None = None
    share_per_slot: float = 0.0
    cache: CacheCounters | None = None
    is_warm: bool = True
    joules: float | None = None  # of the last run

    # -- stages ------------------------------------------------------------------------------------------------------

    def settle(self, model: str) -> list[RequestRecord]:
        """Find the first way of asking that gives a full answer."""
        worst: LoadResult | None = None
        for dialect in variants(model, self.workload.api, self.vocabulary):
            self.dialect = dialect
            result = self._run(Stage.PROBE, _ALONE, self.prompts.conversations(1, dialect, "probe"), 1)
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
            result = self._send(Stage.WARMUP, _ALONE, batch, 1, f"warmup-{len(times)}")
            self._refuse_failures(result, Stage.WARMUP, _ALONE)
            times += [record.e2e_s for record in result.records]
            records += result.records
        self.is_warm = is_steady(times)
        self._keep_raw("warmup", 1, records)
        self.cache = cache_counters(self.target)

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
            result = self._send(Stage.LEVEL, load, batch, 1, f"c1-{len(records)}")
            repeats.append(Repeat(result, result.wall_s, self.joules))
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
            result = self._send(Stage.LEVEL, load, level + counted, number, f"{load.slug}/r{number}")
            repeats.append(Repeat(result, result.wall_s, self.joules))
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
            result = self._send(Stage.LEVEL, load, len(due), number, f"{load.slug}/r{number}", due)
            repeats.append(Repeat(result, window_seconds(our_rate, requests), self.joules))
            self._keep_raw(load.slug, number, result.records)
            if count_errors([result]):
                return self._close_level(load, repeats, result)
        return self._close_level(load, repeats)

    # -- parts -------------------------------------------------------------------------------------------------------

    def _speeds(self, load: LoadPoint, repeats: Sequence[Repeat]) -> list[float]:
        found = [repeat_metrics(load, repeat, self.workload, 1.0) for repeat in repeats]
        return [metrics[Metric.OUTPUT_TOK_S] for metrics in found if Metric.OUTPUT_TOK_S in metrics]

    def _send(
        self, stage: Stage, load: LoadPoint, requests: int, repeat: int, part: str, due: tuple[float, ...] = ()
    ) -> LoadResult:
        assert self.dialect is not None
        conversations = self.prompts.conversations(requests, self.dialect, part)
        return self._run(stage, load, conversations[: len(due)] if due else conversations, repeat, due)

    def _run(
        self,
        stage: Stage,
        load: LoadPoint,
        conversations: Sequence[Conversation],
        repeat: int,
        due: tuple[float, ...] = (),
    ) -> LoadResult:
        assert self.dialect is not None
        slots = load.level or min(_OPEN_LOOP_CONNECTIONS, len(due))
        job = Job(
            target=self._by_schedule if due else self.target,
            path=self.dialect.path,
            slots=slots,
            conversations=tuple(conversations),
            due_s=due,
            stream_limit_s=self._limit(self.workload.request_timeout_s),
            stall_limit_s=self._limit(min(self.workload.stall_timeout_s, self.workload.request_timeout_s)),
        )

        def tell(progress: Progress) -> None:
            if self.on_progress is not None:
                self.on_progress(
                    LevelProgress(
                        stage=stage,
                        load=load,
                        repeat=repeat,
                        done=progress.done,
                        total=job.requests,
                        in_flight=progress.in_flight,
                        pieces=progress.pieces,
                        elapsed_s=progress.elapsed_s * self.time_scale,
                    )
                )

        most = max(1, len(os.sched_getaffinity(0)) - 1)
        processes = min(most, max(1, ceil(self.share_per_slot * slots / FAN_OUT_SHARE)))
        before = self._joules_now()
        try:
            result = self.pool.run(job, processes=processes, on_progress=tell, should_stop=self.should_abort)
        except ConnectionError as error:
            raise self._unconnected(error, stage, load) from error
        except Interrupted:
            raise MeasurementFailed(
                MeasurementTrouble.ABORTED, stage, "the measurement was stopped", load=load, levels=self.levels
            ) from None
        after = self._joules_now()
        self.joules = None if before is None or after is None else after - before
        self.share_per_slot = result.cpu_share * result.processes / slots
        if result.cpu_share > CPU_LIMIT and result.processes < most and stage is Stage.LEVEL and not result.stall:
            fresh = self.prompts.conversations(len(job.conversations), self.dialect, f"{load.slug}/again/{repeat}")
            return self._run(stage, load, fresh[: len(due)] if due else fresh, repeat, due)
        return result

    @property
    def _by_schedule(self) -> Target:
        """The server, told that requests are no reactions to its answers where it cannot know by its own clock."""
        if self.time_scale == 1:
            return self.target
        return replace(self.target, headers=(*self.target.headers, (OPEN_LOOP_HEADER, "1")))

    def _limit(self, seconds: float) -> float:
        return seconds if self.time_scale == 1 else max(_MIN_LIMIT_S, seconds / self.time_scale)

    def _joules_now(self) -> float | None:
        return None if self.energy is None else self.energy()

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
        assert self.dialect is not None
        if failed is not None and (not self.keep_invalid or failed.stall):
            raise self._failure(failed, Stage.LEVEL, load)
        result = level_result(
            load,
            repeats,
            self.workload,
            time_scale=self.time_scale,
            exact_input=self.dialect.exact_input,
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
        now, before = cache_counters(self.target), self.cache
        self.cache = now
        return now.share_since(before) if now and before else None

    def _refuse_failures(self, result: LoadResult, stage: Stage, load: LoadPoint) -> None:
        if count_errors([result]):
            raise self._failure(result, stage, load)

    def _failure(self, result: LoadResult, stage: Stage, load: LoadPoint) -> MeasurementFailed:
        return failure_of(result, stage, load, self.target, self.levels)

    def _unconnected(self, error: ConnectionError, stage: Stage, load: LoadPoint) -> MeasurementFailed:
        """A server that takes some of the connections lives; one that takes none does not."""
        where = f"the server at {self.target.authority}"
        if isinstance(error, TooFewConnections):
            kind, message = MeasurementTrouble.REQUESTS_FAILED, f"{where} admits fewer connections than asked: {error}"
        else:
            kind, message = MeasurementTrouble.DEAD_SERVER, f"{where} does not take connections: {error}"
        return MeasurementFailed(kind, stage, message, load=load, levels=self.levels)


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
        measurer = _Measurer(
            target=Target.parse(base_url, headers),
            workload=workload,
            vocabulary=vocabulary,
            prompts=Prompts(workload, seed, vocabulary),
            pool=pool,
            time_scale=time_scale,
            flush=flush,
            on_progress=on_progress,
            on_level=on_level,
            should_abort=should_abort,
            raw_dir=raw_dir,
            keep_invalid=keep_invalid,
            energy=energy,
            compiled=compiled,
        )
        measurer.warm_up(measurer.settle(model))
        for load in workload.loads:
            if is_enough is not None and is_enough(measurer.levels):
                break
            measurer.measure_at(load)
        return tuple(measurer.levels)
