"""What is kept of a hung server."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.launches import eventually, has_written, rogue_plan

from tuner.trial import evidence
from tuner.trial.evidence import collect_evidence
from tuner.trial.gpu import GpuState
from tuner.trial.process import launch


class _BusyGpu:
    def states(self, indices: Sequence[int]) -> tuple[GpuState, ...]:
        return tuple(GpuState(index, f"GPU-{index}", "fake", 70_000, 80_000, utilization=100) for index in indices)


def test_the_state_of_the_servers_gpus_is_kept(tmp_path: Path) -> None:
    with launch(rogue_plan("quiet", gpus=(1,)), tmp_path) as server:
        kept = collect_evidence(server, _BusyGpu())
    states = json.loads(Path(kept["gpus"]).read_text())["gpus"]
    assert [(state["uuid"], state["utilization"]) for state in states] == [("GPU-1", 100)]


def test_secrets_in_the_log_do_not_reach_the_evidence(tmp_path: Path) -> None:
    with launch(rogue_plan("script", "api_key=geheim123 loading"), tmp_path) as server:
        assert eventually(has_written(tmp_path, "loading"))
        kept = collect_evidence(server)
    assert all("geheim123" not in Path(path).read_text() for path in kept.values())
    assert "loading" in Path(kept["log_tail"]).read_text()


def test_ranks_are_asked_to_dump_their_flight_recorder_and_the_dumps_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "_RECORDER_WAIT_S", 0.0)  # the dump is there already
    recorder = tmp_path / "recorder"
    recorder.mkdir()
    os.mkfifo(recorder / "ask_0.pipe")
    listening = os.open(recorder / "ask_0.pipe", os.O_RDONLY | os.O_NONBLOCK)
    (recorder / "rank_0").write_bytes(b"dump")
    env = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{recorder}/ask_",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{recorder}/rank_",
    }
    with launch(rogue_plan("quiet", env=env), tmp_path / "run") as server:
        kept = collect_evidence(server)
    assert os.read(listening, 10) == b"1"
    os.close(listening)
    assert Path(kept["flight_recorder:rank_0"]).read_bytes() == b"dump"


def test_a_server_that_is_gone_leaves_no_stacks_but_does_not_fail(tmp_path: Path) -> None:
    with launch(rogue_plan("exit", "1"), tmp_path) as server:
        assert eventually(lambda: server.poll() == 1)
        kept = collect_evidence(server)
    assert Path(kept["processes"]).read_text() == ""
