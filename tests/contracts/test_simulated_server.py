"""The simulated engine over real HTTP, as a process of its own: what it answers, how fast, and how it misbehaves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from support.ports import free_port

from tuner.engines.simulated.model import truth
from tuner.engines.simulated.modelfile import load_model

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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("simulated"), *SPEEDY) as running:
        yield running


# -- what it answers


def test_everything_is_labelled_simulated(server: Server) -> None:
    assert "NO HARDWARE IS MEASURED" in server.log
    answer = server.get("/v1/models")
    assert answer.headers["x-tuner-simulated"] == "true"
    model = answer.json()["data"][0]
    assert (model["id"], model["owned_by"], model["time_scale"]) == ("m", "tuner-simulated", 500.0)
    info = server.get("/server_info").json()
    assert (info["simulated"], info["time_scale"]) == (True, 500.0)
    assert 'simulated="true"' in server.get("/metrics").text


def test_health_and_flush(server: Server) -> None:
    assert server.get("/health").status_code == 200
    assert server.get("/health_generate").status_code == 200
    assert httpx.post(server.url + "/flush_cache", trust_env=False).is_success


def test_a_stream_and_a_whole_answer_say_the_same(server: Server) -> None:
    asked: dict[str, Any] = {"prompt": "what is the capital of nowhere", "max_tokens": 20, "ignore_eos": True}
    whole = server.post(**asked).json()
    pieces = server.stream(**asked)
    assert "".join(event["choices"][0]["text"] for event in pieces) == whole["choices"][0]["text"]
    assert whole["usage"] == {"prompt_tokens": 6, "completion_tokens": 20, "total_tokens": 26}
    assert pieces[-1]["choices"][0]["finish_reason"] == "length"


def test_answers_depend_on_the_prompt_only(server: Server, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 32, "ignore_eos": True}
    here = server.post(**asked).json()["choices"][0]["text"]
    with started(tmp_path, *SPEEDY, "--flavor", "vllm", "--kv-cache-dtype", "fp8_e4m3") as other:
        assert other.post(**asked).json()["choices"][0]["text"] == here
    with started(tmp_path, *SPEEDY, "--kv-cache-dtype", "fp4-fast") as wrong:
        assert wrong.post(**asked).json()["choices"][0]["text"] != here


def test_usage_comes_as_asked(server: Server) -> None:
    asked: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 8, "ignore_eos": True}
    assert all("usage" not in event for event in server.stream(**asked))
    last = server.stream(**asked, stream_options={"include_usage": True})[-1]
    assert (last["choices"], last["usage"]["completion_tokens"], last["usage"]["prompt_tokens"]) == ([], 8, 512)
    every = server.stream(**asked, stream_options={"continuous_usage_stats": True})
    counts = [event["usage"]["completion_tokens"] for event in every]
    assert counts == sorted(counts)
    assert counts[-1] == 8


def test_chat_streams_a_role_and_then_the_answer(server: Server) -> None:
    asked: dict[str, Any] = {
        "messages": [{"role": "user", "content": "hello there"}],
        "max_tokens": 12,
        "ignore_eos": True,
    }
    whole = server.post("/v1/chat/completions", **asked).json()
    events = server.stream("/v1/chat/completions", **asked)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(event["choices"][0]["delta"]["content"] for event in events)
    assert text == whole["choices"][0]["message"]["content"]
    assert {event["object"] for event in events} == {"chat.completion.chunk"}


def test_without_ignore_eos_an_answer_ends_by_itself(server: Server) -> None:
    choice = server.post(prompt="short story", max_tokens=2000).json()
    assert choice["choices"][0]["finish_reason"] == "stop"
    assert choice["usage"]["completion_tokens"] < 500


def test_log_probabilities_on_request(server: Server) -> None:
    found = server.post(prompt="hello", max_tokens=5, ignore_eos=True, logprobs=1).json()["choices"][0]["logprobs"]
    assert len(found["tokens"]) == len(found["token_logprobs"]) == 5
    assert max(found["token_logprobs"]) < 0


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/completions", {"prompt": ""}, 400),
        ("/v1/completions", {"prompt": [1, -1]}, 400),
        ("/v1/completions", {"prompt": "a", "max_tokens": 0}, 400),
        ("/v1/completions", {"prompt": "a", "max_tokens": 100_000}, 400),
        ("/v1/completions", {"prompt": "a", "model": "other"}, 404),
        ("/v1/chat/completions", {"messages": []}, 400),
        ("/v1/embeddings", {}, 404),
        ("/health", {}, 405),
    ],
)
def test_bad_requests_are_refused(server: Server, path: str, body: dict[str, Any], status: int) -> None:
    answer = httpx.post(server.url + path, json={"model": "m", **body}, trust_env=False)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_malformed_json_and_malformed_http_are_refused(server: Server) -> None:
    assert httpx.post(server.url + "/v1/completions", content=b"{", trust_env=False).status_code == 400
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"NONSENSE\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 400")


def test_an_api_key_is_asked_for(tmp_path: Path) -> None:
    with started(tmp_path, *SPEEDY, "--api-key", "secret") as guarded:
        assert guarded.get("/v1/models").status_code == 401
        right = httpx.get(guarded.url + "/v1/models", headers={"Authorization": "Bearer secret"}, trust_env=False)
        assert right.is_success


def test_server_info_tells_what_acts_and_why_the_rest_does_not(tmp_path: Path) -> None:
    argv = ("--enable-custom-all-reduce", "--max-num-seqs", "64", "--spec-trace-dir", "x", "--cuda-graph-max-bs", "128")
    with started(tmp_path, *SPEEDY, *argv, env={"NCCL_PROTO": "LL"}) as odd:
        info = odd.get("/server_info").json()
    assert (info["max_running_requests"], info["cuda_graph_max_bs_decode"]) == (64, 64)
    assert info["NCCL_PROTO"] == info["spec_trace_dir"] == "not used"
    assert {item["setting"] for item in info["inactive"]} == {"NCCL_PROTO", "--spec-trace-dir"}


# -- how it starts and stops


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
        answers = asyncio.run(_posts(small, 6))
    assert sorted(answers)[:2] == [200, 200]
    assert sorted(answers)[2:] == [503] * 4


async def _posts(server: Server, count: int) -> list[int]:
    body = {"model": "m", "prompt": PROMPT, "max_tokens": 64, "ignore_eos": True}
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
        answers = await asyncio.gather(*(client.post(server.url + "/v1/completions", json=body) for _n in range(count)))
    return [answer.status_code for answer in answers]


# -- how fast it is


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


# -- how it misbehaves


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


@pytest.mark.parametrize("noisy", [0, 1])
def test_a_hang_in_a_phase_is_silent_or_writes_without_progress(tmp_path: Path, noisy: int) -> None:
    with started(
        tmp_path, *SPEEDY, "--fault", f"hang@graph_capture:noisy={noisy}", ready="KV Cache is allocated"
    ) as hung:
        hung.wait_until("Capturing batches")
        time.sleep(0.5)
        size = len(hung.log)
        time.sleep(1.0)
        assert (len(hung.log) > size) is bool(noisy)
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
            asyncio.run(_posts(fragile, 16))
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
        with pytest.raises(httpx.ReadTimeout):
            asyncio.run(_impatient_posts(hung, 8))
        assert hung.post(prompt=PROMPT, max_tokens=8, ignore_eos=True).is_success


async def _impatient_posts(server: Server, count: int) -> None:
    body = {"model": "m", "prompt": PROMPT, "max_tokens": 64, "ignore_eos": True}
    async with httpx.AsyncClient(trust_env=False, timeout=3.0) as client:
        calls = [client.post(server.url + "/v1/completions", json=body) for _n in range(count)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    assert len(failed) == 1
    raise failed[0]


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
    with started(tmp_path, "--time-scale", "100", "--fault", "bind-late:seconds=100", ready="ready to roll") as late:
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


def _raw_stream(server: Server, tokens: int = 40) -> tuple[int, str]:
    body = {"model": "m", "prompt": "x y z", "max_tokens": tokens, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}  # fmt: skip
    answer = httpx.post(server.url + "/v1/completions", json=body, timeout=PATIENCE_S, trust_env=False)
    return answer.status_code, answer.content.decode(errors="replace")


def _words(text: str) -> str:
    events = [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
    return "".join(choice["text"] for event in events for choice in event.get("choices", []))


def test_replies_that_are_not_what_was_asked(server: Server, tmp_path: Path) -> None:
    """One process: the faults of a request are told apart by how many came before (`skip`), last kind first."""
    _status, right = _raw_stream(server)
    seen: dict[str, tuple[int, str]] = {}
    for fault in ("error-200", "sse-error", "garbage", "wrong-tokens", "short", "empty-first", "keep-alive",
                  "bundle:tokens=8", "no-usage", "reject:status=429"):  # fmt: skip
        with started(tmp_path, *SPEEDY, "--fault", f"{fault}") as odd:
            seen[fault.split(":")[0]] = _raw_stream(odd)
    assert seen["reject"][0] == 429
    assert seen["error-200"][0] == 200
    assert json.loads(seen["error-200"][1])["error"]
    assert '"error"' in seen["sse-error"][1]
    assert "data: {" not in seen["garbage"][1].split("\n\n")[0]
    assert _words(seen["wrong-tokens"][1]) != _words(right)
    assert len(_words(seen["short"][1]).split()) == 20
    assert '"completion_tokens": 20' in seen["short"][1]
    assert [json.loads(line[6:])["choices"][0]["text"] for line in seen["empty-first"][1].split("\n\n")[:3]] == [""] * 3
    assert _words(seen["empty-first"][1]) == _words(seen["keep-alive"][1]) == _words(seen["bundle"][1]) == _words(right)
    assert ": keep-alive" in seen["keep-alive"][1]
    assert seen["bundle"][1].count("data: {") < right.count("data: {")
    assert "usage" not in seen["no-usage"][1]


def test_a_reply_that_closes_half_way(tmp_path: Path) -> None:
    with started(tmp_path, *SPEEDY, "--fault", "close") as rude, pytest.raises(httpx.HTTPError):
        _raw_stream(rude)
