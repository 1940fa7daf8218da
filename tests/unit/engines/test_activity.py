"""A setting took effect only if the running server says so."""

from __future__ import annotations

import pytest

from tuner.domain.candidate import Candidate
from tuner.domain.catalogue import FlagCatalogue
from tuner.domain.knob import Knob
from tuner.domain.trial import Activity
from tuner.engines.activity import knob_activity, logged_settings
from tuner.engines.definition import load_definition

CATALOGUE = FlagCatalogue.from_json(
    {
        "engine": "toy",
        "version": "1",
        "source": "this test",
        "flags": [
            {"name": "--tensor-parallel-size", "aliases": ["--tp"], "kind": "value", "type": "int", "choices": None,
             "default": 1},
            {"name": "--decode-steps", "aliases": ["--ds"], "kind": "value", "type": "int", "default": 1},
        ],
        "removed": {},
        "dead": {"--decode-steps": "nothing reads it"},
    }
)  # fmt: skip


def state_of(knob: dict[str, object], value: object, info: dict[str, object] | None) -> tuple[Activity, str]:
    knobs = {"k": Knob.model_validate(knob)}
    (found,) = knob_activity(Candidate("toy", {"k": value}), knobs, CATALOGUE, info)  # type: ignore[dict-item]
    return found.state, found.reason


@pytest.mark.parametrize(
    ("knob", "value", "info"),
    [
        ({"values": [1, 2], "flag": "--tp"}, 2, {"tensor_parallel_size": 2}),
        ({"values": [1, 2], "flag": "--tp"}, 2, {"args": {"tp": "2"}}),
        ({"switch": True, "flag": "--disable-x", "inverted": True}, False, {"disable_x": True}),
        ({"values": ["FULL"], "flag": "-cc", "key": "a.cudagraph_mode"}, "FULL", {"v": {"cudagraph_mode": "FULL"}}),
        ({"values": ["1 2 4"], "flag": "--bs", "split": True}, "1 2 4", {"bs": [1, 2, 4]}),
        ({"values": ["LL"], "env": "NCCL_PROTO"}, "LL", {"env": {"NCCL_PROTO": "LL"}}),
    ],
)
def test_a_reported_value_that_agrees_is_active(
    knob: dict[str, object], value: object, info: dict[str, object]
) -> None:
    assert state_of(knob, value, info)[0] is Activity.ACTIVE


def test_another_running_value_is_inactive_and_names_both() -> None:
    state, reason = state_of({"values": [1, 64], "flag": "--page"}, 64, {"page": 1})
    assert state is Activity.INACTIVE
    assert "64" in reason
    assert "1" in reason


def test_a_switch_that_is_off_asks_for_nothing_that_could_be_ignored() -> None:
    knobs = {"k": Knob.model_validate({"switch": True, "flag": "--decode-steps"})}
    assert knob_activity(Candidate("toy", {"k": False}), knobs, CATALOGUE, {}) == ()
    (found,) = knob_activity(Candidate("toy", {"k": True}), knobs, CATALOGUE, {})
    assert (found.state, found.rests_on) == (Activity.INACTIVE, ())


@pytest.mark.parametrize("flag", ["--decode-steps", "--decode_steps", "--ds"])
def test_a_flag_that_nothing_reads_is_inactive_whatever_the_server_repeats(flag: str) -> None:
    state, reason = state_of({"values": [1, 4], "flag": flag}, 4, {"decode_steps": 4})
    assert (state, reason) == (Activity.INACTIVE, "nothing reads it")


@pytest.mark.parametrize("info", [None, {}, {"other": 3}])
def test_silence_proves_nothing(info: dict[str, object] | None) -> None:
    assert state_of({"values": [1, 64], "flag": "--page"}, 64, info)[0] is Activity.UNKNOWN


def test_an_nccl_variable_behind_the_engines_own_all_reduce_says_whose_it_is() -> None:
    knobs = {"k": Knob.model_validate({"values": ["LL"], "env": "NCCL_PROTO"})}
    (found,) = knob_activity(Candidate("toy", {"k": "LL"}), knobs, CATALOGUE, {}, "CUSTOM")
    assert found.state is Activity.UNKNOWN
    assert "own all-reduce (CUSTOM) comes first" in found.reason


@pytest.mark.parametrize("code", [2, [2, 1]])
def test_a_word_that_the_server_reports_as_a_number_is_neither_active_nor_inactive(code: object) -> None:
    knob: dict[str, object] = {"values": ["FULL", "PIECEWISE"], "flag": "-cc", "key": "cudagraph_mode"}
    state, reason = state_of(knob, "FULL", {"compilation_config": {"cudagraph_mode": code}})
    assert state is Activity.UNKNOWN
    assert "code" in reason


@pytest.mark.parametrize(
    ("asked", "code", "state"),
    [
        ("FULL", 2, "active"),
        ("FULL_AND_PIECEWISE", [2, 1], "active"),
        ("FULL", [2, 0], "inactive"),
        ("FULL", 9, "unknown"),
    ],
)
def test_a_code_of_vllm_is_read_as_the_word_it_stands_for(asked: str, code: object, state: str) -> None:
    words = [*load_definition("vllm").codes["cudagraph_mode"]]
    knobs = {"graph": Knob.model_validate({"values": words, "flag": "--compilation-config", "key": "cudagraph_mode"})}
    info = {"compilation_config": {"cudagraph_mode": code}}
    candidate = Candidate("vllm", {"graph": asked})
    (found,) = knob_activity(candidate, knobs, CATALOGUE, info, codes=load_definition("vllm").codes)
    assert found.state.value == state


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("INFO [cuda.py:482] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].", "active"),
        ("INFO [cuda.py:448] Using AttentionBackendEnum.FLASH_ATTN backend.", "active"),
        (
            "INFO [cuda.py:482] Using TRITON_ATTN attention backend out of potential backends: ['TRITON_ATTN'].",
            "inactive",
        ),
        ("INFO [cuda_communicator.py:264] Using ['CUSTOM', 'PYNCCL'] all-reduce backends", "unknown"),
    ],
)
def test_the_attention_backend_that_vllm_answers_as_a_code_is_read_from_its_log(line: str, state: str) -> None:
    knobs = {"attention": Knob.model_validate({"values": ["FLASH_ATTN"], "flag": "--attention-backend"})}
    candidate = Candidate("vllm", {"attention": "FLASH_ATTN"})
    info = {"attention_config": {"attention_backend": 3}}
    (found,) = knob_activity(candidate, knobs, CATALOGUE, info, logged=logged_settings(["starting", line]))
    assert found.state.value == state
