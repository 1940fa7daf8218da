"""HTTP/1.1 on asyncio: one connection, requests in, whole or streamed answers out. Parsing is httptools'."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast

import httptools

SERVER_HEADER = b"server: tuner-simulated\r\nx-tuner-simulated: true\r\n"
_MAX_BODY = 32 << 20


@dataclass(slots=True)
class Request:
    """One HTTP request, whole."""

    method: str
    path: str
    headers: dict[bytes, bytes]
    body: bytes

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ValueError: when it is none.
        """
        return json.loads(self.body)


@dataclass(slots=True)
class _Incoming:
    url: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: list[bytes] = field(default_factory=list)
    size: int = 0


class Connection(asyncio.Protocol):
    """One client connection. Requests on it are answered in order.

    Args:
        handle: called with each request; answers through this connection, now or later.
    """

    def __init__(self, handle: Callable[[Request, Connection], None]) -> None:
        self._handle = handle
        self._parser = httptools.HttpRequestParser(self)
        self._incoming = _Incoming()
        self._queue: deque[Request] = deque()
        self._busy = False
        self._keep_alive = True
        self._transport: asyncio.Transport | None = None
        self.on_lost: Callable[[], None] | None = None

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclass of it

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_json(400, {"error": {"message": "malformed HTTP request", "type": "BadRequest", "code": 400}})
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._transport = None
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None

    # -- httptools callbacks

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._incoming = _Incoming()

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        self._incoming.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        self._incoming.headers[name.lower()] = value
        if name.lower() == b"expect" and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self._incoming.size += len(body)
        if self._incoming.size > _MAX_BODY:
            self.close()
            return
        self._incoming.body.append(body)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._keep_alive = self._parser.should_keep_alive()
        path = httptools.parse_url(self._incoming.url).path or b"/"
        request = Request(
            self._parser.get_method().decode("ascii"),
            path.decode("latin-1"),
            self._incoming.headers,
            b"".join(self._incoming.body),
        )
        if self._busy:
            self._queue.append(request)
            return
        self._busy = True
        self._handle(request, self)

    # -- answers

    @property
    def alive(self) -> bool:
        """False once the client has gone."""
        return self._transport is not None

    def write(self, data: bytes) -> None:
        """Raw bytes, as they are."""
        if self._transport is not None:
            self._transport.write(data)

    def send(self, status: int, body: bytes, content_type: str) -> None:
        """A whole answer."""
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {content_type}\r\n"
            f"content-length: {len(body)}\r\n"
        )
        self.write(head.encode("ascii") + SERVER_HEADER + self._connection_header() + b"\r\n" + body)
        self._answered()

    def send_json(self, status: int, value: object) -> None:
        """A whole JSON answer."""
        self.send(status, json.dumps(value).encode(), "application/json")

    def start_stream(self) -> None:
        """Head of a server-sent event stream."""
        self.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
            b"transfer-encoding: chunked\r\n" + SERVER_HEADER + self._connection_header() + b"\r\n"
        )

    def stream(self, data: bytes) -> None:
        """One HTTP chunk."""
        self.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self) -> None:
        """The last, empty chunk."""
        self.write(b"0\r\n\r\n")
        self._answered()

    def close(self) -> None:
        """Close after what was written has left."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, as a crashed server does."""
        if self._transport is not None:
            self._transport.abort()

    def _connection_header(self) -> bytes:
        return b"" if self._keep_alive else b"connection: close\r\n"

    def _answered(self) -> None:
        self._busy, self.on_lost = False, None
        if not self._keep_alive:
            self.close()
        elif self._queue:
            self._busy = True
            self._handle(self._queue.popleft(), self)
