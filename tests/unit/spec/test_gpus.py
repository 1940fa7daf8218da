"""One space file for machines with another number of GPUs."""

from __future__ import annotations

from collections.abc import Callable

from tuner.spec import LoadedSpace

TEXT = """
hardware: {gpus: 2}
engines:
  engine:
    flags: {--tensor-parallel-size: "{gpus}", --max-running: 4}
  other:
    knobs: {}
"""


def test_a_flag_takes_the_number_of_gpus(load: Callable[..., LoadedSpace]) -> None:
    flags = load(TEXT).space.engines["engine"].flags
    assert flags["--tensor-parallel-size"] == 2
    assert flags["--max-running"] == 4


def test_the_command_line_replaces_the_number_everywhere(load: Callable[..., LoadedSpace]) -> None:
    found = load(TEXT, **{"hardware.gpus": 8}).space
    assert found.hardware.gpus == 8
    assert found.engines["engine"].flags["--tensor-parallel-size"] == 8


def test_without_a_number_the_flag_is_told_to_be_wrong(errors: Callable[..., list[str]]) -> None:
    (problem,) = errors(TEXT.replace("hardware: {gpus: 2}", ""))
    assert "--tensor-parallel-size" in problem
    assert "{gpus}" in problem
