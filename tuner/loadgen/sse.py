"""Stamped body bytes → RequestRecord. Runs after the timed part.

Event streams are read by the rules of the HTML standard (section "Server-sent events", event stream interpretation):
lines end in LF, CRLF or CR; a line that starts with a colon is a comment; a blank line ends an event. Pieces of a body
follow TCP's whims, so one event may span pieces and one piece may hold several events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tuner.domain.values import counted
from tuner.loadgen.record import CountedBy, RequestRecord, Trouble
from tuner.loadgen.wire import Exchange, Piece

_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "text")
_ERROR_TEXT_LIMIT = 300


def events(pieces: list[Piece]) -> Iterator[tuple[float, bytes]]:
    """The data of each event with the time at which its last byte arrived."""
    rest = b""
    data: list[bytes] = []
    for at, piece in pieces:
        rest += piece
        if rest.endswith(b"\r"):
            continue  # a CR at the end may be half of a CRLF: decide when the next piece is here
        *lines, rest = rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield at, b"\n".join(data)
                data = []
    if data or rest.startswith(b"data:"):
        # Some servers end the stream without the blank line that the standard asks for.
        if rest.startswith(b"data:"):
            data.append(rest.rstrip(b"\r")[5:].removeprefix(b" "))
        yield pieces[-1][0], b"\n".join(data)


def carries_token(piece: bytes) -> bool:
    """A cheap guess, for the stall watch, whether bytes are more than a keep-alive comment or a bare error."""
    return b"data:" in piece and b"choices" in piece


@dataclass(slots=True)
class _Stream:
    """What a stream said, event by event."""

    stamps: list[float] = field(default_factory=list)
    texts: list[bool] = field(default_factory=list)
    running_count: list[int] = field(default_factory=list)
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    done: bool = False
    error: str | None = None
    malformed: str | None = None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _error_text(error: Any) -> str:
    if isinstance(error, dict):
        return str(error.get("message") or json.dumps(error))[:_ERROR_TEXT_LIMIT]
    return str(error)[:_ERROR_TEXT_LIMIT]


def _read_usage(stream: _Stream, usage: Any) -> int | None:
    if not isinstance(usage, dict):
        return None
    tokens = _count(usage.get("completion_tokens"))
    if tokens is not None:
        stream.completion_tokens = tokens
    stream.prompt_tokens = _count(usage.get("prompt_tokens")) or stream.prompt_tokens
    details = usage.get("prompt_tokens_details")
    if isinstance(details, dict):
        cached = _count(details.get("cached_tokens"))
        stream.cached_tokens = cached if cached is not None else stream.cached_tokens
    return tokens


def _has_text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    places = (choice, delta) if isinstance(delta, dict) else (choice,)
    return any(place.get(name) for place in places for name in _TEXT_FIELDS) or (
        isinstance(delta, dict) and bool(delta.get("tool_calls"))
    )


def _interpret(pieces: list[Piece]) -> _Stream:
    stream = _Stream()
    for at, data in events(pieces):
        if data.strip() == b"[DONE]":
            stream.done = True
            continue
        try:
            message = json.loads(data)
        except ValueError:
            stream.malformed = f"not JSON: {data[:80]!r}"
            continue
        if not isinstance(message, dict):
            stream.malformed = f"not an object: {data[:80]!r}"
            continue
        if message.get("error"):
            stream.error = _error_text(message["error"])
            continue
        # Usage first: the chunk that holds it often has an empty list of choices.
        running = _read_usage(stream, message.get("usage"))
        choices = message.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            continue
        choice = choices[0]
        stream.stamps.append(at)
        stream.texts.append(_has_text(choice))
        stream.running_count.append(running if running is not None else -1)
        stream.finish_reason = choice.get("finish_reason") or stream.finish_reason
    return stream


def _deltas(counts: list[int]) -> list[int] | None:
    """Tokens per event where every event carries the running count; None where some do not."""
    if not counts or min(counts) < 0 or any(b < a for a, b in pairwise(counts)):
        return None
    return [b - a for a, b in pairwise([0, *counts])]


def _token_events(stream: _Stream, tokens: int | None) -> tuple[list[float], tuple[int, ...], bool]:
    """Which events carry tokens: their stamps, the tokens in each (empty for one each), and whether that is unknown.

    An event without text may be a real token (half a character, held back by the detokenizer) or none (the role
    announcement of a chat, a closing event). The server's token count decides between these readings.
    """
    deltas = _deltas(stream.running_count)
    if deltas is not None and tokens is not None and sum(deltas) == tokens:
        kept = [(at, n) for at, n in zip(stream.stamps, deltas, strict=True) if n]
        weights = tuple(n for _, n in kept)
        return [at for at, _ in kept], weights if any(n != 1 for n in weights) else (), False
    texts = stream.texts
    first = next((i for i, text in enumerate(texts) if text), len(texts))
    last = next((i for i in range(len(texts) - 1, -1, -1) if texts[i]), -1) + 1
    everything = range(len(texts))
    readings = (
        everything,
        everything[1:] if texts and not texts[0] else everything,
        everything[:-1] if texts and not texts[-1] else everything,
        everything[first:],
        everything[:last],
        everything[first:last],
        [i for i in everything if texts[i]],
    )
    for reading in readings:
        if len(reading) == tokens:
            return [stream.stamps[i] for i in reading], (), False
    with_text = readings[-1]
    return [stream.stamps[i] for i in with_text], (), tokens is not None and len(with_text) != tokens


def _tokens(stream: _Stream, asked: int) -> tuple[int | None, CountedBy]:
    if stream.completion_tokens is not None:
        return stream.completion_tokens, CountedBy.USAGE
    if stream.finish_reason == "length":
        return asked, CountedBy.LENGTH_CAP  # the server stopped because the cap was reached
    return None, CountedBy.CHUNKS


def _trouble(exchange: Exchange, stream: _Stream, tokens: int, asked: int) -> tuple[Trouble | None, str]:
    body = b"".join(piece for _, piece in exchange.pieces[:8])[:_ERROR_TEXT_LIMIT].decode("utf-8", "replace").strip()
    if exchange.trouble is not None:
        return exchange.trouble, f"{exchange.broken} after {tokens} of {counted(asked, 'token')}"
    if exchange.status == 0:
        return Trouble.TRANSPORT, exchange.broken or "no answer"
    if 300 <= exchange.status < 400:
        where = f" to {exchange.location}" if exchange.location else ""
        return Trouble.REDIRECT, f"HTTP {exchange.status}: the server redirects{where}; use that address"
    if exchange.status != 200:
        return Trouble.HTTP_STATUS, f"HTTP {exchange.status}: {body}"
    if stream.error is not None:
        return Trouble.SERVER_ERROR, f"error inside the stream after {counted(tokens, 'token')}: {stream.error}"
    if exchange.broken is not None and not stream.done:
        return Trouble.TRANSPORT, f"{exchange.broken} after {counted(tokens, 'token')}"
    if stream.malformed is not None:
        return Trouble.MALFORMED, f"malformed event after {counted(tokens, 'token')}: {stream.malformed}"
    if not exchange.stream and not stream.stamps:
        return Trouble.NOT_A_STREAM, f"the answer is no event stream: {body[:120]}"
    if tokens == 0 or not stream.stamps:
        return Trouble.NO_TOKENS, "the answer holds no token"
    if tokens < asked:
        return Trouble.SHORT, f"{tokens} of {counted(asked, 'token')} (finish_reason {stream.finish_reason})"
    if tokens > asked:
        return Trouble.LONG, f"{counted(tokens, 'token')}, more than the {asked} asked for"
    return None, ""


def record(exchange: Exchange, *, asked_tokens: int, turn: int = 0, slot_offset: int = 0) -> RequestRecord:
    """Read what came back in an exchange that is over.

    Args:
        exchange: the exchange.
        asked_tokens: output tokens that the request asked for.
        turn: its position in a conversation.
        slot_offset: added to the slot number, so that slots of several processes differ.
    """
    stream = _interpret(exchange.pieces) if exchange.status == 200 else _Stream()
    known, counted_by = _tokens(stream, asked_tokens)
    stamps, weights, bundled = _token_events(stream, known)
    tokens = known if known is not None else len(stamps)
    trouble, error = _trouble(exchange, stream, tokens, asked_tokens)
    if trouble is None and not stamps:
        # Every token was counted and none showed: the events without text are all there is.
        stamps, bundled = stream.stamps, len(stream.stamps) != tokens
    return RequestRecord(
        index=exchange.index,
        slot=exchange.slot + slot_offset,
        turn=turn,
        scheduled_at=exchange.scheduled_at or exchange.sent_at,
        sent_at=exchange.sent_at,
        ended_at=exchange.ended_at,
        status=exchange.status,
        asked_tokens=asked_tokens,
        output_tokens=tokens,
        counted_by=counted_by,
        prompt_tokens=stream.prompt_tokens,
        cached_tokens=stream.cached_tokens,
        finish_reason=stream.finish_reason,
        offsets_us=tuple(round((at - exchange.sent_at) * 1e6) for at in stamps),
        weights=weights,
        bundled=bundled,
        retried=exchange.retried,
        trouble=trouble,
        error=error,
    )
