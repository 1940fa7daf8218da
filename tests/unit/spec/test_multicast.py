"""No spelling of a space file turns NVLink multicast on: refused before anything is launched, at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.engines.catalogue import catalogues
from tuner.errors import SpecError
from tuner.spec import load_space

HEAD = 'name: t\nmodel: m/m\nhardware: {gpus: 2, compute_capability: "10.0"}\n'
OFF, BACKEND = "--enforce-disable-flashinfer-allreduce-fusion", "--flashinfer-allreduce-fusion-backend"


def problems(folder: Path, text: str) -> list[str]:
    """What is wrong with a space of real engines, one text per error."""
    path = folder / "s.yaml"
    path.write_text(HEAD + text)
    try:
        load_space(str(path), catalogues=catalogues())
    except SpecError as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("engines: {sglang: {flags: {--config: s.yaml}}}", "flags.--config"),
        ("engines: {vllm: {flags: {--config: s.yaml}}}", "flags.--config"),
        ("engines: {vllm: {baseline: {command: vllm serve m/m --config gone.yaml}}}", "baseline.command"),
        ("engines: {sglang: {flags: {--enable-mscclpp: on}}}", "flags.--enable-mscclpp"),
        (f"engines: {{sglang: {{flags: {{{BACKEND}: cutedsl}}}}}}", f"flags.{BACKEND}"),
        ('engines: {vllm: {env: {TORCH_SYMM_MEM_DISABLE_MULTICAST: "on"}}}', "env.TORCH_SYMM_MEM_DISABLE_MULTICAST"),
        ("engines: {vllm: {command: [env, NCCL_NVLS_ENABLE=1, vllm, serve]}}", "vllm.command"),
        ("engines: {sglang: {command: [python3, -m, sglang.launch_server, --enable-symm-mem]}}", "sglang.command"),
        (f"engines: {{sglang: {{flags: {{{OFF}: off}}}}}}", f"flags.{OFF}"),
        (f"engines: {{sglang: {{knobs: {{k: {{switch: on, flag: {OFF}}}}}}}}}", "knobs.k.switch"),
    ],
)
def test_what_reaches_multicast_is_an_error_at_its_place(tmp_path: Path, text: str, place: str) -> None:
    (found,) = problems(tmp_path, text)
    assert place in found
    assert "not allowed" in found


def test_fusing_all_reduces_may_be_tuned_where_a_harmless_way_is_fixed(tmp_path: Path) -> None:
    flags = f"flags: {{{BACKEND}: trtllm}}"
    assert problems(tmp_path, f"engines: {{sglang: {{{flags}, knobs: {{k: {{switch: on, flag: {OFF}}}}}}}}}") == []


def test_fusing_all_reduces_may_be_tuned_on_gpus_where_it_reaches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    knob = f"engines: {{sglang: {{knobs: {{k: {{switch: on, flag: {OFF}}}}}}}}}"
    path.write_text(HEAD.replace("10.0", "9.0") + knob)
    load_space(str(path), catalogues=catalogues())
