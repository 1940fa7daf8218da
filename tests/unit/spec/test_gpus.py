"""One space file for machines with another number of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.domain.candidate import Candidate
from tuner.engines.catalogue import catalogues
from tuner.errors import SpecError
from tuner.spec import LoadedSpace, load_space
from tuner.spec.reach import reach_of

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


PARALLEL = """
hardware: {gpus: 4}
engines:
  engine:
    flags: {--tensor-parallel-size: 2}
    knobs:
      pipeline: {values: [unset, 2, 4], flag: --pipeline-parallel-size}
"""


def test_a_value_that_needs_more_gpus_than_a_launch_has_is_named_and_left_out(load: Callable[..., LoadedSpace]) -> None:
    loaded = load(PARALLEL)
    (warning,) = loaded.warnings
    assert str(warning) == (
        "s.yaml:9:7 engines.engine.knobs.pipeline: pipeline 4: needs more GPUs than the 4 that a launch has, "
        "and is left out of the search"
    )
    assert [rule.forbid for rule in loaded.space.rules_of("engine")] == ["pipeline in [4]"]
    assert reach_of(loaded.space, "engine").size == 2


def test_with_more_gpus_nothing_is_left_out(load: Callable[..., LoadedSpace]) -> None:
    loaded = load(PARALLEL, **{"hardware.gpus": 8})
    assert not loaded.warnings
    assert not loaded.space.rules_of("engine")


INACTIVE = """
hardware: {gpus: 4}
engines:
  engine:
    baseline: {set: {tensor: 4, data: 2}}
    knobs:
      tensor: {values: [1, 2, 4], flag: --tp}
      data: {values: [1, 2], flag: --data-parallel-size, when: tensor == 1}
      plain: {switch: on, flag: --enable-dp-attention, inverted: on, when: tensor == 1}
"""


def test_a_knob_that_is_inactive_in_the_baseline_takes_no_gpus_there(load: Callable[..., LoadedSpace]) -> None:
    assert "data" not in Candidate.of(load(INACTIVE).space, "engine", {"tensor": 4, "data": 2, "plain": True}).values


def test_a_switch_that_is_inactive_in_the_baseline_saves_no_gpus_there(errors: Callable[..., list[str]]) -> None:
    (problem,) = errors(INACTIVE.replace("--data-parallel-size, when: tensor == 1", "--data-parallel-size"))
    assert "the baseline of engine needs 8 GPUs" in problem


def test_without_gpus_nobody_counts_them(load: Callable[..., LoadedSpace]) -> None:
    assert not load(PARALLEL, **{"hardware.gpus": 0}).space.rules_of("engine")


def test_values_that_fit_alone_and_not_together_are_left_out_together(load: Callable[..., LoadedSpace]) -> None:
    loaded = load(
        """
hardware: {gpus: 4}
engines:
  engine:
    knobs:
      tensor: {values: [unset, 2, 4], flag: --tp}
      pipeline: {values: [unset, 2], flag: --pipeline-parallel-size}
"""
    )
    (warning,) = loaded.warnings
    assert "tensor 4 and pipeline 2: together they need 8 GPUs" in str(warning)
    space = loaded.space
    forbidden = [
        (tensor, pipeline)
        for tensor in (None, 2, 4)
        for pipeline in (None, 2)
        if any(space.broken_rules("engine", {"tensor": tensor, "pipeline": pipeline}))
    ]
    assert forbidden == [(4, 2)]


def test_data_parallelism_inside_the_tensor_parallel_group_takes_no_gpus(load: Callable[..., LoadedSpace]) -> None:
    loaded = load(
        """
hardware: {gpus: 2}
engines:
  engine:
    flags: {--tensor-parallel-size: 2}
    knobs:
      inside: {switch: true, flag: --enable-dp-attention}
      data: {values: [unset, 2], flag: --data-parallel-size}
"""
    )
    (rule,) = loaded.space.rules_of("engine")
    assert rule.condition.holds({"inside": False, "data": 2})
    assert not rule.condition.holds({"inside": True, "data": 2})


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ("flags: {--tp: 8}", "s.yaml:6:19 engines.engine.flags.--tp: "),
        (
            "{knobs: {t: {values: [2, 8], flag: --tp}}, baseline: {set: {t: 8}}}",
            "s.yaml:6:68 engines.engine.baseline.set.t: ",
        ),
        ("knobs: {t: {values: [2, 8], flag: --tp, default: 8}}", "s.yaml:6:13 engines.engine.knobs.t: "),
    ],
)
def test_a_baseline_that_needs_more_gpus_than_a_launch_has_is_an_error_where_it_says_so(
    errors: Callable[..., list[str]], part: str, place: str
) -> None:
    (problem,) = errors(f"hardware: {{gpus: 4}}\nengines:\n  engine:\n    {part}\n")
    assert problem.startswith(place)
    assert "--tensor-parallel-size 8: the baseline of engine needs 8 GPUs, and a launch has 4 GPUs" in problem
    assert "--gpus" in problem


@pytest.mark.parametrize(
    ("command", "column"),
    [
        ("vllm serve m -tp 2 -dp 4", 57),
        ("python -m sglang.launch_server --model-path m --tp-size 8", 86),
        ("python -m sglang.launch_server --model-path m --tp-size 2 --ep 8", 98),
    ],
)
def test_the_flags_of_real_engines_that_take_gpus_are_known(tmp_path: Path, command: str, column: int) -> None:
    engine = "vllm" if command.startswith("vllm") else "sglang"
    file = tmp_path / "s.yaml"
    file.write_text(
        f"name: t\nmodel: m\nhardware: {{gpus: 4}}\nengines: {{{engine}: {{baseline: {{command: {command}}}}}}}\n"
    )
    with pytest.raises(SpecError) as caught:
        load_space(file, catalogues=catalogues())
    (problem,) = caught.value.problems
    assert f"the baseline of {engine} needs 8 GPUs, and a launch has 4 GPUs" in problem.message
    assert (problem.line, problem.column) == (4, column)


def test_attention_s_data_parallelism_of_sglang_stays_within_its_tensor_parallel_group(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    flags = "--tensor-parallel-size: 4, --data-parallel-size: 4, --enable-dp-attention: on"
    file.write_text(f"name: t\nmodel: m\nhardware: {{gpus: 4}}\nengines: {{sglang: {{flags: {{{flags}}}}}}}\n")
    assert not load_space(file, catalogues=catalogues()).warnings
