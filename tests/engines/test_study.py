"""A whole study on a real engine: vLLM on the CPU, from space file to exported script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import pytest
from support.commands import tuner
from support.engines import VLLM_ON_ONE_CORE
from support.ports import free_port

ROOT = Path(__file__).parents[2]
VLLM = ROOT / ".engines" / "vllm" / "bin" / "vllm"
MODEL = (ROOT / ".cache" / "models" / "tiny").resolve()
TUNER = str(Path(sys.executable).with_name("tuner"))
ENV = {"HF_HUB_OFFLINE": 1, "VLLM_CPU_KVCACHE_SPACE": 1, "VLLM_HOST_IP": "127.0.0.1", **VLLM_ON_ONE_CORE}
SPACE = f"""\
name: short
model: {MODEL}
engines:
  vllm:
    version: 0.32.0
    command: [{VLLM}, serve]
    flags: {{--load-format: dummy, --enforce-eager: on, --max-model-len: 512}}
    env: {json.dumps(ENV)}
    knobs:
      max_num_seqs: {{values: [2, 8], ordered: true, flag: --max-num-seqs, default: 8}}
workload:
  input_tokens: 32
  output_tokens: 16
  levels: [1, 4]
  repeats: 1
  single_stream_max_requests: 5
  warmup_requests: 3
budget: {{trials: 2, baseline_launches: 1, launch_timeout_s: 400, benchmark_timeout_s: 300}}
"""

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not VLLM.exists() or not MODEL.exists(), reason="run `make engines` first"),
]


def test_a_study_on_a_real_vllm_is_measured_exported_and_its_script_serves(tmp_path: Path) -> None:
    (tmp_path / "short.yaml").write_text(SPACE, encoding="utf-8")
    tuner(tmp_path, "study", "start", "--space", "short.yaml", "--name", "real", "--yes", patience_s=1200)
    rows = json.loads(tuner(tmp_path, "study", "trials", "real", "--json").stdout)["trials"]
    assert [row["state"] for row in rows[:2]] == ["measured", "measured"]
    assert not any(row["simulated"] for row in rows)
    assert {row["settings"]["max_num_seqs"] for row in rows} == {2, 8}

    shown = json.loads(tuner(tmp_path, "study", "show", "real", "1", "--json").stdout)
    assert shown["versions"]["vllm"].startswith("0.32.0")
    assert {level["level"] for level in shown["levels"]} == {1, 4}
    assert all(level["completed"] == level["asked"] for level in shown["levels"])

    script = tmp_path / "serve.sh"
    tuner(tmp_path, "export", "real", "--pick", "1", "-o", str(script))
    assert "VLLM_SERVER_DEV_MODE" not in script.read_text()
    # Nobody clears up after a server that is started by hand, and names of sockets are short.
    temporary = tempfile.TemporaryDirectory(prefix="t", dir="/tmp")
    with (tmp_path / "serve.log").open("w") as log:
        port = free_port()
        server = subprocess.Popen(
            ["bash", str(script)], cwd=tmp_path, env=os.environ | {"PORT": str(port), "TMPDIR": temporary.name},
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        answer = completion(f"http://127.0.0.1:{port}", server)
        assert answer["usage"]["completion_tokens"] == 4
    finally:
        os.killpg(server.pid, 15)
        server.wait(60)
        temporary.cleanup()
    log_text = (tmp_path / "serve.log").read_text()
    assert f"'max_num_seqs': {shown['settings']['max_num_seqs']}" in log_text


def completion(url: str, server: subprocess.Popen[bytes]) -> dict[str, dict[str, int]]:
    """One answer of the server, as soon as it gives any."""
    deadline = time.monotonic() + 400
    while True:
        assert server.poll() is None, "the exported server ended"
        assert time.monotonic() < deadline, "the exported server did not come up"
        try:
            body = {"model": str(MODEL), "prompt": "The", "max_tokens": 4, "ignore_eos": True}
            reply = httpx.post(f"{url}/v1/completions", json=body, timeout=60, trust_env=False)
            if reply.is_success:
                return dict(reply.json())
        except httpx.HTTPError:
            pass
        time.sleep(1)
