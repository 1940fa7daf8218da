"""`tuner engine`: through the real entry point, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tuner.domain.outcome import FAILURES, FailureClass

LOGS = Path(__file__).parents[1] / "data" / "logs"


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuner.cli.main", "engine", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def explained(*arguments: str, stdin: str = "") -> dict[str, Any]:
    result = run("explain", *arguments, "--json", stdin=stdin)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_explain_names_class_phase_evidence_blame_and_action() -> None:
    document = explained(str(LOGS / "vllm-0.26-nccl-algo-tree.log"), "--engine", "vllm", "--exit-code", "1")
    assert document["class"] == "nccl_config"
    assert document["phase"] == "profile"
    assert document["blames"][0] == "NCCL_ALGO"
    assert "no algorithm/protocol available" in document["evidence"][0]
    assert document["action"] == FAILURES[FailureClass.NCCL_CONFIG].action.value
    assert document["detail"]


def test_explain_of_a_good_log_says_none() -> None:
    document = explained(str(LOGS / "sglang-0.5.16-good.log"), "--engine", "sglang")
    assert document["class"] == "none"
    assert document["evidence"] == []
    assert document["action"] == "continue"


def test_explain_reads_standard_input_and_what_was_seen() -> None:
    line = "(Worker pid=1) INFO 11-29 21:33:33 [pynccl.py:113] vLLM is using nccl==2.28.9\n"
    tried = ["--set", "NCCL_P2P_LEVEL=SYS"]
    document = explained("-", "--engine", "vllm", "--seen", "hung", *tried, stdin=line)
    assert document["class"] == "nccl_hang"
    assert document["blames"][0] == "NCCL_P2P_LEVEL"


def test_explain_in_words() -> None:
    result = run("explain", str(LOGS / "vllm-0.26-memory-share-0.05.log"), "--engine", "vllm")
    assert result.returncode == 0
    assert "kv_too_small in phase profile" in result.stdout
    assert "raise --gpu-memory-utilization" in result.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["explain", "no-such.log", "--engine", "vllm"], 1, "no-such.log: cannot be read"),
        (["explain", "/dev/zero", "--engine", "vllm"], 1, "/dev/zero: is a device, not a log"),
        (["explain", "-", "--engine", "vlm"], 1, "known engines: sglang, simulated, vllm"),
        (["explain", "-", "--engine", "vllm", "--set", "NCCL_ALGO"], 2, "NAME=VALUE"),
        (["show", "vlm"], 1, "unknown engine"),
    ],
)
def test_mistakes_get_one_line_and_their_exit_code(arguments: list[str], code: int, said: str) -> None:
    result = run(*arguments)
    assert result.returncode == code
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_stream_without_end_is_refused_with_what_to_do() -> None:
    command = [sys.executable, "-m", "tuner.cli.main", "engine", "explain", "-", "--engine", "vllm"]
    with Path("/dev/zero").open("rb") as endless:
        result = subprocess.run(command, stdin=endless, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert "standard input: more than 64 MiB" in result.stderr
    assert "write it to a file first" in result.stderr


def test_a_named_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_text, args=("RuntimeError: CUDA error: misaligned address\n",)).start()
    assert explained(str(pipe), "--engine", "vllm", "--exit-code", "1")["class"] == "cuda_fault"


def test_what_is_no_text_is_no_log(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF" + bytes(4096))
    result = run("explain", str(program), "--engine", "vllm")
    assert result.returncode == 1
    assert "is no text" in result.stderr


def test_broken_bytes_in_a_log_do_not_hide_its_cause(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"\xff\xfe broken \xc3\x28\n" * 50 + b"RuntimeError: CUDA error: misaligned address\n")
    assert explained(str(log), "--engine", "vllm", "--exit-code", "1")["class"] == "cuda_fault"


def test_list_names_every_engine() -> None:
    document = json.loads(run("list", "--json").stdout)
    assert [row["name"] for row in document["engines"]] == ["sglang", "simulated", "vllm"]
    assert "vllm" in run("list").stdout


def test_show_tells_command_flags_and_signatures() -> None:
    document = json.loads(run("show", "sglang", "--json").stdout)
    assert document["name"] == "sglang"
    assert document["signatures"]["failures"] > 50
    assert "flags of" in run("show", "sglang").stdout
