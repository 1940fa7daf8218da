"""Questions to a server that answers well, badly, late, or with something that is no answer."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from support.limits import no_more_files
from support.scripted_server import HANG, Step, plain, serving

from tuner.engines.answers import (
    Asking,
    BadAnswerError,
    StoppedError,
    TooLateError,
    WrongAnswerError,
    ask_all,
)
from tuner.errors import OwnShortage


def asking(url: str, **changes: object) -> Asking:
    usual = Asking(url, "m", tokens=3, timeout_s=20.0, at_once=4, should_stop=lambda: False)
    return replace(usual, **changes)  # type: ignore[arg-type]


def document(text: str = "abc", tokens: int = 3, **listed: object) -> bytes:
    lists = {"tokens": list(text), "token_logprobs": [-0.5] * len(text), "top_logprobs": [{c: -0.5} for c in text]}
    choice = {"index": 0, "text": text, "logprobs": lists | listed}
    return json.dumps({"choices": [choice], "usage": {"completion_tokens": tokens}}).encode()


def script(body: bytes, status: str = "200 OK") -> Any:
    return lambda _request, _number: [plain(status, body)]


def test_an_answer_has_its_tokens_their_log_probabilities_and_their_rivals() -> None:
    with serving(script(document())) as server:
        (answer,) = ask_all(asking(server.url), ["Hello"])
    assert (answer.text, answer.pieces, answer.logprobs) == ("abc", ("a", "b", "c"), (-0.5, -0.5, -0.5))
    assert answer.rivals[1] == {"b": -0.5}
    asked = server.bodies[0]
    assert (asked["temperature"], asked["ignore_eos"], asked["max_tokens"]) == (0.0, True, 3)
    assert asked["return_tokens_as_token_ids"], "tokens that are pieces of a character have the same text"


def test_of_several_failures_at_once_one_is_raised_and_none_is_printed(caplog: pytest.LogCaptureFixture) -> None:
    with serving(script(b"", "500 Internal Server Error")) as server, pytest.raises(BadAnswerError, match="500"):
        ask_all(asking(server.url, at_once=8), ["Hello"] * 8)
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_questions_that_could_not_be_sent_for_want_of_files_are_no_bad_answers() -> None:
    def slow(_request: dict[str, Any], _number: int) -> Iterable[Step]:
        yield 0.2
        yield plain("200 OK", document())

    with serving(slow) as server, no_more_files(9), pytest.raises(OwnShortage, match="Too many open files"):
        ask_all(asking(server.url, at_once=8), ["Hello"] * 8)


def test_answers_come_in_the_order_of_the_questions() -> None:
    def echo(request: dict[str, Any], number: int) -> Iterable[Step]:
        yield 0.05 * (number % 2)
        yield plain("200 OK", document(request["prompt"]))

    prompts = ["abc", "def", "ghi", "jkl", "mno"]
    with serving(echo) as server:
        assert [answer.text for answer in ask_all(asking(server.url, at_once=2), prompts)] == prompts


def test_a_server_that_cannot_number_tokens_still_gives_log_probabilities() -> None:
    def strict(request: dict[str, Any], _number: int) -> Iterable[Step]:
        refused = "return_tokens_as_token_ids" in request
        return [plain("422 Unprocessable Entity", b"{}") if refused else plain("200 OK", document())]

    with serving(strict) as server:
        (answer,) = ask_all(asking(server.url), ["Hello"])
    assert (answer.text, answer.logprobs) == ("abc", (-0.5, -0.5, -0.5))


def test_a_server_without_log_probabilities_is_asked_again_without_them() -> None:
    def choosy(request: dict[str, Any], _number: int) -> Iterable[Step]:
        body = json.dumps({"choices": [{"text": "abc"}], "usage": {"completion_tokens": 3}}).encode()
        return [plain("400 Bad Request", b"{}") if "logprobs" in request else plain("200 OK", body)]

    with serving(choosy) as server:
        (answer,) = ask_all(asking(server.url), ["Hello"])
    assert (answer.text, answer.pieces) == ("abc", ())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (document("", 0), "empty"),
        (document("ab", 2), "ended after 2 of 3 tokens"),
        (document(token_logprobs=[-0.5, float("nan"), -0.5]), "nan"),
        (document(token_logprobs=[-0.5, None, -0.5]), "None"),
    ],
    ids=["empty", "cut short", "NaN", "null"],
)
def test_an_answer_that_no_right_server_gives_is_wrong(body: bytes, words: str) -> None:
    with serving(script(body)) as server, pytest.raises(WrongAnswerError, match=words):
        ask_all(asking(server.url), ["Hello"])


def test_an_answer_may_end_by_itself_where_its_length_is_not_fixed() -> None:
    with serving(script(document("ab", 2))) as server:
        assert ask_all(asking(server.url, fixed_length=False), ["Hello"])[0].text == "ab"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("500 Internal Server Error", b"{}"),
        ("200 OK", b'{"error": {"message": "CUDA error"}}'),
        ("200 OK", b"no JSON"),
        ("200 OK", b'{"choices": [{"text": null}], "usage": {"completion_tokens": 3}}'),
        ("200 OK", b'{"choices": [{"text": "abc"}], "usage": {"completion_tokens": null}}'),
        ("200 OK", b'{"choices": [{"text": "abc", "logprobs": ["a"]}], "usage": {"completion_tokens": 3}}'),
    ],
)
def test_an_error_is_no_answer(status: str, body: bytes) -> None:
    with serving(script(body, status)) as server, pytest.raises(BadAnswerError):
        ask_all(asking(server.url), ["Hello"])


def test_a_server_that_is_gone_is_no_answer() -> None:
    with pytest.raises(BadAnswerError):
        ask_all(asking("http://127.0.0.1:9"), ["Hello"])


def test_an_answer_that_does_not_come_in_time_is_told_apart() -> None:
    with serving(lambda _request, _number: [HANG]) as server, pytest.raises(TooLateError):
        ask_all(asking(server.url, timeout_s=0.2), ["Hello"])


def test_asking_ends_soon_after_it_is_stopped() -> None:
    began = time.monotonic()
    with serving(lambda _request, _number: [HANG]) as server, pytest.raises(StoppedError):
        ask_all(asking(server.url, timeout_s=60, should_stop=lambda: time.monotonic() - began > 0.2), ["a", "b"])
    assert time.monotonic() - began < 30
