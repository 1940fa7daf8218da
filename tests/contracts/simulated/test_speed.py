"""How fast the simulated engine is, as a client sees it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import psutil
import pytest
from support.simulated import PROMPT, Server, started

from tuner.engines.simulated.model import truth
from tuner.engines.simulated.modelfile import load_model


async def _client(port: int, bodies: list[bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while bodies:
        writer.write(bodies.pop())
        ending = b""
        while not ending.endswith(b"\r\n0\r\n\r\n"):
            data = await reader.read(1 << 16)
            assert data
            ending = (ending + data)[-64:]
    writer.close()


def _rate(server: Server, *, clients: int, requests: int, scale: float) -> float:
    """Output tokens per simulated second, as a plain client sees them."""
    bodies = []
    for number in range(requests):
        body = json.dumps(
            {"model": "m", "prompt": [number, *PROMPT[1:]], "max_tokens": 128, "ignore_eos": True, "stream": True}
        ).encode()
        bodies.append(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    async def load() -> float:
        begin = time.perf_counter()
        await asyncio.gather(*(_client(server.port, bodies) for _number in range(clients)))
        return time.perf_counter() - begin

    return requests * 128 / (asyncio.run(load()) * scale)


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "requests", "scale"), [(1, 10, 10.0), (128, 1024, 10.0)])
def test_a_client_measures_the_model_s_speed(tmp_path: Path, clients: int, requests: int, scale: float) -> None:
    """Within 1 %: the best of some tries, since a busy machine can only slow a client down."""
    expected = truth(load_model("sm120"), "sglang", {}, levels=[clients]).rates[clients]
    with started(tmp_path, "--time-scale", str(scale), "--noise-scale", "0") as running:
        errors = []
        for _attempt in range(5):
            errors.append(_rate(running, clients=clients, requests=requests, scale=scale) / expected - 1)
            if abs(errors[-1]) < 0.01:
                return
    told = f"relative errors {[f'{error:+.4f}' for error in errors]}"
    if os.getloadavg()[0] > (os.cpu_count() or 1):
        pytest.skip(f"the machine is busy with other work: {told}")
    pytest.fail(told)


def test_128_streams_are_cheap(tmp_path: Path) -> None:
    with started(tmp_path, "--time-scale", "10", "--noise-scale", "0") as running:
        process = psutil.Process(running.process.pid)
        before = sum(process.cpu_times()[:2])
        _rate(running, clients=128, requests=256, scale=10.0)
        spent = sum(process.cpu_times()[:2]) - before
    assert spent / (256 * 128) < 100e-6  # seconds of CPU per token
