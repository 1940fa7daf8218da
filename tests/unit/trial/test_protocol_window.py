"""The steady window and what is counted in it, on records whose every time is known."""

from __future__ import annotations

import pytest
from support.runs import march, request, result

from tuner.domain.load import LoadPoint
from tuner.domain.measurement import LevelResult, Metric
from tuner.domain.warnings import WarningCode
from tuner.domain.workload import LatencyLimits, Workload
from tuner.loadgen.record import RequestRecord, Trouble
from tuner.trial.measure_level import Repeat, count_errors, level_result, tokens_per_joule
from tuner.trial.measure_window import (
    Window,
    decode_tok_s,
    metrics_in,
    scheduled_rates,
    scheduled_window,
    single_stream_metrics,
    steady_window,
)

ALONE, FOUR = LoadPoint(level=1), LoadPoint(level=4)


class TestWindow:
    def test_it_opens_with_the_first_end_and_closes_when_the_first_slot_runs_dry(self) -> None:
        window = steady_window(march(4, 3))
        assert window is not None
        assert (window.start, window.end) == (pytest.approx(0.2), pytest.approx(0.6))

    def test_one_round_has_no_steady_part(self) -> None:
        assert steady_window(march(4, 1)) is None
        assert steady_window([]) is None

    def test_throughput_over_whole_cycles_is_that_of_the_schedule(self) -> None:
        records = march(4, 5)
        window = steady_window(records)
        assert window is not None
        assert metrics_in(records, window)[Metric.OUTPUT_TOK_S] == pytest.approx(4 * 11 / 0.2, rel=1e-6)

    def test_a_slow_start_and_a_long_drain_change_nothing(self) -> None:
        records = [request(slot, -1.0, ttft=1.1) for slot in range(4)] + march(4, 5)[4:]
        straggler = request(4, 0.1, ttft=0.1, itl=0.5)
        window = steady_window([*records, straggler, request(4, 5.3, itl=0.5)])
        assert window is not None
        assert window.end <= 1.01
        assert metrics_in(records, window)[Metric.TTFT_P99_MS] == pytest.approx(100)

    def test_first_requests_do_not_count_for_latency(self) -> None:
        records = [request(slot, -0.8, ttft=0.9) for slot in range(3)] + march(3, 4)[3:]
        window = steady_window(records)
        assert window is not None
        assert metrics_in(records, window)[Metric.TTFT_P99_MS] == pytest.approx(100)


class TestOpenWindow:
    def test_it_opens_when_the_first_request_has_ended_and_closes_with_the_schedule(self) -> None:
        records = [request(0, 0.1), request(1, 0.2, ttft=5.0)]
        window = scheduled_window(records, 0.0, 3.0)
        assert (window.start, window.end) == (pytest.approx(0.3), pytest.approx(3.0))

    def test_arrivals_at_an_empty_server_do_not_count(self) -> None:
        empty = [request(n, n / 10, ttft=0.01) for n in range(3)]
        loaded = [request(n, n / 10, ttft=0.2) for n in range(3, 10)]
        window = scheduled_window([*empty, *loaded], 0.0, 1.0)
        found = metrics_in([*empty, *loaded], window, whole_requests_only=False)
        assert window.start == pytest.approx(0.11)
        assert found[Metric.TTFT_P50_MS] == pytest.approx(200)

    def test_a_server_that_ends_nothing_in_time_is_looked_at_from_the_start(self) -> None:
        window = scheduled_window([request(0, 0.1, ttft=9.0)], 0.0, 3.0)
        assert (window.start, window.end) == (0.0, 3.0)


class TestRatesOfASchedule:
    """Twenty requests in ten seconds; each takes 0.2 s unless it waits."""

    LIMITS = LatencyLimits(ttft_ms=200)

    def found(self, waits: list[float], start: float = 0.2) -> dict[Metric, float]:
        records = [request(n, n / 2, ttft=0.1 + wait) for n, wait in enumerate(waits)]
        return scheduled_rates(records, Window(start, 10.0), 10.0, goodput=self.LIMITS)

    def test_a_server_that_keeps_up_is_given_the_asked_rate_exactly(self) -> None:
        found = self.found([0.0] * 20)
        assert found == {Metric.OUTPUT_TOK_S: 22.0, Metric.REQUEST_S: 2.0, Metric.GOODPUT_S: 2.0}

    def test_neither_a_slow_first_request_nor_a_slow_last_one_moves_it(self) -> None:
        assert self.found([1.0] + [0.0] * 18 + [4.0])[Metric.REQUEST_S] == 2.0

    def test_goodput_is_the_share_of_good_requests_sent_in_the_window(self) -> None:
        assert self.found([0.0] * 10 + [0.15] * 10, start=4.9)[Metric.GOODPUT_S] == 0.0
        assert self.found([0.0] * 10 + [0.15] * 10, start=0.0)[Metric.GOODPUT_S] == pytest.approx(1.0)

    def test_a_server_that_falls_behind_is_given_the_rate_at_which_requests_ended(self) -> None:
        one_a_second = [n / 2 for n in range(20)]
        found = self.found(one_a_second)
        assert found[Metric.REQUEST_S] == pytest.approx(20 / 19)
        assert found[Metric.GOODPUT_S] == 0.0

    def test_without_limits_there_is_no_goodput(self) -> None:
        assert Metric.GOODPUT_S not in scheduled_rates([request(0, 0.0)], Window(0.0, 1.0), 1.0)


