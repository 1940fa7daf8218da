"""Questions outside the timed part: models and cache counters."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tuner.loadgen.ask import CacheCounters, cache_counters, served_models, unreachable
from tuner.loadgen.target import Target

VLLM = """# HELP vllm:prefix_cache_queries_total tokens asked
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1.5e+03
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 500.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 200.0
"""
SGLANG = 'sglang:prompt_tokens_total{model_name="m"} 100.0\nsglang:cached_tokens_total{cache_source="device"} 25.0\n'


@pytest.fixture
def pages() -> Iterator[tuple[Target, dict[str, str]]]:
    """A server of these pages; every other one is missing."""
    texts: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = texts.get(self.path)
            self.send_response(404 if text is None else 200)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()  # looks for its end so often
    yield Target.parse(f"http://127.0.0.1:{server.server_port}"), texts
    server.shutdown()
    server.server_close()


def test_models_are_listed_and_anything_else_is_no_answer(pages: tuple[Target, dict[str, str]]) -> None:
    target, texts = pages
    assert served_models(target) == ()
    texts["/v1/models"] = '{"data": [{"id": "a"}, {"id": "b"}]}'
    assert served_models(target) == ("a", "b")
    texts["/v1/models"] = "<html>"
    assert served_models(target) == ()


@pytest.mark.parametrize(("text", "expected"), [(VLLM, CacheCounters(200, 2000)), (SGLANG, CacheCounters(25, 100))])
def test_cache_counters_of_both_engines(
    pages: tuple[Target, dict[str, str]], text: str, expected: CacheCounters
) -> None:
    target, texts = pages
    texts["/metrics"] = text
    assert cache_counters(target) == expected


def test_a_server_without_counters_says_nothing(pages: tuple[Target, dict[str, str]]) -> None:
    target, texts = pages
    assert cache_counters(target) is None
    texts["/metrics"] = "process_cpu_seconds_total 3\n"
    assert cache_counters(target) is None


def test_nothing_listening_is_no_answer_either() -> None:
    assert served_models(Target.parse("http://127.0.0.1:9")) == ()


def test_the_share_is_of_what_was_asked_since() -> None:
    before = CacheCounters(100, 1000)
    assert CacheCounters(150, 2000).share_since(before) == pytest.approx(0.05)
    assert before.share_since(before) is None


def test_a_closed_port_is_told_apart_from_a_server_that_says_nothing() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert unreachable(Target.parse(address)) == "Connection refused"  # bound, but nobody listens
        listening.listen()
        assert unreachable(Target.parse(address)) is None
