"""Keys of JSON flags are checked like flags: their names, and their values where the engine says which it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.engines.catalogue import catalogues, load_catalogue
from tuner.errors import Problem, SpecError
from tuner.spec import load_space

KNOB = "engines: {{vllm: {{knobs: {{k: {{values: {values}, flag: {flag}, key: {key}}}}}}}}}"
FLAG = "engines: {{vllm: {{flags: {{{flag}: {value}}}}}}}"
COMMAND = "engines: {{vllm: {{baseline: {{command: {command}}}}}}}"


def problems(folder: Path, text: str) -> tuple[Problem, ...]:
    file = folder / "s.yaml"
    file.write_text(f"name: s\nmodel: m/m\n{text}\n")
    try:
        load_space(str(file), catalogues=catalogues())
    except SpecError as error:
        return tuple(error.problems)
    return ()


def knob(values: str, *, flag: str = "--compilation-config", key: str = "cudagraph_mode") -> str:
    return KNOB.format(values=values, flag=flag, key=key)


def test_a_value_that_the_key_does_not_take_is_an_error_at_the_value_with_the_nearest_one(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, knob("[unset, FULL, PIECEWISEX]"))
    assert found.path == "engines.vllm.knobs.k.values[2]"
    said = (
        "--compilation-config cudagraph_mode does not take PIECEWISEX; it takes NONE, PIECEWISE, FULL, FULL_DECODE_ONLY"
    )
    assert found.message.startswith(said)
    assert found.message.endswith("did you mean PIECEWISE?")


@pytest.mark.parametrize(
    "text",
    [
        knob("[unset, full, full-and-piecewise, 1]"),
        knob("[unset, true]", key="pass_config.fuse_allreduce_rms"),
        knob("[unset, a]", key="inductor_compile_config.max_autotune"),
        knob("[unset, auto, FLASHINFER]", flag="--attention-config", key="backend"),
        knob("[unset, anything]", flag="--hf-overrides", key="architecture"),
        FLAG.format(flag="-cc.cudagraph_mode", value="FULL"),
        FLAG.format(flag="--compilation-config", value='\'{"cudagraph_mode": "FULL", "pass_config": {}}\''),
        COMMAND.format(command="vllm serve m/m -cc.mode 3 --max-num-seqs 64"),
    ],
)
def test_what_the_engine_takes_is_no_error(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text) == ()


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (knob("[unset, FULL]", key="cudagraph_mod"), "k.key", "has no key cudagraph_mod; did you mean cudagraph_mode?"),
        (knob("[unset, 2]", key="cudagraph_mode.x"), "knobs.k.key", "cudagraph_mode is no object"),
        (knob("[unset, many]", key="cudagraph_num_of_warmups"), "values[1]", "takes an integer, not many"),
        (knob("[unset, maybe]", flag="--attention-config", key="use_trtllm_attention"), "[1]", "true or false"),
        (FLAG.format(flag="-cc.cudagraph_mode", value="FAST"), "flags.-cc.cudagraph_mode", "does not take FAST"),
        (FLAG.format(flag="-cc", value='\'{"cudagraph_mode": "FAST"}\''), "flags.-cc", "does not take FAST"),
        (COMMAND.format(command="vllm serve m/m -cc.cudagraph_mode FAST"), "baseline.command", "does not take FAST"),
        (COMMAND.format(command="vllm serve m/m --max-num-seqs many"), "command", "takes an integer, not many"),
    ],
)  # fmt: skip
def test_what_it_does_not_take_is_an_error_at_its_place(tmp_path: Path, text: str, place: str, said: str) -> None:
    (found,) = problems(tmp_path, text)
    assert found.path.endswith(place)
    assert said in found.message


@pytest.mark.parametrize(
    ("text", "place", "full"),
    [
        ("engines: {vllm: {flags: {--max-num-seq: 64}}}", "flags.--max-num-seq", "--max-num-seqs"),
        ("engines: {vllm: {knobs: {k: {values: [unset, 64], flag: --max-num-seq}}}}", "k.flag", "--max-num-seqs"),
        ("engines: {vllm: {flags: {--compilation-conf.mode: 3}}}", "conf.mode", "--compilation-config"),
        ("engines: {sglang: {flags: {--tp: 8}}}", "flags.--tp", "--tp-size"),
    ],
)
def test_an_abbreviated_flag_of_the_file_is_refused_with_the_spelling_that_it_begins(
    tmp_path: Path, text: str, place: str, full: str
) -> None:
    (found,) = problems(tmp_path, text)
    assert found.path.endswith(place)
    assert found.message.endswith(f"is an abbreviation: write {full}")


@pytest.mark.parametrize(
    "command", ["vllm serve m/m --max-num-seq 64", "python -m sglang.launch_server --model m/m --tp 2"]
)
def test_a_command_is_taken_as_it_is_while_its_engine_knows_what_is_meant(tmp_path: Path, command: str) -> None:
    engine = "vllm" if "vllm" in command else "sglang"
    assert problems(tmp_path, COMMAND.format(command=command).replace("vllm: {base", f"{engine}: {{base")) == ()
    (found,) = problems(tmp_path, COMMAND.format(command="vllm serve m/m --max-num 64"))
    assert found.message.startswith("--max-num is an abbreviation of several flags: ")


def test_an_abbreviation_of_several_flags_names_them() -> None:
    catalogue = load_catalogue("vllm")
    said = catalogue.abbreviation("--max-num-b")
    assert said == "--max-num-b is an abbreviation: write --max-num-batched-tokens"
    several = str(catalogue.abbreviation("--max-num"))
    assert several.startswith("--max-num is an abbreviation of several flags: --max-num-")
    assert several.endswith("(6 in all)")
    assert catalogue.abbreviation("--max-num-seqs") is None
    assert catalogue.abbreviation("--no-enable-prefix-caching") is None
