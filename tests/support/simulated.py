"""The simulated engine as a process of its own, and how to ask it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from support.ports import free_port

SPEEDY = ("--time-scale", "500", "--noise-scale", "0")
PATIENCE_S = 60.0
PROMPT = list(range(512))


@dataclass
class Server:
    """A running server process and its log."""

    process: subprocess.Popen[bytes]
    port: int
    log_path: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_bytes().decode(errors="replace")

    def wait_until(self, what: str) -> None:
        """Until the log says so."""
        deadline = time.monotonic() + PATIENCE_S
        while what not in self.log:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def post(self, path: str = "/v1/completions", **body: Any) -> httpx.Response:
        return httpx.post(self.url + path, json={"model": "m", **body}, timeout=PATIENCE_S, trust_env=False)

    def get(self, path: str, *, timeout: float = PATIENCE_S) -> httpx.Response:
        return httpx.get(self.url + path, timeout=timeout, trust_env=False)

    def stream(self, path: str = "/v1/completions", **body: Any) -> list[dict[str, Any]]:
        """Events of a stream, without the closing mark, whose presence is checked."""
        text = self.post(path, stream=True, **body).text
        lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
        assert lines[-1] == "[DONE]"
        return [json.loads(line) for line in lines[:-1]]


@contextmanager
def started(
    folder: Path, *argv: str, ready: str = "Uvicorn running on", env: dict[str, str] | None = None
) -> Iterator[Server]:
    """A server; `ready=""` does not wait for it to serve. Nothing of it is left afterwards."""
    port = free_port()
    log_path = folder / "server.log"
    command = [sys.executable, "-m", "tuner.engines.simulated", "--model", "m", "--port", str(port), *argv]
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stderr=log, start_new_session=True, env={**os.environ, **(env or {})})
    server = Server(process, port, log_path)
    try:
        if ready:
            server.wait_until(ready)
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def posts(server: Server, count: int) -> list[int]:
    """So many equal requests at once; their statuses."""
    body = {"model": "m", "prompt": PROMPT, "max_tokens": 64, "ignore_eos": True}
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
        answers = await asyncio.gather(*(client.post(server.url + "/v1/completions", json=body) for _n in range(count)))
    return [answer.status_code for answer in answers]
