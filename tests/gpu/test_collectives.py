"""On real GPUs: the probe captures NCCL's all-reduces in graphs, and the driver counts energy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuner.domain.probe import DEFAULT, Backend
from tuner.probe.order import Order, PlannedRun
from tuner.probe.watch import RANKS_PROGRAM
from tuner.trial.gpu import open_nvml

PROBE = open_nvml()
TORCH = os.environ.get("TUNER_TEST_TORCH_PYTHON", sys.executable)

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(PROBE is None, reason="no NVIDIA GPU here")]


def test_graphs_of_all_reduces_are_captured_and_timed(tmp_path: Path) -> None:
    assert PROBE is not None
    sizes = (8192, 1 << 20, 64 << 20)
    runs = tuple(
        PlannedRun(number, label, env, optional=False)
        for number, (label, env) in enumerate([(DEFAULT, {}), ("proto=LL", {"NCCL_PROTO": "LL"})])
    )
    order = Order(Backend.NCCL, min(2, PROBE.count), "bfloat16", sizes, 120.0, DEFAULT, runs)
    results = tmp_path / "results.jsonl"
    done = subprocess.run(
        [TORCH, str(RANKS_PROGRAM), str(order.write(tmp_path)), str(results)],
        env={**os.environ, "NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in results.read_text().splitlines()]
    assert [line["run"] for line in found] == [0, 1], done.stdout + done.stderr
    assert all(time_us > 0 for line in found for samples in line["times_us"].values() for time_us in samples)
    assert found[0]["library"].startswith("2.")


def test_energy_grows_with_time() -> None:
    assert PROBE is not None
    assert PROBE.counts_energy((0,))
    with PROBE.energy_of((0,)) as joules:
        assert joules is not None
        before = joules()
        time.sleep(2.0)
        after = joules()
    assert before is not None
    assert after is not None
    # An idle data-centre GPU draws tens of watts; no GPU draws more than some kilowatts.
    assert 10 < after - before < 10_000
