"""A study that wants tokens per joule starts only where they can be measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.errors import MachineUnfit
from tuner.study import preparing
from tuner.study.options import StartOptions
from tuner.study.preparing import Prepared, prepare_start
from tuner.trial.machine import GpuFacts, MachineFacts

SPACE = """
name: frugal
model: /models/m
hardware: {{gpus: {gpus}}}
engines:
  {engine}:
    {command}
knobs: {{}}
workload: {{levels: [1, 8]}}
{wish}
"""
OBJECTIVE = "objectives: [{metric: output_tok_per_joule, level: 8}]"
LIMIT = "limits: [{metric: output_tok_per_joule, level: 8, min: 2.0}]"
NO_WISH = "objectives: [{metric: output_tok_s, level: 8}]"

Prepare = Callable[..., Prepared]


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Prepare a study on a machine whose one GPU counts energy or not; the engine is a script without a version."""
    program = tmp_path / "serve"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    def prepared(wish: str, *, engine: str = "vllm", counts: bool = True) -> Prepared:
        real = engine != "simulated"
        gpu = GpuFacts(0, "H200", "GPU-0", "9.0", 143_000, 0, "0000:00", counts_energy=counts)
        monkeypatch.setattr(preparing, "machine_facts", lambda: MachineFacts("box", "6", "cpu", 2, 8.0, (gpu,)))
        command = f"command: [{program}]" if real else "flags: {--sim-model: sm120}"
        text = SPACE.format(gpus=int(real), engine=engine, command=command, wish=wish)
        file = tmp_path / "frugal.yaml"
        file.write_text(text.replace("/models/m", "m"))
        return prepare_start(StartOptions(space=str(file)))

    return prepared


@pytest.mark.parametrize("wish", [OBJECTIVE, LIMIT])
def test_gpus_that_count_energy_will_do(prepare: Prepare, wish: str) -> None:
    assert prepare(wish).gpus == 1


@pytest.mark.parametrize("wish", [OBJECTIVE, LIMIT])
def test_gpus_that_do_not_are_named_before_the_first_launch(prepare: Prepare, wish: str) -> None:
    with pytest.raises(MachineUnfit, match="tells no energy of GPU 0") as caught:
        prepare(wish, counts=False)
    assert "output_tok_per_joule" in caught.value.message


def test_a_simulated_engine_draws_no_power(prepare: Prepare) -> None:
    with pytest.raises(MachineUnfit, match="this study uses none"):
        prepare(OBJECTIVE, engine="simulated")


def test_who_does_not_ask_for_it_needs_no_counter(prepare: Prepare) -> None:
    assert prepare(NO_WISH, counts=False).gpus == 1
