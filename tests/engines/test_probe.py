"""The all-reduce probe in a real engine's interpreter: on a CPU with gloo, labelled so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import records

from tuner.engines.catalogue import catalogues
from tuner.spec import load_space
from tuner.store import open_store
from tuner.study.events import Noted, StudyEvent
from tuner.study.probing import FirstStep, probe_first
from tuner.study.stopping import StopSwitch

ROOT = Path(__file__).parents[2]
VLLM = ROOT / ".engines" / "vllm" / "bin" / "vllm"

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(not VLLM.is_file(), reason="no .engines/vllm: run `make engines`"),
]

SPACE = f"""
name: probed
model: {{model}}
engines:
  vllm:
    version: 0.32.0
    command: [{VLLM}, serve]
    flags:
      --max-num-batched-tokens: 256
    knobs:
      nccl_proto:
        values: [unset, LL]
        env: NCCL_PROTO
workload:
  levels: [1, 4]
"""


@pytest.fixture
def space(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    model.mkdir()
    config = {"hidden_size": 512, "num_hidden_layers": 2, "torch_dtype": "bfloat16"}
    (model / "config.json").write_text(json.dumps(config))
    file = tmp_path / "probed.yaml"
    file.write_text(SPACE.format(model=model))
    return file


def test_doctor_times_the_models_messages_with_real_ranks(space: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tuner.cli.main", "doctor", "--nccl", "--space", str(space), "--tp", "2"]
    done = subprocess.run(
        [*command, "--seconds", "10", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    probe = json.loads(done.stdout)["probe"]
    assert probe["works"]
    assert probe["backend"] == "gloo on CPU"
    assert probe["ranks"] == 2
    assert [size["bytes"] for size in probe["sizes"]] == [1024, 4096, 512 * 2 * 256]
    times = [row["us"] for row in probe["times"] if row["setting"] == "default"]
    assert len(times) == 3
    assert all(time > 0 for time in times)
    assert probe["advice"][0].startswith("measured with gloo on CPU")
    assert probe["failures"] == []


def test_a_study_measures_its_probe_once_and_keeps_it(space: Path, tmp_path: Path) -> None:
    loaded = load_space(space, catalogues=catalogues(), overrides={"probe": True}).space
    events: list[StudyEvent] = []
    beats: list[None] = []
    with open_store(f"sqlite:///{tmp_path}/tuner.db") as store:
        store.create_study(replace(records.study(), space=loaded))
        step = FirstStep("night", loaded, 0, tmp_path / "probe", seconds=1.0)
        keep = {"stop": StopSwitch(), "notify": events.append, "keep_lease": lambda: beats.append(None)}
        found = probe_first(step, store, **keep)  # type: ignore[arg-type]
        told = len(events)
        again = probe_first(step, store, **keep)  # type: ignore[arg-type]
    assert found is not None
    assert found.works
    assert again == found
    assert len(events) == told
    assert beats
    assert any("gloo on CPU" in event.text for event in events if isinstance(event, Noted))
