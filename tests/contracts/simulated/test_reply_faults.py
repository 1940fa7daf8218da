"""Replies of the simulated engine that are not what was asked."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from support.simulated import PATIENCE_S, SPEEDY, Server, started


def _raw_stream(server: Server, tokens: int = 40) -> tuple[int, str]:
    body = {"model": "m", "prompt": "x y z", "max_tokens": tokens, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}  # fmt: skip
    answer = httpx.post(server.url + "/v1/completions", json=body, timeout=PATIENCE_S, trust_env=False)
    return answer.status_code, answer.content.decode(errors="replace")


def _words(text: str) -> str:
    events = [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
    return "".join(choice["text"] for event in events for choice in event.get("choices", []))


def test_replies_that_are_not_what_was_asked(server: Server, tmp_path: Path) -> None:
    """One process: the faults of a request are told apart by how many came before (`skip`), last kind first."""
    _status, right = _raw_stream(server)
    seen: dict[str, tuple[int, str]] = {}
    for fault in ("error-200", "sse-error", "garbage", "wrong-tokens", "short", "empty-first", "keep-alive",
                  "bundle:tokens=8", "no-usage", "reject:status=429"):  # fmt: skip
        with started(tmp_path, *SPEEDY, "--fault", f"{fault}") as odd:
            seen[fault.split(":")[0]] = _raw_stream(odd)
    assert seen["reject"][0] == 429
    assert seen["error-200"][0] == 200
    assert json.loads(seen["error-200"][1])["error"]
    assert '"error"' in seen["sse-error"][1]
    assert "data: {" not in seen["garbage"][1].split("\n\n")[0]
    assert _words(seen["wrong-tokens"][1]) != _words(right)
    assert len(_words(seen["short"][1]).split()) == 20
    assert '"completion_tokens": 20' in seen["short"][1]
    assert [json.loads(line[6:])["choices"][0]["text"] for line in seen["empty-first"][1].split("\n\n")[:3]] == [""] * 3
    assert _words(seen["empty-first"][1]) == _words(seen["keep-alive"][1]) == _words(seen["bundle"][1]) == _words(right)
    assert ": keep-alive" in seen["keep-alive"][1]
    assert seen["bundle"][1].count("data: {") < right.count("data: {")
    assert "usage" not in seen["no-usage"][1]


def test_a_reply_that_closes_half_way(tmp_path: Path) -> None:
    with started(tmp_path, *SPEEDY, "--fault", "close") as rude, pytest.raises(httpx.HTTPError):
        _raw_stream(rude)
