"""Servers with ways of their own are measured all the same, or their answers refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from support.measuring import failure, run, work
from support.scripted_server import (
    CLOSE,
    DONE,
    END,
    HEAD,
    Step,
    event,
    good,
    piece,
    plain,
    serving,
    token,
    usage,
)

from tuner.domain.measurement import Metric
from tuner.domain.warnings import WarningCode
from tuner.trial.protocol import MeasurementTrouble, measure


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

    def test_a_connection_that_is_closed_just_as_it_is_used_costs_a_retry_and_no_failure(self) -> None:
        seen: list[int] = []

        def stale(body: dict[str, Any], number: int) -> Iterable[Step]:
            seen.append(number)
            return [CLOSE] if number in (8, 11) else good(body, number)

        (four,) = run(stale, levels=(4,))
        assert four.valid
        assert four.completed == four.asked
        assert len(seen) == 2 + four.asked + 2  # two before the level, and each closed one sent again
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
