"""What the simulated engine answers over real HTTP."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.simulated import PROMPT, SPEEDY, Server, started


def test_everything_is_labelled_simulated(server: Server) -> None:
    assert "NO HARDWARE IS MEASURED" in server.log
    answer = server.get("/v1/models")
    assert answer.headers["x-tuner-simulated"] == "true"
    model = answer.json()["data"][0]
    assert (model["id"], model["owned_by"], model["time_scale"]) == ("m", "tuner-simulated", 500.0)
    info = server.get("/server_info").json()
    assert (info["simulated"], info["time_scale"]) == (True, 500.0)
    assert 'simulated="true"' in server.get("/metrics").text


def test_health_and_flush(server: Server) -> None:
    assert server.get("/health").status_code == 200
    assert server.get("/health_generate").status_code == 200
    assert httpx.post(server.url + "/flush_cache", trust_env=False).is_success


def test_a_stream_and_a_whole_answer_say_the_same(server: Server) -> None:
    asked: dict[str, Any] = {"prompt": "what is the capital of nowhere", "max_tokens": 20, "ignore_eos": True}
    whole = server.post(**asked).json()
    pieces = server.stream(**asked)
    assert "".join(event["choices"][0]["text"] for event in pieces) == whole["choices"][0]["text"]
    assert whole["usage"] == {"prompt_tokens": 6, "completion_tokens": 20, "total_tokens": 26}
    assert pieces[-1]["choices"][0]["finish_reason"] == "length"


def test_answers_depend_on_the_prompt_only(server: Server, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 32, "ignore_eos": True}
    here = server.post(**asked).json()["choices"][0]["text"]
    with started(tmp_path, *SPEEDY, "--flavor", "vllm", "--kv-cache-dtype", "fp8_e4m3") as other:
        assert other.post(**asked).json()["choices"][0]["text"] == here
    with started(tmp_path, *SPEEDY, "--kv-cache-dtype", "fp4-fast") as wrong:
        assert wrong.post(**asked).json()["choices"][0]["text"] != here


def test_usage_comes_as_asked(server: Server) -> None:
    asked: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 8, "ignore_eos": True}
    assert all("usage" not in event for event in server.stream(**asked))
    last = server.stream(**asked, stream_options={"include_usage": True})[-1]
    assert (last["choices"], last["usage"]["completion_tokens"], last["usage"]["prompt_tokens"]) == ([], 8, 512)
    every = server.stream(**asked, stream_options={"continuous_usage_stats": True})
    counts = [event["usage"]["completion_tokens"] for event in every]
    assert counts == sorted(counts)
    assert counts[-1] == 8


def test_chat_streams_a_role_and_then_the_answer(server: Server) -> None:
    asked: dict[str, Any] = {
        "messages": [{"role": "user", "content": "hello there"}],
        "max_tokens": 12,
        "ignore_eos": True,
    }
    whole = server.post("/v1/chat/completions", **asked).json()
    events = server.stream("/v1/chat/completions", **asked)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(event["choices"][0]["delta"]["content"] for event in events)
    assert text == whole["choices"][0]["message"]["content"]
    assert {event["object"] for event in events} == {"chat.completion.chunk"}


def test_without_ignore_eos_an_answer_ends_by_itself(server: Server) -> None:
    choice = server.post(prompt="short story", max_tokens=2000).json()
    assert choice["choices"][0]["finish_reason"] == "stop"
    assert choice["usage"]["completion_tokens"] < 500


def test_log_probabilities_on_request(server: Server) -> None:
    found = server.post(prompt="hello", max_tokens=5, ignore_eos=True, logprobs=1).json()["choices"][0]["logprobs"]
    assert len(found["tokens"]) == len(found["token_logprobs"]) == 5
    assert max(found["token_logprobs"]) < 0


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/completions", {"prompt": ""}, 400),
        ("/v1/completions", {"prompt": [1, -1]}, 400),
        ("/v1/completions", {"prompt": "a", "max_tokens": 0}, 400),
        ("/v1/completions", {"prompt": "a", "max_tokens": 100_000}, 400),
        ("/v1/completions", {"prompt": "a", "model": "other"}, 404),
        ("/v1/chat/completions", {"messages": []}, 400),
        ("/v1/embeddings", {}, 404),
        ("/health", {}, 405),
    ],
)
def test_bad_requests_are_refused(server: Server, path: str, body: dict[str, Any], status: int) -> None:
    answer = httpx.post(server.url + path, json={"model": "m", **body}, trust_env=False)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_malformed_json_and_malformed_http_are_refused(server: Server) -> None:
    assert httpx.post(server.url + "/v1/completions", content=b"{", trust_env=False).status_code == 400
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"NONSENSE\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 400")


def test_an_api_key_is_asked_for(tmp_path: Path) -> None:
    with started(tmp_path, *SPEEDY, "--api-key", "secret") as guarded:
        assert guarded.get("/v1/models").status_code == 401
        right = httpx.get(guarded.url + "/v1/models", headers={"Authorization": "Bearer secret"}, trust_env=False)
        assert right.is_success


def test_server_info_tells_what_acts_and_why_the_rest_does_not(tmp_path: Path) -> None:
    argv = ("--enable-custom-all-reduce", "--max-num-seqs", "64", "--spec-trace-dir", "x", "--cuda-graph-max-bs", "128")
    with started(tmp_path, *SPEEDY, *argv, env={"NCCL_PROTO": "LL"}) as odd:
        info = odd.get("/server_info").json()
    assert (info["max_running_requests"], info["cuda_graph_max_bs_decode"]) == (64, 64)
    assert info["NCCL_PROTO"] == info["spec_trace_dir"] == "not used"
    assert {item["setting"] for item in info["inactive"]} == {"NCCL_PROTO", "--spec-trace-dir"}
