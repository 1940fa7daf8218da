"""One connection: a request goes out, stamped bytes come in.

This is the code that runs once per chunk during a measurement, so it does the least that can be done: take the time,
let the C parser strip HTTP framing, keep the piece. What the pieces say is read after the timed part (`sse.py`).

Times are `time.perf_counter()` seconds: the monotonic clock of the machine, common to all its processes.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol, cast

import httptools

from tuner.loadgen.record import Trouble
from tuner.loadgen.target import Target

Piece = tuple[float, bytes]
"""Arrival time and the body bytes that arrived."""


@dataclass(slots=True)
class Exchange:
    """One request and everything that came back; filled in by the connection.

    Attributes:
        index: position of the request in its job.
        slot: the connection that carried it.
        sent_at: just before the system call that sent its first byte.
        scheduled_at: when an open loop meant to send it; equals `sent_at` in a closed loop.
        status: HTTP status, 0 before an answer.
        stream: True when the answer is declared an event stream.
        location: target of a redirect.
        pieces: stamped body bytes in order.
        ended_at: when the answer was complete or the connection broke.
        broken: what broke the exchange, None if nothing did.
        retried: True when a connection that had gone stale was replaced before any byte came back.
        trouble: set when the client itself ended the exchange (a stall, a level that was cut short).
    """

    index: int
    slot: int
    sent_at: float = 0.0
    scheduled_at: float = 0.0
    status: int = 0
    stream: bool = False
    location: str = ""
    pieces: list[Piece] = field(default_factory=list)
    ended_at: float = 0.0
    broken: str | None = None
    retried: bool = False
    trouble: Trouble | None = None


class Finished(Protocol):
    """What a connection calls when its exchange is over; it may send the next request from inside the call."""

    def __call__(self, connection: Connection, exchange: Exchange) -> None: ...


class Connection(asyncio.Protocol):
    """A kept-alive HTTP/1.1 connection that carries one exchange at a time."""

    __slots__ = (
        "_finished",
        "_headers_done",
        "_now",
        "_parser",
        "_pieces",
        "_socket",
        "_transport",
        "_until_close",
        "exchange",
        "slot",
        "used",
    )

    def __init__(self, slot: int, finished: Finished) -> None:
        self.slot = slot
        self.exchange: Exchange | None = None
        self.used = False
        self._finished = finished
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._now = 0.0
        self._reset_parser()

    def _reset_parser(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers_done = False
        self._until_close = True
        self._pieces: list[Piece] = []

    @classmethod
    async def open(cls, target: Target, slot: int, finished: Finished, tls: ssl.SSLContext | None) -> Connection:
        """Connect (and, for https, shake hands by these settings) now, so that no request pays for it.

        Raises:
            OSError: when nothing answers there.
        """
        loop = asyncio.get_running_loop()
        connection = cls(slot, finished)
        if tls is not None:
            await loop.create_connection(
                lambda: connection, target.host, target.port, ssl=tls, server_hostname=target.host
            )
            return connection
        infos = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        problem: OSError = OSError(f"{target.host} has no address")
        for family, kind, proto, _, address in infos:
            sock = socket.socket(family, kind, proto)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                await loop.sock_connect(sock, address)
            except OSError as error:
                sock.close()
                problem = error
                continue
            await loop.create_connection(lambda: connection, sock=sock)
            connection._socket = sock
            return connection
        raise problem

    @property
    def alive(self) -> bool:
        """False once the server or we closed it."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def was_open(self) -> bool:
        """True once it was connected, whatever became of it."""
        return self._transport is not None

    def send(self, request: bytes, exchange: Exchange) -> None:
        """Start an exchange.

        The request is written by a system call of our own where the socket is plain: an event loop would write it at
        the end of its round, milliseconds after the stamp when many requests start together.
        """
        assert self._transport is not None
        self.exchange = exchange
        self._pieces = exchange.pieces
        if self._socket is None:
            exchange.sent_at = perf_counter()
            self._transport.write(request)
            return
        exchange.sent_at = perf_counter()
        try:
            done = self._socket.send(request)
        except BlockingIOError:
            done = 0
        except OSError:
            return  # the loop reports the dead connection through connection_lost
        if done < len(request):
            self._transport.write(request[done:])

    def abort(self) -> None:
        """Close at once, without waiting for anything in flight."""
        self.exchange = None
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from asyncio's

    def data_received(self, data: bytes) -> None:
        self._now = perf_counter()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self.exchange is not None:
                self.exchange.trouble = Trouble.MALFORMED
            self._end(f"malformed HTTP: {error}")
            self.abort()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._now = perf_counter()
        exchange = self.exchange
        if exchange is None:
            return
        if self._headers_done and self._until_close and error is None:
            self._end(None)
            return
        reason = type(error).__name__ if error else "connection closed by the server"
        detail = f": {error}" if error and str(error) else ""
        self._end(f"{reason}{detail}")

    # -- httptools callbacks -----------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.lower()
        if key == b"content-type" and self.exchange is not None:
            self.exchange.stream = value.lower().startswith(b"text/event-stream")
        elif key == b"location" and self.exchange is not None:
            self.exchange.location = value.decode("latin-1")
        elif key in (b"content-length", b"transfer-encoding"):
            self._until_close = False

    def on_headers_complete(self) -> None:
        self._headers_done = True
        if self.exchange is not None:
            self.exchange.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._pieces.append((self._now, body))

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if 100 <= status < 200:  # an interim answer; the real one follows on the same connection
            self._headers_done = False
            return
        keep = self._parser.should_keep_alive()
        self._headers_done, self._until_close = False, True
        if not keep and self._transport is not None:
            self._transport.close()
        self._end(None)

    def _end(self, broken: str | None) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        self.exchange = None
        self.used = True
        self._pieces = []
        exchange.ended_at = self._now
        exchange.broken = broken
        self._finished(self, exchange)
