"""Replies that are not what was asked, one class for each reply fault of `faults`."""

from __future__ import annotations

import dataclasses

from tuner.engines.simulated.completions import Asked, Writer
from tuner.engines.simulated.faults import Fault
from tuner.engines.simulated.replies import DONE, Reply
from tuner.engines.simulated.tokens import Answer
from tuner.engines.simulated.wire import Connection

_ERROR = {"error": {"message": "CUDA error: unspecified launch failure", "type": "InternalServerError", "code": 500}}


class _Cut(Reply):
    """Ends half-way; what then happens is `cut`."""

    def emit(self, count: int) -> None:
        if self.produced >= self.asked.tokens:
            return
        start, self.produced = self.produced, self.produced + count
        if self.produced >= max(1, self.asked.tokens // 2):
            self.cut()
            self.produced = self.asked.tokens
        elif self.asked.stream:
            self.tokens(start, self.produced, last=False)

    def cut(self) -> None:
        """The client hears the end."""
        raise NotImplementedError


class CloseReply(_Cut):
    """The connection is reset half-way."""

    def cut(self) -> None:
        self.connection.abort()


class SseErrorReply(_Cut):
    """An error event comes half-way through a 200 answer."""

    def cut(self) -> None:
        if not self.asked.stream:
            self.connection.send_json(200, _ERROR)
            return
        self.connection.stream(
            b'data: {"error": {"message": "engine died", "type": "InternalServerError", "code": 500}}\n\n'
        )
        self.connection.stream(DONE)
        self.connection.end_stream()


class Error200Reply(Reply):
    """A 200 answer whose body is an error."""

    def begin(self) -> None:
        self.connection.send_json(200, _ERROR)

    def emit(self, count: int) -> None:
        self.produced += count


class GarbageReply(Reply):
    """Bytes that are no events, in a stream that ends as if all were well."""

    def tokens(self, start: int, end: int, *, last: bool) -> None:
        self.connection.stream(bytes((index * 37 + 0x80) & 0xFF for index in range(start, end + 24)) + b"\n\n")


class EmptyFirstReply(Reply):
    """Events without text come before the first token."""

    def begin(self) -> None:
        super().begin()
        if self.asked.stream:
            for _number in range(3):
                self.connection.stream(self.writer.chunk(0, 0, last=False, text=""))


class KeepAliveReply(Reply):
    """Comment lines stand between the events, as proxies put them there."""

    def tokens(self, start: int, end: int, *, last: bool) -> None:
        self.connection.stream(b": keep-alive\n\n")
        super().tokens(start, end, last=last)


class BundleReply(Reply):
    """Several tokens in one event."""

    size = 8

    def __init__(self, connection: Connection, asked: Asked, writer: Writer) -> None:
        super().__init__(connection, asked, writer)
        self._sent = 0

    def tokens(self, start: int, end: int, *, last: bool) -> None:
        if last or end - self._sent >= self.size:
            super().tokens(self._sent, end, last=last)
            self._sent = end


class NoUsageReply(Reply):
    """The usage is left out, whatever was asked."""

    def finish(self) -> None:
        if self.asked.stream:
            super().finish()
            return
        document = self.writer.document(self.produced)
        del document["usage"]
        self.connection.send_json(200, document)


_REPLIES: dict[str, type[Reply]] = {
    "error-200": Error200Reply,
    "sse-error": SseErrorReply,
    "garbage": GarbageReply,
    "close": CloseReply,
    "empty-first": EmptyFirstReply,
    "keep-alive": KeepAliveReply,
    "bundle": BundleReply,
    "no-usage": NoUsageReply,
}


def make_reply(connection: Connection, asked: Asked, request_id: str, faults: list[Fault]) -> Reply:
    """The reply to one request: as asked, or as the faults want it (of several kinds, the last one)."""
    kind: type[Reply] = Reply
    for fault in faults:
        if fault.name == "wrong-tokens":
            asked = dataclasses.replace(asked, answer=Answer(asked.answer.seed ^ 0xFFFF))
        elif fault.name == "short":
            asked = dataclasses.replace(asked, tokens=max(1, asked.tokens // 2))
        elif fault.name == "no-usage":
            asked = dataclasses.replace(asked, include_usage=False, usage_in_each_chunk=False)
        kind = _REPLIES.get(fault.name, kind)
    reply = kind(connection, asked, Writer(asked, request_id))
    if isinstance(reply, BundleReply):
        reply.size = int(next(fault for fault in faults if fault.name == "bundle").number("tokens"))
    return reply
