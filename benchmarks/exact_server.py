"""A server that keeps an exact schedule and knows how well it kept it.

    python -m benchmarks.exact_server --port 8000 --ttft-ms 50 --itl-ms 10 --log schedule.jsonl

OpenAI-compatible streaming completions and chat on 127.0.0.1. Token k of a request is due `ttft + k · itl` after the
request was read; when it was really written goes to the log, one line per request, at the end of the process or on
`POST /log` (which also empties it): `{"c", "due_ttft_ms", "ttft_ms", "stamps_ms", "read_at"}` with times in ms after
the request was read. A client's error is what it reports minus what stands here.

Written for the least work per token: bytes are prepared beforehand and go out by one system call each.
"""

import argparse
import asyncio
import json
import socket
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import uvloop

_WORD = " tok"
_GRAIN_S = 0.0005


def chunked(payload: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(payload), payload)


def event(**fields: object) -> bytes:
    """One server-sent event as one HTTP chunk."""
    return chunked(b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n")


class Schedule:
    """What every stream follows, and the log of how it went.

    Args:
        ttft_s: from request to first token.
        itl_s: between tokens.
        tokens: most tokens per answer.
    """

    def __init__(self, ttft_s: float, itl_s: float, tokens: int) -> None:
        self.ttft_s, self.itl_s, self.tokens = ttft_s, itl_s, tokens
        self.log: list[dict[str, object]] = []
        self._due: list[tuple[float, int, Stream]] = []
        self._numbers = count()

    def tokens_asked(self, body: dict[str, object]) -> int:
        """Answer length: what the request asks for, bounded."""
        asked = body.get("max_tokens") or body.get("max_completion_tokens") or self.tokens
        return min(int(str(asked)), self.tokens)


class Stream:
    """One answer being given."""

    __slots__ = ("body", "next_at", "read_at", "sent", "sock", "stamps", "total", "usage")

    def __init__(
        self, sock: socket.socket, read_at: float, total: int, *, chat: bool, usage: bytes, ttft: float
    ) -> None:
        self.sock, self.read_at, self.total, self.usage = sock, read_at, total, usage
        self.body = _CHAT_TOKEN if chat else _TEXT_TOKEN
        self.next_at = read_at + ttft
        self.sent = 0
        self.stamps: list[float] = []
