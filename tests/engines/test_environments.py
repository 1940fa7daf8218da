"""The environments that `make engines` makes hold working engines, and the files that describe them are true."""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tuner.engines.catalogue import load_catalogue
from tuner.engines.plan import Place
from tuner.spec import load_space
from tuner.trial.assembly import engine_setup
from tuner.trial.ports import reserve_ports
from tuner.trial.process import ServerHandle, launch

CHECKOUT = Path(__file__).parents[2]
ENVIRONMENTS = CHECKOUT / ".engines"
ENGINES = ("vllm", "sglang")
READY_S = 280.0

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if not (ENVIRONMENTS / name / ".made-from").is_file():
        pytest.skip(f"no .engines/{name}: run `make engines`")
    return name


def test_setting_up_again_changes_nothing(engine: str) -> None:
    command = [sys.executable, CHECKOUT / "tools" / "engines" / "setup.py", engine]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.endswith(f".engines/{engine} is up to date\n")


def test_the_shipped_catalogue_is_what_the_installed_parser_says(engine: str) -> None:
    space = load_space("cpu.yaml", catalogues={name: partial(load_catalogue, name) for name in ENGINES}).space
    version = str(space.engines[engine].version)
    done = subprocess.run(
        [ENVIRONMENTS / engine / "bin" / "python", "-W", "ignore", CHECKOUT / "tools" / "dump_flags.py", engine],
        env={**os.environ, "SGLANG_USE_CPU_ENGINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        check=True,
    )
    shipped = CHECKOUT / "launchers" / engine / "flags" / f"{version}.json"
    assert json.loads(done.stdout[done.stdout.index("{\n") :]) == json.loads(shipped.read_text(encoding="utf-8"))


def test_an_engine_starts_from_the_cpu_space_streams_with_usage_and_leaves_nothing(
    engine: str, model: Path, tmp_path: Path
) -> None:
    loaded = load_space("cpu.yaml", catalogues={name: partial(load_catalogue, name) for name in ENGINES})
    setup = engine_setup(loaded.space.model_copy(update={"model": str(model)}), engine)
    with reserve_ports(setup.port_count) as lease:
        plan = setup.plan(setup.baseline_candidate, Place("127.0.0.1", lease.ports[0], lease.ports[1:]))
        with launch(plan, tmp_path, holds=lease.locks) as server:
            wait_until_healthy(server)
            usage = stream(plan.base_url, str(model), tokens=24)[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 24)
    assert server.proof is not None
    assert server.proof.is_clean, server.proof


def wait_until_healthy(server: ServerHandle) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and server.exit_code is None:
        try:
            if httpx.get(f"{server.plan.base_url}/health", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    log = (server.run_dir / "server.log").read_text(encoding="utf-8", errors="replace")
    pytest.fail(f"not ready (exit code {server.exit_code}):\n{log[-4000:]}")


def stream(url: str, model: str, *, tokens: int) -> list[dict[str, Any]]:
    """The chunks of one streamed completion; the last carries the usage."""
    wanted = {"model": model, "prompt": [5, 6, 7], "max_tokens": tokens, "ignore_eos": True, "stream": True}
    wanted["stream_options"] = {"include_usage": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=wanted, timeout=120) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]
