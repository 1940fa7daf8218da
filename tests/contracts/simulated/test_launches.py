"""How the simulated engine starts, refuses and ends."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest
from support.simulated import SPEEDY, posts, started

from tuner.engines.simulated.modelfile import load_model


@pytest.mark.parametrize(
    ("flavor", "marks"),
    [
        (
            "sglang",
            ["server_args=", "Init parallel begin", "Init parallel ends", "Load weight begin", "Load weight end",
             "KV Cache is allocated", "CUDA graph begin", "CUDA graph end", "fired up and ready to roll"],
        ),
        (
            "vllm",
            ["non-default args:", "world_size=", "vLLM is using nccl", "Starting to load model", "Model loading took",
             "Dynamo bytecode", "Capturing CUDA graphs", "Graph capturing finished", "Application startup complete"],
        ),
    ],
)  # fmt: skip
def test_a_launch_says_its_phases_in_order(tmp_path: Path, flavor: str, marks: list[str]) -> None:
    with started(tmp_path, *SPEEDY, "--flavor", flavor) as running:
        places = [running.log.index(mark) for mark in marks]
        assert places == sorted(places)
        running.process.terminate()
        assert running.wait() == 0


def test_phases_last_as_long_as_the_model_says_at_the_time_scale(tmp_path: Path) -> None:
    """Two scales: the difference of the launch times is the difference of the scaled phases, many seconds long."""
    seconds = []
    for scale in ("10", "1000"):
        begin = time.monotonic()
        with started(tmp_path, "--time-scale", scale):
            seconds.append(time.monotonic() - begin)
    phases = load_model("sm120").flavors["sglang"].phases
    assert seconds[0] - seconds[1] > 0.5 * sum(phases.values()) * (1 / 10 - 1 / 1000)


def test_nccl_speaks_when_asked_to(tmp_path: Path) -> None:
    with started(tmp_path, *SPEEDY, env={"NCCL_DEBUG": "INFO", "NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}) as running:
        assert "NCCL INFO NCCL_PROTO set by environment to LL." in running.log
        assert "Algo RING proto LL" in running.log


def test_a_taken_port_ends_the_launch(tmp_path: Path) -> None:
    for flavor in ("sglang", "vllm"):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            with started(tmp_path, *SPEEDY, "--flavor", flavor, "--port", port, ready="") as beaten:
                assert beaten.wait() == 1
                assert "[Errno 98]" in beaten.log


def test_requests_beyond_the_queue_are_refused(tmp_path: Path) -> None:
    argv = ("--max-running-requests", "1", "--max-queued-requests", "1", "--time-scale", "20")
    with started(tmp_path, *argv) as small:
        answers = asyncio.run(posts(small, 6))
    assert sorted(answers)[:2] == [200, 200]
    assert sorted(answers)[2:] == [503] * 4
