"""Reading streams: what counts as a token, whose count is believed, and what is an error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.loadgen.record import CountedBy, Trouble
from tuner.loadgen.sse import carries_token, events, record
from tuner.loadgen.wire import Exchange


def data(message: object) -> bytes:
    return b"data: " + json.dumps(message).encode() + b"\n\n"


def text(words: str, **more: object) -> bytes:
    return data({"choices": [{"text": words, "finish_reason": None} | more]})


def delta(**fields: object) -> bytes:
    return data({"choices": [{"delta": fields, "finish_reason": None}]})


def counted(tokens: int, **more: object) -> bytes:
    return data({"choices": [], "usage": {"completion_tokens": tokens, "prompt_tokens": 5} | more})


DONE = b"data: [DONE]\n\n"


def exchange(*pieces: bytes, status: int = 200, stream: bool = True, broken: str | None = None) -> Exchange:
    """Pieces arrive at 1.0 s, 1.1 s, … after a request sent at 0.5 s."""
    stamped = [(1 + i / 10, piece) for i, piece in enumerate(pieces)]
    return Exchange(0, 0, 0.5, 0.5, status, stream, "", stamped, 9.0, broken)


class TestEvents:
    def test_one_piece_may_hold_several_events(self) -> None:
        assert [d for _, d in events([(1.0, b"data: a\n\ndata: b\n\n")])] == [b"a", b"b"]

    def test_an_event_over_two_pieces_has_the_time_of_the_second(self) -> None:
        assert list(events([(1.0, b"data: he"), (2.0, b"llo\n\n")])) == [(2.0, b"hello")]

    def test_comments_and_other_fields_are_no_data(self) -> None:
        assert list(events([(1.0, b": ping\n\nevent: x\nid: 3\n\ndata: a\n\n")])) == [(1.0, b"a")]

    def test_lines_may_end_in_crlf_even_when_a_piece_ends_between(self) -> None:
        assert [d for _, d in events([(1.0, b"data: a\r"), (2.0, b"\n\r\ndata: b\r\n\r\n")])] == [b"a", b"b"]

    def test_a_last_event_without_its_blank_line_is_read(self) -> None:
        assert list(events([(1.0, b"data: a\n")])) == [(1.0, b"a")]
        assert list(events([(1.0, b"data: a")])) == [(1.0, b"a")]

    @given(st.lists(st.text("xyz", min_size=1, max_size=8), max_size=6), st.data())
    def test_where_pieces_are_cut_does_not_matter(self, words: list[str], choice: st.DataObject) -> None:
        body = b"".join(b"data: " + word.encode() + b"\r\n\r\n" for word in words)
        cuts = sorted(choice.draw(st.lists(st.integers(0, len(body)), max_size=8)))
        pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
        assert [d.decode() for _, d in events([(0.0, p) for p in pieces if p])] == words


class TestCounting:
    def test_usage_is_read_from_a_chunk_without_choices(self) -> None:
        found = record(exchange(text("a"), text("b"), counted(2), DONE), asked_tokens=2)
        assert found.complete
        assert (found.output_tokens, found.prompt_tokens, found.counted_by) == (2, 5, CountedBy.USAGE)

    def test_time_to_first_token_is_that_of_the_first_token(self) -> None:
        found = record(exchange(text("a"), text("b"), counted(2), DONE), asked_tokens=2)
        assert found.ttft_s == pytest.approx(0.5)
        assert found.tpot_s == pytest.approx(0.1)

    def test_a_role_announcement_is_no_token(self) -> None:
        found = record(
            exchange(delta(role="assistant", content=""), delta(content="a"), delta(content="b"), counted(2), DONE),
            asked_tokens=2,
        )
        assert found.ttft_s == pytest.approx(0.6)
        assert found.complete

    def test_an_event_without_text_is_a_token_when_the_count_says_so(self) -> None:
        found = record(exchange(text(""), text("é"), counted(2), DONE), asked_tokens=2)
        assert len(found.offsets_us) == 2
        assert found.ttft_s == pytest.approx(0.5)

    def test_a_closing_event_without_text_is_no_token(self) -> None:
        found = record(
            exchange(text("a"), text("b"), text("", finish_reason="length"), counted(2), DONE), asked_tokens=2
        )
        assert found.last_at == pytest.approx(1.1)

    def test_reasoning_counts_as_output(self) -> None:
        found = record(
            exchange(delta(reasoning_content="hm"), delta(reasoning="so"), delta(content="a"), counted(3), DONE),
            asked_tokens=3,
        )
        assert found.complete
        assert found.ttft_s == pytest.approx(0.5)

    @pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "content"])
    def test_reasoning_is_a_token_even_when_nobody_counts(self, name: str) -> None:
        found = record(
            exchange(delta(role="assistant"), delta(**{name: "hm"}), delta(**{name: "so"}), DONE), asked_tokens=2
        )
        assert (found.output_tokens, found.counted_by, found.complete) == (2, CountedBy.CHUNKS, True)
        assert found.ttft_s == pytest.approx(0.6)

    def test_bundled_tokens_are_counted_by_usage_and_marked(self) -> None:
        found = record(exchange(text("a b c"), text("d e f"), counted(6), DONE), asked_tokens=6)
        assert (found.output_tokens, found.bundled, found.complete) == (6, True, True)

    def test_running_counts_tell_how_many_tokens_each_chunk_holds(self) -> None:
        first = data({"choices": [{"text": "a b"}], "usage": {"completion_tokens": 2}})
        second = data({"choices": [{"text": "c d e"}], "usage": {"completion_tokens": 5}})
        found = record(exchange(first, second, counted(5), DONE), asked_tokens=5)
        assert (found.weights, found.bundled) == ((2, 3), False)
        assert found.tpot_s == pytest.approx(0.1 / 3)

    def test_without_usage_the_cap_that_was_reached_is_the_count(self) -> None:
        found = record(exchange(text("a b"), text("c", finish_reason="length"), DONE), asked_tokens=7)
        assert (found.output_tokens, found.counted_by, found.complete) == (7, CountedBy.LENGTH_CAP, True)

    def test_without_usage_and_cap_chunks_are_counted_and_marked(self) -> None:
        found = record(exchange(text("a"), text("b", finish_reason="stop"), DONE), asked_tokens=2)
        assert (found.output_tokens, found.counted_by) == (2, CountedBy.CHUNKS)

    def test_one_token_has_no_time_per_token(self) -> None:
        found = record(exchange(text("a"), counted(1), DONE), asked_tokens=1)
        assert found.complete
        assert found.tpot_s is None

    def test_cached_prompt_tokens_are_kept(self) -> None:
        found = record(
            exchange(text("a"), counted(1, prompt_tokens_details={"cached_tokens": 4}), DONE), asked_tokens=1
        )
        assert found.cached_tokens == 4


class TestTrouble:
    @pytest.mark.parametrize(
        ("given_exchange", "trouble", "words"),
        [
            (exchange(text("a"), counted(1), DONE), Trouble.SHORT, "1 of 3 tokens"),
            (exchange(*[text("a")] * 5, counted(5), DONE), Trouble.LONG, "5 tokens, more than the 3 asked for"),
            (exchange(counted(0), DONE), Trouble.NO_TOKENS, "no token"),
            (exchange(DONE), Trouble.NO_TOKENS, "no token"),
            (exchange(text("a"), data({"error": {"message": "CUDA died"}})), Trouble.SERVER_ERROR, "CUDA died"),
            (exchange(b"busy", status=503), Trouble.HTTP_STATUS, "HTTP 503: busy"),
            (exchange(b"slow down", status=429), Trouble.HTTP_STATUS, "HTTP 429"),
            (exchange(status=307), Trouble.REDIRECT, "redirects"),
            (exchange(text("a"), broken="connection closed"), Trouble.TRANSPORT, "after 1 token"),
            (exchange(status=0, broken="ConnectionResetError"), Trouble.TRANSPORT, "ConnectionResetError"),
            (exchange(b'{"choices": []}', stream=False), Trouble.NOT_A_STREAM, "no event stream"),
            (exchange(text("a"), b"data: {oops\n\n", counted(3), DONE), Trouble.MALFORMED, "oops"),
            (exchange(b"data: 17\n\n", DONE), Trouble.MALFORMED, "not an object"),
        ],
    )
    def test_a_request_that_did_not_give_all_tokens_says_why(
        self, given_exchange: Exchange, trouble: Trouble, words: str
    ) -> None:
        found = record(given_exchange, asked_tokens=3)
        assert found.trouble is trouble
        assert words in found.error
        assert not found.complete

    def test_a_connection_that_ends_after_done_broke_nothing(self) -> None:
        assert record(exchange(text("a"), counted(1), DONE, broken="reset"), asked_tokens=1).complete

    def test_keep_alive_comments_are_no_progress(self) -> None:
        assert not carries_token(b": keep-alive\n\n")
        assert carries_token(text("a"))
