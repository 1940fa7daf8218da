"""How the simulated engine crashes, hangs, leaves children and floods its log when it is told to."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest
from support.launches import eventually
from support.simulated import PATIENCE_S, PROMPT, SPEEDY, Server, posts, started


@pytest.mark.parametrize("phase", ["import", "parse", "nccl_init", "weights", "profile", "graph_capture", "warmup"])
def test_a_crash_in_each_phase_ends_the_process(tmp_path: Path, phase: str) -> None:
    with started(tmp_path, *SPEEDY, "--fault", f"crash@{phase}", ready="") as crashed:
        assert crashed.wait() in (-9, 1)
        assert "ready to roll" not in crashed.log


def test_a_crash_takes_its_exit_status_and_class_from_the_spec(tmp_path: Path) -> None:
    fault = "crash@compile:class=jit_toolchain,exit=7"
    with started(tmp_path, *SPEEDY, "--flavor", "vllm", "--fault", fault, ready="") as crashed:
        assert crashed.wait() == 7
        assert "ptxas fatal" in crashed.log


def test_the_variable_asks_for_faults_too(tmp_path: Path) -> None:
    with started(tmp_path, *SPEEDY, ready="", env={"TUNER_SIM_FAULT": "crash@weights:class=host_oom"}) as crashed:
        assert crashed.wait() == -9


def test_a_hang_in_a_phase_is_silent(tmp_path: Path) -> None:
    with started(tmp_path, *SPEEDY, "--fault", "hang@graph_capture", ready="Capturing batches") as hung:
        time.sleep(1.0)
        assert "Capturing batches" in hung.log.splitlines()[-1]
        assert hung.process.poll() is None


def test_a_noisy_hang_writes_without_progress(tmp_path: Path) -> None:
    with started(tmp_path, *SPEEDY, "--fault", "hang@graph_capture:noisy=1", ready="Capturing batches") as hung:
        assert eventually(lambda: hung.log.count("still waiting for a lock") > 2)
        assert "ready to roll" not in hung.log
        assert hung.process.poll() is None


def test_the_flashinfer_region_hangs_and_the_memory_region_crashes(tmp_path: Path) -> None:
    with started(tmp_path, *SPEEDY, "--attention-backend", "flashinfer", ready="Capturing batches") as hung:
        time.sleep(1.0)
        assert "ready to roll" not in hung.log
    with started(tmp_path, *SPEEDY, "--mem-fraction-static", "0.94", ready="") as full:
        assert full.wait() == -9
        assert "Capture cuda graph failed: CUDA out of memory" in full.log


def test_a_crash_under_load_comes_with_the_load(tmp_path: Path) -> None:
    with started(tmp_path, *SPEEDY, "--fault", "oom@load:running=8") as fragile:
        assert fragile.post(prompt=PROMPT, max_tokens=8, ignore_eos=True).is_success
        with pytest.raises(httpx.HTTPError):
            asyncio.run(posts(fragile, 16))
        assert fragile.wait() == -9
        assert "CUDA out of memory" in fragile.log


def test_health_answers_while_generation_hangs(tmp_path: Path) -> None:
    with started(tmp_path, *SPEEDY, "--fault", "hang@load:running=1") as hung:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(hung.url + "/v1/completions", json={"prompt": "a", "model": "m"}, timeout=1.0, trust_env=False)
        assert hung.get("/health").status_code == 200
        with pytest.raises(httpx.ReadTimeout):
            hung.get("/health_generate", timeout=0.5)


def test_one_stuck_stream_leaves_the_others_alone(tmp_path: Path) -> None:
    with started(tmp_path, *SPEEDY, "--fault", "hang@load:streams=one,running=4") as hung:
        assert asyncio.run(_left_waiting(hung, 8)) == 1
        assert hung.post(prompt=PROMPT, max_tokens=8, ignore_eos=True).is_success


async def _left_waiting(server: Server, count: int) -> int:
    """How many of `count` requests are never answered, once all others are: however long a busy machine takes."""
    body = {"model": "m", "prompt": PROMPT, "max_tokens": 64, "ignore_eos": True}
    async with httpx.AsyncClient(trust_env=False, timeout=None) as client:
        waiting = {asyncio.create_task(client.post(server.url + "/v1/completions", json=body)) for _n in range(count)}
        while len(waiting) > 1:
            answered, waiting = await asyncio.wait(waiting, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            assert answered, f"{len(waiting)} requests are stuck"
            assert all(task.result().is_success for task in answered)
        _late, waiting = await asyncio.wait(waiting, timeout=2.0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return len(waiting)


@pytest.mark.parametrize("fault", ["ignore-sigterm", "slow-shutdown:seconds=30"])
def test_a_server_that_does_not_heed_sigterm(tmp_path: Path, fault: str) -> None:
    with started(tmp_path, *SPEEDY, "--fault", fault) as stubborn:
        stubborn.process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            stubborn.process.wait(1.0)


def _own_children(name: str, marker: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cmdline()[:1] == [name] and process.environ().get("SIM_TEST") == marker:
                found.append(process)
    return found


@pytest.mark.parametrize(("fault", "holds_port"), [("orphan", False), ("port-child", True)])
def test_a_child_survives_in_a_session_of_its_own(tmp_path: Path, fault: str, holds_port: bool) -> None:
    marker = str(tmp_path)
    with started(tmp_path, *SPEEDY, "--fault", f"{fault}:lifetime=30", env={"SIM_TEST": marker}) as parent:
        port = parent.port
        parent.process.terminate()
        assert parent.wait() == 0
        strays = _own_children("sglang::scheduler_TP0", marker)
        try:
            assert len(strays) == 1
            assert os.getsid(strays[0].pid) == strays[0].pid != parent.process.pid
            with socket.socket() as probe:
                assert (probe.connect_ex(("127.0.0.1", port)) == 0) is holds_port
        finally:
            for stray in strays:
                stray.kill()


def test_a_late_port_opens_after_the_ready_line(tmp_path: Path) -> None:
    with started(tmp_path, "--time-scale", "100", "--fault", "bind-late:seconds=500", ready="ready to roll") as late:
        with pytest.raises(httpx.ConnectError):
            late.get("/health")
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with suppress(httpx.ConnectError):
                assert late.get("/health").is_success
                return
            time.sleep(0.05)
        pytest.fail("the port never opened")


def test_a_stolen_port(tmp_path: Path) -> None:
    with started(tmp_path, *SPEEDY, "--fault", "port-stolen", ready="") as beaten:
        assert beaten.wait() == 1
        assert "address already in use" in beaten.log


def test_logs_that_flood_that_are_huge_and_that_are_no_text(tmp_path: Path) -> None:
    faults = ("--fault", "log-flood:lines=2000", "--fault", "log-size:megabytes=8", "--fault", "log-garbage")
    with started(tmp_path, *SPEEDY, *faults) as loud:
        loud.wait_until("flood line 400")
        raw = loud.log_path.read_bytes()
    assert len(raw) > 8 << 20
    with pytest.raises(UnicodeDecodeError):
        raw.decode()
