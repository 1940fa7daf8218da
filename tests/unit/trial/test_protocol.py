"""What a measurement sends, how often, and when it has enough: with a load pool whose every time is made up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from statistics import fmean, median
from typing import Any

import pytest
from support.runs import request, result

from tuner.domain.measurement import LevelResult, Metric
from tuner.domain.warnings import WarningCode
from tuner.domain.workload import Workload
from tuner.loadgen.job import Job, LoadResult
from tuner.loadgen.pool import LoadPool
from tuner.trial import measure_sender, protocol
from tuner.trial.protocol import measure

NOBODY = "http://127.0.0.1:9"
Speeds = Callable[[int], float]
"""Seconds between tokens of the n-th request that is sent alone."""


class MadeUpPool(LoadPool):
    """Answers every job at once, as if requests had taken the times that the test says."""

    def __init__(self, alone: Speeds, together: Sequence[float] = (0.01,), cpu: Sequence[float] = (0.1,)) -> None:
        super().__init__()
        self.jobs: list[tuple[Job, int]] = []
        self._alone, self._together, self._cpu = alone, list(together), list(cpu)
        self._number = 0

    def run(self, job: Job, *, processes: int = 1, **_watching: Any) -> LoadResult:
        self.jobs.append((job, processes))
        calls = [call for conversation in job.conversations for call in conversation]
        if job.slots == 1:
            itls = [self._alone(self._number + k) for k in range(len(calls))]
            self._number += len(calls)
            ends = [0.0]
            for itl in itls:
                ends.append(ends[-1] + 0.1 + 10 * itl)
            records = [request(0, at, itl=itl) for at, itl in zip(ends, itls, strict=False)]
            return result(records, cpu_share=0.01)
        itl = self._together.pop(0) if len(self._together) > 1 else self._together[0]
        cpu = self._cpu.pop(0) if len(self._cpu) > 1 else self._cpu[0]
        period = 0.1 + 10 * itl
        records = [request(n % job.slots, n // job.slots * period, itl=itl) for n in range(len(calls))]
        return result(records, cpu_share=cpu, processes=processes)

    def sent(self, slots: int) -> list[int]:
        """Requests of each job with that many slots, in order."""
        return [job.requests for job, _ in self.jobs if job.slots == slots]


def steady(_number: int) -> float:
    return 0.01


def measured(
    monkeypatch: pytest.MonkeyPatch,
    pool: MadeUpPool,
    compiled: Callable[[float, float], bool] | None = None,
    **work: Any,
) -> tuple[LevelResult, ...]:
    monkeypatch.setattr(protocol, "LoadPool", lambda: pool)
    small = {"input_tokens": 4, "output_tokens": 11, "levels": (1,)}
    return measure(NOBODY, "m", Workload.model_validate(small | work), seed=1, compiled=compiled)


def on_cores(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr(measure_sender.os, "sched_getaffinity", lambda _pid: set(range(cores)))  # type: ignore[attr-defined]


class TestWarmUp:
    def test_it_ends_as_soon_as_the_last_four_requests_took_equally_long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pool = MadeUpPool(lambda n: [0.5, 0.3, 0.2, 0.1][n] if n < 4 else 0.01)
        (level,) = measured(monkeypatch, pool, single_stream_min_requests=5)
        # The probe, then 3 to have four at all, then one by one until four were alike: the fifth to the eighth.
        assert pool.sent(1) == [1, 3, 1, 1, 1, 1, 5]
        assert level.warnings == ()

    def test_it_is_no_longer_than_its_bound_and_says_when_it_was_cut(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pool = MadeUpPool(lambda n: 0.01 if n % 2 else 0.02)
        first, second = measured(
            monkeypatch, pool, levels=(1, 2), warmup_requests=6, single_stream_max_requests=5, precision=0.9
        )
        assert pool.sent(1) == [1, 3, 1, 1, 5]
        assert WarningCode.NOT_WARM.value in first.warnings
        assert WarningCode.NOT_WARM.value not in second.warnings


class TestWhatTheServerCompiles:
    @pytest.mark.parametrize(("at", "says"), [(0.05, [True, False]), (0.25, [True, True])])
    def test_a_level_says_so_when_it_happened_while_its_requests_counted(
        self, monkeypatch: pytest.MonkeyPatch, at: float, says: list[bool]
    ) -> None:
        """With one request in flight all count; of two slots the first ends its ramp-up after 0.2 s."""
        levels = measured(monkeypatch, MadeUpPool(steady), lambda start, end: start < at <= end, levels=(1, 2))
        assert [WarningCode.COMPILED_MEANWHILE.value in level.warnings for level in levels] == says


class TestSingleStream:
    def test_equal_speeds_need_the_least_number_of_requests(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pool = MadeUpPool(steady)
        (level,) = measured(monkeypatch, pool, single_stream_min_requests=5)
        assert level.completed == 5
        assert level.value(Metric.DECODE_TOK_S) == pytest.approx(100)

    def test_it_goes_on_until_the_interval_is_within_the_precision_and_not_much_longer(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        random = Random(2)
        noise = [random.gauss(0.01, 0.0001) for _ in range(200)]
        (level,) = measured(monkeypatch, MadeUpPool(noise.__getitem__), single_stream_max_requests=100)
        row = next(row for row in level.measurements if row.metric is Metric.DECODE_TOK_S)
        assert row.low is not None
        assert row.high is not None
        assert (row.high - row.low) / 2 <= 0.005 * row.center
        assert 8 <= len(row.repeats) <= 30  # (t · 1 % / 0.5 %)² is 16 to 18
        assert WarningCode.PRECISION_NOT_REACHED.value not in level.warnings

    def test_it_stops_at_the_bound_and_says_that_it_is_not_precise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        random = Random(3)
        noise = [random.gauss(0.01, 0.001) for _ in range(200)]
        (level,) = measured(monkeypatch, MadeUpPool(noise.__getitem__), single_stream_max_requests=12)
        assert level.completed == 12
        assert WarningCode.PRECISION_NOT_REACHED.value in level.warnings

    def test_one_hiccup_neither_moves_the_speed_nor_widens_the_interval(self, monkeypatch: pytest.MonkeyPatch) -> None:
        random = Random(4)
        noise = [random.gauss(0.01, 0.00002) for _ in range(200)]
        noise[9] = 0.05
        (level,) = measured(monkeypatch, MadeUpPool(noise.__getitem__), single_stream_min_requests=20)
        row = next(row for row in level.measurements if row.metric is Metric.DECODE_TOK_S)
        assert row.low is not None
        assert row.low < 100 < row.center * 1.001
        assert row.low > 99.5
        assert WarningCode.OUTLIERS.value in level.warnings

    def test_the_number_told_lies_within_its_interval_where_speeds_are_skewed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        random = Random(6)
        noise = [1 / random.choice([300, 300, 300, 275, 260]) for _ in range(200)]  # as seen after a cold start
        (level,) = measured(monkeypatch, MadeUpPool(noise.__getitem__), single_stream_max_requests=60)
        row = next(row for row in level.measurements if row.metric is Metric.DECODE_TOK_S)
        assert row.low is not None
        assert row.high is not None
        assert row.low < row.center < row.high < median(row.repeats)

    def test_stopping_when_the_interval_is_narrow_costs_little_of_its_coverage(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        random = Random(5)
        covered = []
        for _ in range(150):
            noise = [1 / random.gauss(100, 0.5) for _ in range(60)]
            (level,) = measured(monkeypatch, MadeUpPool(noise.__getitem__))
            row = next(row for row in level.measurements if row.metric is Metric.DECODE_TOK_S)
            assert row.low is not None
            assert row.high is not None
            covered.append(row.low <= 100 <= row.high)
        assert fmean(covered) > 0.88  # 0.92 to 0.95 in thousands of draws


class TestClosedLoop:
    def test_two_repeats_that_agree_are_enough(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pool = MadeUpPool(steady, [0.01, 0.0101])
        _, four = measured(monkeypatch, pool, levels=(1, 4))
        assert pool.sent(4) == [12, 12]  # a ramp-up request per slot, then two that count
        assert WarningCode.NOT_STEADY.value not in four.warnings

    def test_one_more_is_measured_when_they_differ_and_the_middle_one_is_told(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = MadeUpPool(steady, [0.02, 0.01, 0.0101])  # a cold first run
        _, four = measured(monkeypatch, pool, levels=(1, 4))
        assert len(pool.sent(4)) == 3
        assert four.value(Metric.OUTPUT_TOK_S) == pytest.approx(4 * 11 / 0.201, rel=0.01)
        assert WarningCode.NOT_STEADY.value in four.warnings


class TestLoadProcesses:
    def test_one_until_it_would_use_more_than_half_a_core_then_several(self, monkeypatch: pytest.MonkeyPatch) -> None:
        on_cores(monkeypatch, 8)
        pool = MadeUpPool(steady, cpu=[0.3])
        measured(monkeypatch, pool, levels=(2, 3, 16), repeats=1)
        used = {job.slots: processes for job, processes in pool.jobs}
        # 0.3 of a core for 2 connections are 0.45 for 3; 0.3 for 3 are 1.6 for 16.
        assert used == {1: 1, 2: 1, 3: 1, 16: 4}

    def test_a_run_at_the_clients_limit_is_thrown_away_and_made_again_with_more(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        on_cores(monkeypatch, 8)
        pool = MadeUpPool(steady, [0.02, 0.01], cpu=[0.95, 0.3])
        (level,) = measured(monkeypatch, pool, levels=(8,), repeats=1)
        (first, one), (again, more) = (job for job in pool.jobs if job[0].slots == 8)
        assert (one, more) == (1, 2)
        assert level.completed == again.requests
        assert level.value(Metric.OUTPUT_TOK_S) == pytest.approx(8 * 11 / 0.2)
        assert not {c.body for t in first.conversations for c in t} & {c.body for t in again.conversations for c in t}
        assert WarningCode.CLIENT_NEAR_LIMIT.value not in level.warnings

    def test_without_spare_cores_the_level_is_marked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        on_cores(monkeypatch, 2)
        pool = MadeUpPool(steady, cpu=[0.95])
        (level,) = measured(monkeypatch, pool, levels=(8,), repeats=1)
        assert len(pool.sent(8)) == 1
        assert WarningCode.CLIENT_NEAR_LIMIT.value in level.warnings


class TestArrivals:
    def due(self, monkeypatch: pytest.MonkeyPatch, **work: Any) -> list[tuple[float, ...]]:
        pool = MadeUpPool(steady)
        measured(monkeypatch, pool, **{"rates": (50.0,), "rate_seconds": 60.0} | work)
        return [job.due_s for job, _ in pool.jobs if job.due_s]

    def test_poisson_arrivals_are_as_many_as_asked_and_differ_per_repeat(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = self.due(monkeypatch, arrivals="poisson")
        assert len(first) == len(second) == 3000
        assert max(first[-1], second[-1]) < 60
        assert first != second

    def test_they_follow_the_workloads_seed_and_are_alike_in_every_launch(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        once, again = (self.due(monkeypatch, seed=1, rate_seconds=4.0) for _ in range(2))
        assert once == again != self.due(monkeypatch, seed=2, rate_seconds=4.0)

    def test_a_short_window_is_as_long_as_its_fewest_requests_take(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first, _ = self.due(monkeypatch, rates=(0.1,), rate_seconds=1.0, arrivals="constant", min_requests=3)
        assert first == pytest.approx((0, 10, 20))

    def test_constant_arrivals_are_equally_far_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = self.due(monkeypatch, arrivals="constant")
        assert first == second == pytest.approx([n / 50 for n in range(3000)])
