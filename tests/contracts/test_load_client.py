"""What `measure` promises against servers that behave and servers that do not: real sockets, real load processes."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.scripted_server import (
    CLOSE,
    CUT,
    DONE,
    END,
    HANG,
    HEAD,
    Script,
    Step,
    event,
    good,
    piece,
    plain,
    serving,
    token,
    usage,
)

from tuner.domain.measurement import LevelResult, Metric, SpreadKind
from tuner.domain.warnings import WarningCode
from tuner.domain.workload import Workload
from tuner.errors import UserError
from tuner.loadgen.record import RequestRecord
from tuner.trial.protocol import LevelProgress, MeasurementFailed, MeasurementTrouble, Stage, measure

SMALL: dict[str, Any] = {
    "input_tokens": 4,
    "output_tokens": 4,
    "levels": (1, 4),
    "warmup_requests": 2,
    "single_stream_min_requests": 2,
    "single_stream_max_requests": 3,
    "repeats": 1,
    "min_requests": 4,
    "request_timeout_s": 5.0,
}


def work(**changes: Any) -> Workload:
    return Workload.model_validate(SMALL | changes)


def wait_for(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.05)


def run(script: Script, **changes: Any) -> tuple[LevelResult, ...]:
    with serving(script) as server:
        return measure(server.url, "m", work(**changes), seed=1)


def failure(script: Script, **changes: Any) -> MeasurementFailed:
    with pytest.raises(MeasurementFailed) as caught:
        run(script, **changes)
    return caught.value


def once_warm(script: Script, after: int = 2) -> Script:
    """Answers well at first, then by the script."""

    def answer(body: dict[str, Any], number: int) -> Iterable[Step]:
        return good(body, number) if number < after else script(body, number)

    return answer


class TestAGoodServer:
    def test_every_level_is_valid_and_has_its_metrics_with_spread_and_sample_size(self) -> None:
        one, four = run(good)
        assert (one.level, four.level) == (1, 4)
        assert one.valid
        assert four.valid
        speed = next(m for m in one.measurements if m.metric is Metric.DECODE_TOK_S)
        assert speed.spread_kind is SpreadKind.WITHIN_LAUNCH
        assert speed.low is not None
        assert speed.high is not None
        assert speed.low <= speed.center <= speed.high
        assert speed.samples == len(speed.repeats) >= 2
        assert {m.metric for m in four.measurements} >= {Metric.OUTPUT_TOK_S, Metric.TTFT_P99_MS, Metric.ITL_P99_MS}
        assert four.client_cpu_share is not None
        assert four.client_lag_ms is not None
        assert four.prompt_tokens == 4

    def test_one_run_of_a_level_has_no_interval(self) -> None:
        (four,) = run(good, levels=(4,))
        assert {m.spread_kind for m in four.measurements} == {SpreadKind.NONE}
        assert all(m.low is None for m in four.measurements)

    def test_ramp_up_comes_on_top_of_the_requests_that_count(self) -> None:
        (four,) = run(good, levels=(4,), requests_per_slot=3)
        assert four.asked == 4 + 3 * 4

    def test_connections_are_opened_beforehand_and_kept(self) -> None:
        with serving(good) as server:
            measure(server.url, "m", work(levels=(4,), requests_per_slot=5), seed=1)
            # One for each single request before, one question about metrics before and after, four for the level.
            assert server.connections <= 2 + 3 + 4

    def test_warm_up_and_measured_requests_are_written_alike(self) -> None:
        with serving(good) as server:
            measure(server.url, "m", work(), seed=1)
            shapes = {json.dumps({k: v for k, v in body.items() if k != "prompt"}) for body in server.bodies}
            prompts = {tuple(body["prompt"]) for body in server.bodies}
        assert len(shapes) == 1
        assert len(prompts) == len(server.bodies)

    def test_every_request_is_kept_raw(self, tmp_path: Path) -> None:
        with serving(good) as server:
            found = measure(server.url, "m", work(), seed=1, raw_dir=tmp_path)
        for level in found:
            with gzip.open(tmp_path / f"requests-c{level.level}-r1.jsonl.gz", "rt") as lines:
                records = [RequestRecord.from_json(line) for line in lines]
            assert len(records) == level.asked
            assert all(record.complete for record in records)

    def test_the_cache_is_flushed_before_every_run(self) -> None:
        flushed: list[float] = []
        with serving(good) as server:
            measure(server.url, "m", work(repeats=2), seed=1, flush=lambda: flushed.append(time.time()))
        assert len(flushed) in (3, 4)  # C=1, then C=4 twice, or once more where those two differ

    def test_progress_is_told(self) -> None:
        told: list[LevelProgress] = []
        with serving(lambda body, n: good(body, n, wait=0.1)) as server:
            measure(server.url, "m", work(levels=(4,), output_tokens=8), seed=1, on_progress=told.append)
        assert {p.stage for p in told} >= {Stage.LEVEL}
        assert all(0 <= p.done <= p.total for p in told)
        assert "C=4" in str(told[-1])

    def test_a_fast_simulated_clock_is_converted(self) -> None:
        with serving(lambda body, n: good(body, n, wait=0.02)) as server:
            (slow,) = measure(server.url, "m", work(levels=(1,)), seed=1)
            (fast,) = measure(server.url, "m", work(levels=(1,)), seed=1, time_scale=10)
        ttft, scaled = slow.value(Metric.TTFT_P50_MS), fast.value(Metric.TTFT_P50_MS)
        speed, slower = slow.value(Metric.DECODE_TOK_S), fast.value(Metric.DECODE_TOK_S)
        assert ttft is not None
        assert scaled is not None
        assert speed is not None
        assert slower is not None
        assert 5 < scaled / ttft < 20
        assert 5 < speed / slower < 20

    def test_proxies_in_the_environment_do_not_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        assert all(level.valid for level in run(good))

    def test_chat_is_measured_too(self) -> None:
        def chat(body: dict[str, Any], _n: int) -> Iterator[Step]:
            yield HEAD + event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
            for _ in range(body["max_tokens"]):
                yield 0.001
                yield event({"choices": [{"delta": {"reasoning_content": "hm"}}]})
            yield usage(body["max_tokens"]) + DONE + END

        (one,) = run(chat, api="chat", levels=(1,))
        assert one.valid
        assert WarningCode.INPUT_LENGTH_APPROXIMATE.value in one.warnings

    def test_several_processes_share_the_work(self) -> None:
        from tuner.loadgen.dialect import Dialect
        from tuner.loadgen.job import Job
        from tuner.loadgen.pool import LoadPool
        from tuner.loadgen.prompts import Prompts
        from tuner.loadgen.target import Target
        from tuner.loadgen.vocabulary import COMMON_IDS, Vocabulary

        dialect = Dialect("m", "completions", Vocabulary(COMMON_IDS), as_ids=True)
        with serving(good) as server, LoadPool() as pool:
            conversations = tuple(Prompts(work(), 1).conversations(12, dialect, "x"))
            job = Job(Target.parse(server.url), dialect.path, 5, conversations)
            result = pool.run(job, processes=2)
        assert result.processes == 2
        assert len(result.records) == 12
        assert all(record.complete for record in result.records)
        assert {record.slot for record in result.records} == {0, 1, 2, 3, 4}
        assert len({tuple(body["prompt"]) for body in server.bodies}) == 12


class TestOpenLoop:
    def test_latency_counts_from_the_scheduled_instant_and_load_does_not_wait_for_answers(self) -> None:
        (_, rate) = run(
            lambda body, n: good(body, n, wait=0.05),
            levels=(1,),
            rates=(50.0,),
            arrivals="constant",
            rate_seconds=0.5,
        )
        assert rate.rate == 50
        assert rate.valid
        assert rate.asked == 25
        assert rate.level > 5  # 50/s at 0.2 s each keep about ten in flight
        assert all(m.rate == 50 for m in rate.measurements)


class TestServersWithTheirOwnWays:
    def test_a_server_that_refuses_unknown_fields_is_asked_without_them(self) -> None:
        def strict(body: dict[str, Any], number: int) -> Iterable[Step]:
            if set(body) & {"ignore_eos", "min_tokens", "stream_options"}:
                return [plain("400 Bad Request", b'{"error": "unknown field"}')]
            return [*list(good(body, number))[:-2], token("", finish_reason="length"), DONE + END]

        assert all(level.valid for level in run(strict))

    def test_ignore_eos_that_is_ignored_falls_back_on_min_tokens(self) -> None:
        def ignoring(body: dict[str, Any], number: int) -> Iterable[Step]:
            if "ignore_eos" in body:
                return [HEAD, token(), usage(1), DONE + END]
            return good(body, number)

        with serving(ignoring) as server:
            found = measure(server.url, "m", work(), seed=1)
        assert all(level.valid for level in found)
        assert server.bodies[-1]["min_tokens"] == 4

    def test_a_server_that_takes_text_only_is_asked_with_text(self) -> None:
        def text_only(body: dict[str, Any], number: int) -> Iterable[Step]:
            if not isinstance(body["prompt"], str):
                return [plain("422 Unprocessable Entity")]
            return good(body, number)

        found = run(text_only, levels=(1,))
        assert found[0].valid
        assert WarningCode.INPUT_LENGTH_APPROXIMATE.value in found[0].warnings

    def test_answers_that_no_field_can_lengthen_are_short_output(self) -> None:
        error = failure(lambda _b, _n: [HEAD, token(), usage(1), DONE + END])
        assert error.kind is MeasurementTrouble.SHORT_OUTPUT
        assert "1 of 4 tokens" in str(error)

    def test_tokens_that_share_a_chunk_are_counted_and_no_gap_is_sold_as_a_token_time(self) -> None:
        def bundling(body: dict[str, Any], _n: int) -> Iterable[Step]:
            return [HEAD, token("a b"), 0.01, token("c d"), usage(body["max_tokens"]), DONE + END]

        one, four = run(bundling)
        for level in (one, four):
            assert level.valid
            assert level.value(Metric.ITL_P99_MS) is None
            assert level.value(Metric.TPOT_P50_MS) is not None
            assert WarningCode.BUNDLED_CHUNKS.value in level.warnings

    def test_comments_and_empty_first_chunks_do_not_start_the_clock(self) -> None:
        def chatty(body: dict[str, Any], _n: int) -> Iterator[Step]:
            yield HEAD + piece(b": ping\n\n") + token("")
            yield 0.1
            for _ in range(body["max_tokens"]):
                yield token()
                yield 0.001
            yield usage(body["max_tokens"]) + DONE + END

        (one,) = run(chatty, levels=(1,))
        ttft = one.value(Metric.TTFT_P50_MS)
        assert ttft is not None
        assert ttft > 90

    def test_a_connection_closed_between_requests_is_opened_again(self) -> None:
        def closing(body: dict[str, Any], number: int) -> Iterator[Step]:
            yield from good(body, number)
            yield CLOSE

        (four,) = run(closing, levels=(4,))
        assert four.valid
        assert WarningCode.RECONNECTED.value in four.warnings

    def test_a_stream_that_ends_with_its_connection_is_complete(self) -> None:
        def old_fashioned(body: dict[str, Any], _n: int) -> Iterator[Step]:
            yield b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
            for _ in range(body["max_tokens"]):
                yield 0.001
                yield b'data: {"choices": [{"text": "a"}]}\n\n'
            yield b'data: {"choices": [], "usage": {"completion_tokens": %d}}\n\n' % body["max_tokens"]
            yield CLOSE

        (one,) = run(old_fashioned, levels=(1,))
        assert one.valid

    def test_an_answer_of_one_token_has_no_decode_speed(self) -> None:
        (one,) = run(good, levels=(1,), output_tokens=1)
        assert one.valid
        assert one.value(Metric.DECODE_TOK_S) is None
        assert one.value(Metric.OUTPUT_TOK_S) is not None

    def test_more_requests_than_the_server_runs_at_once_are_noticed(self) -> None:
        def half(body: dict[str, Any], number: int) -> Iterator[Step]:
            if number >= 2 and number % 2:
                yield HEAD + piece(b": queued\n\n")
                yield 0.3
                yield from list(good(body, number))[1:]
            else:
                yield from good(body, number)

        (four,) = run(half, levels=(4,), requests_per_slot=1)
        assert WarningCode.QUEUED_AT_SERVER.value in four.warnings

    def test_prompts_from_the_servers_cache_are_noticed(self) -> None:
        def cached(body: dict[str, Any], _n: int) -> Iterator[Step]:
            yield HEAD
            for _ in range(body["max_tokens"]):
                yield token()
            found = {"prompt_tokens": 100, "completion_tokens": body["max_tokens"]}
            yield event({"choices": [], "usage": found | {"prompt_tokens_details": {"cached_tokens": 60}}}) + DONE + END

        (one,) = run(cached, levels=(1,))
        assert one.cached_share == pytest.approx(0.6)
        assert WarningCode.PREFIX_CACHE_HIT.value in one.warnings


class TestFailures:
    def test_nothing_listens_there(self) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            with pytest.raises(MeasurementFailed) as caught:
                measure(url, "m", work(), seed=1)
        assert (caught.value.kind, caught.value.stage) == (MeasurementTrouble.DEAD_SERVER, Stage.PROBE)

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (plain("429 Too Many Requests", b"slow down"), "HTTP 429: slow down"),
            (plain("503 Service Unavailable", b"full"), "HTTP 503: full"),
            (plain("307 Temporary Redirect", b"", "Location: http://other/"), "redirects to http://other/"),
            (plain("200 OK", b'{"choices": []}', "Content-Type: application/json"), "no event stream"),
            (HEAD + token() + event({"error": {"message": "out of memory"}}) + DONE + END, "out of memory"),
            (b"SPDY/9 what\r\n\r\n", "malformed HTTP"),
        ],
        ids=["429", "503", "redirect", "no-stream", "error-in-stream", "no-http"],
    )
    def test_one_failed_request_under_load_invalidates_the_level(self, answer: bytes, words: str) -> None:
        error = failure(once_warm(lambda body, n: [answer] if n == 6 else good(body, n)), levels=(4,))
        assert (error.kind, error.stage, error.level) == (MeasurementTrouble.REQUESTS_FAILED, Stage.LEVEL, 4)
        assert words in str(error)
        assert sum(error.errors.values()) == 1

    def test_short_answers_under_load_invalidate_the_level(self) -> None:
        error = failure(
            once_warm(lambda body, n: [HEAD, token(), usage(1), DONE + END] if n == 6 else good(body, n)), levels=(4,)
        )
        assert error.kind is MeasurementTrouble.SHORT_OUTPUT

    def test_answers_without_any_token_are_failures_not_zeros(self) -> None:
        error = failure(lambda _b, _n: [HEAD, usage(0), DONE + END])
        assert error.kind is MeasurementTrouble.SHORT_OUTPUT
        assert "no token" in str(error)

    def test_a_socket_that_breaks_mid_answer_says_after_how_many_tokens(self) -> None:
        error = failure(once_warm(lambda _b, _n: [HEAD, token(), token(), 0.05, CUT]), levels=(4,))
        assert error.kind is MeasurementTrouble.REQUESTS_FAILED
        assert "after 2 tokens" in str(error)

    def test_a_half_closed_socket_is_a_failed_request_and_no_dead_server(self) -> None:
        error = failure(once_warm(lambda body, n: [HEAD, token(), CLOSE] if n == 6 else good(body, n)), levels=(4,))
        assert error.kind is MeasurementTrouble.REQUESTS_FAILED
        assert "connection closed by the server after 1 tokens" in str(error)

    def test_a_server_that_dies_under_load_is_dead(self) -> None:
        with serving(once_warm(lambda body, n: good(body, n, wait=0.2))) as server:

            def dies(progress: LevelProgress) -> None:
                if progress.stage is Stage.LEVEL:
                    server.close()

            with pytest.raises(MeasurementFailed) as caught:
                measure(server.url, "m", work(levels=(4,), output_tokens=20), seed=1, on_progress=dies)
        assert caught.value.kind in (MeasurementTrouble.DEAD_SERVER, MeasurementTrouble.STALLED)

    def test_one_silent_stream_among_others_ends_the_level_in_bounded_time(self) -> None:
        def one_hangs(body: dict[str, Any], number: int) -> Iterable[Step]:
            return [HEAD, token(), HANG] if number == 4 else good(body, number, wait=0.05)

        began = time.monotonic()
        error = failure(once_warm(one_hangs), levels=(4,), request_timeout_s=1.0, requests_per_slot=50)
        assert time.monotonic() - began < 30
        assert error.kind is MeasurementTrouble.STALLED
        assert error.stall is not None
        assert (error.stall.tokens, error.stall.everyone) == (1, False)
        assert "had 1 tokens" in str(error)

    def test_silence_of_all_streams_ends_the_level_sooner(self) -> None:
        error = failure(
            once_warm(lambda _b, _n: [HEAD, token(), HANG]), levels=(4,), request_timeout_s=60.0, stall_timeout_s=0.5
        )
        assert error.kind is MeasurementTrouble.STALLED
        assert error.stall is not None
        assert error.stall.everyone
        assert error.tokens == 4

    def test_keep_alive_comments_do_not_hide_a_stall(self) -> None:
        def pinging(_b: dict[str, Any], _n: int) -> Iterator[Step]:
            yield HEAD + token()
            for _ in range(200):
                yield 0.05
                yield piece(b": ping\n\n")

        error = failure(once_warm(pinging), levels=(4,), request_timeout_s=0.8)
        assert error.kind is MeasurementTrouble.STALLED

    def test_the_caller_can_stop_it(self) -> None:
        asked = iter([False] * 5 + [True] * 10_000)
        with serving(lambda body, n: good(body, n, wait=0.3)) as server, pytest.raises(MeasurementFailed) as caught:
            measure(server.url, "m", work(output_tokens=100), seed=1, should_abort=lambda: next(asked))
        assert caught.value.kind is MeasurementTrouble.ABORTED

    def test_no_load_process_outlives_its_caller(self) -> None:
        program = (
            "import sys; from tuner.trial.protocol import measure; from tuner.domain.workload import Workload; "
            "measure(sys.argv[1], 'm', Workload(input_tokens=4, levels=(1,)), seed=1)"
        )
        with serving(lambda _b, _n: [HEAD, token(), HANG]) as server:
            caller = subprocess.Popen([sys.executable, "-c", program, server.url])
            try:
                wait_for(lambda: len(server.bodies) == 1)
                (worker,) = psutil.Process(caller.pid).children()
            finally:
                caller.kill()
                caller.wait()
            wait_for(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)

    def test_levels_measured_before_a_failure_are_handed_over(self) -> None:
        error = failure(lambda body, n: good(body, n) if n < 8 else [plain("503 Service Unavailable")])
        assert [level.level for level in error.levels] == [1]

    def test_a_bench_can_keep_the_invalid_level_and_go_on(self) -> None:
        script = once_warm(lambda body, n: [plain("503 Busy")] if n == 6 else good(body, n))
        with serving(script) as server:
            bad, fine = measure(server.url, "m", work(levels=(4, 5)), seed=1, keep_invalid=True)
        assert not bad.valid
        assert bad.measurements == ()
        assert list(bad.errors.values()) == [1]
        assert fine.valid

    def test_a_tokenizer_that_cannot_be_loaded_is_the_users_error(self) -> None:
        with pytest.raises(UserError, match=r"no tokenizer\.json"):
            run(good, tokenizer="/nowhere")