class TestMetrics:
    def test_several_tokens_in_a_chunk_are_that_many_equal_gaps(self) -> None:
        record = request(0, 0.0, tokens=3, weights=(1, 2, 4), output_tokens=7)
        found = metrics_in([record], Window(-1, 1))
        assert found[Metric.ITL_P50_MS] == pytest.approx(2.5)
        assert found[Metric.OUTPUT_TOK_S] == pytest.approx(3.5)
        assert decode_tok_s(record) == pytest.approx(6 / 0.02)

    def test_bundles_of_unknown_size_give_no_gaps_but_a_mean_per_token(self) -> None:
        found = metrics_in([request(0, 0.0, tokens=5, bundled=True, output_tokens=21)], Window(-1, 1))
        assert Metric.ITL_P50_MS not in found
        assert found[Metric.TPOT_P50_MS] == pytest.approx(2)

    def test_goodput_counts_requests_that_keep_every_limit(self) -> None:
        records = [request(0, 0.0), request(1, 0.0, ttft=0.5), request(2, 0.0, itl=0.05)]
        limits = LatencyLimits(ttft_ms=200, tpot_ms=20)
        assert metrics_in(records, Window(-1, 1), goodput=limits)[Metric.GOODPUT_S] == pytest.approx(0.5)

    def test_a_stall_shows_in_the_gaps_though_not_in_their_mean(self) -> None:
        offsets = (100_000, *(100_000 + 10_000 * k for k in range(1, 50)), 1_600_000)
        found = metrics_in([request(0, 0.0, tokens=51, offsets_us=offsets)], Window(-1, 10))
        assert found[Metric.ITL_P99_MS] > 500
        assert found[Metric.TPOT_P99_MS] < 31

    def test_single_stream_speed_is_of_the_request_alone(self) -> None:
        found = single_stream_metrics(request(0, 0.0))
        assert found[Metric.DECODE_TOK_S] == pytest.approx(100)
        assert found[Metric.OUTPUT_TOK_S] == pytest.approx(11 / 0.2)


class TestLevels:
    WORK = Workload(levels=(1, 4), repeats=2)

    def test_repeats_that_agree_give_a_level_without_warnings(self) -> None:
        found = level_result(FOUR, [Repeat(result(march(4, 3)), 1.0)] * 2, self.WORK, time_scale=1.0, exact_input=True)
        assert found.valid
        assert found.warnings == ()
        speed = next(m for m in found.measurements if m.metric is Metric.OUTPUT_TOK_S)
        assert len(speed.repeats) == 2
        assert speed.samples == 24

    @pytest.mark.parametrize(
        ("more", "warning"),
        [
            ({"cpu_share": 0.95}, WarningCode.CLIENT_NEAR_LIMIT),
            ({"lag_ms": 9.0}, WarningCode.CLIENT_NEAR_LIMIT),
            ({"reconnects": 2}, WarningCode.RECONNECTED),
        ],
    )
    def test_a_client_near_its_limit_marks_the_level(self, more: dict[str, object], warning: WarningCode) -> None:
        repeats = [Repeat(result(march(4, 3), **more), 1.0)]
        found = level_result(FOUR, repeats, self.WORK, time_scale=1.0, exact_input=True)
        assert found.warnings == (warning.value,)

    def test_repeats_that_differ_mark_the_level(self) -> None:
        slow = [request(slot, n * 0.3, itl=0.02) for n in range(3) for slot in range(4)]
        repeats = [Repeat(result(march(4, 3)), 1.0), Repeat(result(slow), 1.0)]
        found = level_result(FOUR, repeats, self.WORK, time_scale=1.0, exact_input=True)
        assert WarningCode.NOT_STEADY.value in found.warnings

    def test_the_servers_own_cache_counters_count_too(self) -> None:
        repeats = [Repeat(result(march(4, 3)), 1.0)]
        found = level_result(FOUR, repeats, self.WORK, time_scale=1.0, exact_input=True, cache_counted=0.4)
        assert WarningCode.PREFIX_CACHE_HIT.value in found.warnings
        assert found.cached_share == 0.4

    @pytest.mark.parametrize(("counted", "marked"), [(512, False), (514, False), (530, True), (None, False)])
    def test_prompts_that_the_server_counts_otherwise_are_not_called_exact(
        self, counted: int | None, marked: bool
    ) -> None:
        repeats = [Repeat(result(march(4, 3, prompt_tokens=counted)), 1.0)]
        found = level_result(FOUR, repeats, self.WORK, time_scale=1.0, exact_input=True)
        assert (WarningCode.INPUT_LENGTH_APPROXIMATE.value in found.warnings) == marked

    def test_a_drift_of_single_requests_is_marked(self) -> None:
        records = [request(0, float(n), itl=0.01 * (1 + n / 50)) for n in range(10)]
        repeats = [Repeat(result(records), 1.0)]
        found = level_result(ALONE, repeats, self.WORK, time_scale=1.0, exact_input=True)
        assert WarningCode.DRIFTING.value in found.warnings

    def test_one_failed_request_leaves_no_number(self) -> None:
        bad = request(0, 0.6, trouble=Trouble.SHORT, error="3 of 11 tokens")
        repeats = [Repeat(result([*march(4, 3), bad]), 1.0)]
        found = level_result(FOUR, repeats, self.WORK, time_scale=1.0, exact_input=True)
        assert not found.valid
        assert found.measurements == ()
        assert found.errors == {"3 of 11 tokens": 1}

    def test_requests_that_we_cut_ourselves_are_no_errors(self) -> None:
        cut = request(0, 0.6, trouble=Trouble.CUT, error="another request failed")
        assert count_errors([result([cut])]) == {}


