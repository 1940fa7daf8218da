"""An exported script, started on its own, serves with the configuration that was measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import exports
from support.ports import free_port

from tuner.domain.launch import LaunchPlan
from tuner.export.script import script
from tuner.trial.environment import build_environment

START_TIMEOUT_S = 60.0


@contextmanager
def serving(command: Sequence[str], env: Mapping[str, str], port: int, log: Path) -> Iterator[str]:
    """A server in a session of its own, ready when it lists its model; gone afterwards, children included."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=dict(env), stdout=output, stderr=output, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                ask(f"{url}/v1/models")
                break
            except (urllib.error.URLError, ConnectionError):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ask(url: str, body: Mapping[str, object] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def effective(url: str) -> dict[str, object]:
    """What the server says that it runs with, without what differs from launch to launch."""
    return {key: value for key, value in ask(f"{url}/server_info").items() if key not in {"port", "launch_seed"}}


def test_the_exported_script_serves_with_the_configuration_of_its_trial(tmp_path: Path) -> None:
    port = free_port()
    program = (sys.executable, "-m", "tuner.engines.simulated")
    where = ("--host", "127.0.0.1", "--port", str(port))
    flags = ("--flavor", "sglang", "--time-scale", "100", "--num-continuous-decode-steps", "4")
    plan = LaunchPlan(
        engine="simulated",
        argv=(*program, "--model", "tiny", *where, *flags),
        env={"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"},
        host="127.0.0.1",
        port=port,
        simulated=True,
        model="tiny",
    )
    with serving(plan.argv, build_environment(plan, os.environ, "1"), port, tmp_path / "trial.log") as url:
        measured = effective(url)

    file = tmp_path / "serve.sh"
    file.write_text(script(exports.export(plan, simulated=True)))
    other = free_port()
    stray = {"PATH": os.environ["PATH"], "PORT": str(other), "NCCL_PROTO": "Simple", "NCCL_ALGO": "Tree"}
    with serving(["bash", str(file)], stray, other, tmp_path / "export.log") as url:
        assert effective(url) == measured
        answer = ask(f"{url}/v1/completions", {"model": "tiny", "prompt": "Hello", "max_tokens": 3})
    assert answer["usage"]["completion_tokens"] == 3
