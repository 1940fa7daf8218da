"""A small OpenAI-compatible server that misbehaves on demand, in a thread of the test's own process.

A script is a function from the request's body and number to the pieces of the answer: bytes to write, seconds to wait,
or one of `CLOSE` (end the connection in order), `CUT` (reset it), `HANG` (say nothing more until the end of the test).
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

CLOSE, CUT, HANG = "close", "cut", "hang"
Step = bytes | float | str
Script = Callable[[dict[str, Any], int], Iterable[Step]]

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def piece(payload: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(payload), payload)


def event(message: object) -> bytes:
    """One server-sent event in one HTTP chunk."""
    return piece(b"data: " + json.dumps(message).encode() + b"\n\n")


def token(text: str = "a", **more: object) -> bytes:
    """The event of one token of a completion."""
    return event({"choices": [{"index": 0, "text": text, "finish_reason": None} | more]})


def usage(tokens: int, prompt: int = 4, **more: object) -> bytes:
    """The event that counts tokens; its list of choices is empty, as both engines send it."""
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": tokens} | more})


DONE = piece(b"data: [DONE]\n\n")


def good(body: dict[str, Any], _number: int, *, wait: float = 0.002) -> Iterator[Step]:
    """Every token asked for, one per event."""
    yield HEAD
    for _ in range(body["max_tokens"]):
        yield wait
        yield token()
    yield usage(body["max_tokens"], len(body.get("prompt", "")))
    yield DONE + END


def plain(status: str, body: bytes = b"{}", *headers: str) -> bytes:
    """A complete answer that is no stream."""
    lines = "".join(f"{line}\r\n" for line in headers)
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body


class ScriptedServer:
    """The running server: its address and every request body that it has seen."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self._tls = tls
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[bytes] = []
        self.connections = 0
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._ready.wait(10)

    @property
    def url(self) -> str:
        """Base address."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def close(self) -> None:
        """End it, open connections included."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        listen = asyncio.start_server(self._handle, "127.0.0.1", 0, backlog=1024, ssl=self._tls)
        server = self._loop.run_until_complete(listen)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET"):
                    writer.write(plain("404 Not Found"))
                    continue
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                self.heads.append(head)
                self.bodies.append(json.loads(await reader.readexactly(length)))
                if not await self._answer(writer, self.script(self.bodies[-1], len(self.bodies) - 1)):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client left, or the test is over
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, steps: Iterable[Step]) -> bool:
        for step in steps:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, float):
                await asyncio.sleep(step)
            elif step == CUT:
                reset = struct.pack("ii", 1, 0)  # linger on, for 0 s: closing sends a reset
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                writer.transport.abort()
                return False
            elif step == HANG:
                await asyncio.sleep(3600)
            else:
                return False
        return True


@contextmanager
def serving(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedServer]:
    """A scripted server for the length of a `with` block; over https with such settings."""
    server = ScriptedServer(script, tls)
    try:
        yield server
    finally:
        server.close()