class TestEnergy:
    """Each march of 4 slots and 3 rounds gives 132 tokens."""

    WORK = Workload(levels=(1, 4), repeats=2)

    def repeat(self, joules: float | None, seconds: float = 2.0) -> Repeat:
        return Repeat(result(march(4, 3), wall_s=seconds), seconds, joules)

    def test_tokens_per_joule_have_a_value_per_repeat(self) -> None:
        repeats = [self.repeat(66.0), self.repeat(132.0)]
        found = level_result(FOUR, repeats, self.WORK, time_scale=1.0, exact_input=True)
        row = next(m for m in found.measurements if m.metric is Metric.OUTPUT_TOK_PER_JOULE)
        assert row.repeats == pytest.approx((2.0, 1.0))
        assert row.center == pytest.approx(1.5)
        assert row.samples == 24

    def test_short_runs_are_taken_together(self) -> None:
        assert tokens_per_joule([self.repeat(66.0, 0.6)] * 3) == pytest.approx([2.0])
        assert tokens_per_joule([self.repeat(66.0), self.repeat(132.0, 0.1)]) == pytest.approx([264 / 198])
        assert tokens_per_joule([self.repeat(66.0, 0.1)]) == pytest.approx([2.0])

    def test_without_energy_there_is_no_row_and_no_zero(self) -> None:
        found = level_result(FOUR, [self.repeat(None)] * 2, self.WORK, time_scale=1.0, exact_input=True)
        assert found.valid
        assert found.value(Metric.OUTPUT_TOK_PER_JOULE) is None

    def test_one_repeat_without_energy_leaves_the_level_without(self) -> None:
        assert tokens_per_joule([self.repeat(66.0), self.repeat(None)]) == []


class TestRates:
    WORK = Workload(levels=(1,), rates=(10.0,))
    RATE = LoadPoint(rate=10.0)

    def found(self, *schedules: list[RequestRecord]) -> LevelResult:
        repeats = [Repeat(result(records, in_flight_max=7), 3.0) for records in schedules]
        return level_result(self.RATE, repeats, self.WORK, time_scale=1.0, exact_input=True)

    def schedule(self, *, later: float = 0.0, every: float = 0.1) -> list[RequestRecord]:
        """Thirty requests, each of which takes so much longer than the one before it."""
        return [request(k % 8, k * every, ttft=0.1 + k * later) for k in range(30)]

    def test_rows_are_of_the_rate_and_the_level_says_how_many_requests_were_in_flight(self) -> None:
        found = self.found(self.schedule())
        assert {row.load for row in found.measurements} == {found.load} == {self.RATE}
        assert found.in_flight == 7
        assert found.warnings == ()

    def test_throughputs_that_differ_as_the_arrivals_do_are_not_unsteady(self) -> None:
        assert WarningCode.NOT_STEADY not in self.found(self.schedule(), self.schedule(every=0.09)).warnings

    def test_a_server_that_falls_behind_is_found_out(self) -> None:
        assert WarningCode.FALLING_BEHIND in self.found(self.schedule(later=0.02)).warnings
        assert WarningCode.FALLING_BEHIND not in self.found(self.schedule(later=0.002)).warnings

    def test_one_repeat_with_a_queue_at_its_end_is_no_falling_behind(self) -> None:
        assert WarningCode.FALLING_BEHIND not in self.found(self.schedule(later=0.02), self.schedule()).warnings

    def test_times_of_a_faster_clock_are_the_servers_but_the_rate_is_the_one_asked_for(self) -> None:
        repeats = [Repeat(result(self.schedule()), 3.0)]
        fast = level_result(self.RATE, repeats, self.WORK, time_scale=7.0, exact_input=True)
        assert fast.load == self.RATE
        assert fast.value(Metric.TTFT_P50_MS) == pytest.approx(700)
