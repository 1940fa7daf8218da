"""Every setting lands where its knob says, spelled as the engine spells it."""

from __future__ import annotations

import json

import pytest

from tuner.domain.candidate import Candidate
from tuner.domain.catalogue import FlagCatalogue
from tuner.domain.denied import KEPT_ENV
from tuner.domain.launch import LaunchPlan
from tuner.domain.space import Space
from tuner.engines.definition import EngineDefinition
from tuner.engines.plan import FixedSettings, Place, build_plan
from tuner.errors import UserError

FLAGS = [
    {"name": "--tp-size", "aliases": ["--tp"], "kind": "value", "type": "int", "choices": None, "default": 1},
    {"name": "--disable-graphs", "aliases": [], "kind": "switch", "type": None, "choices": None, "default": False},
    {"name": "--async-scheduling", "aliases": [], "kind": "toggle", "type": None, "choices": None, "default": None},
    {"name": "--disable-all-reduce", "kind": "toggle", "default": False, "off": ["--enable-all-reduce"]},
    {"name": "--graph-bs", "aliases": [], "kind": "list", "type": "int", "choices": None, "default": None},
    {
        "name": "--compilation-config",
        "aliases": ["-cc"],
        "kind": "json",
        "type": "json",
        "choices": None,
        "default": {},
    },
    {"name": "--offset", "aliases": [], "kind": "value", "type": "int", "choices": None, "default": 0},
    {"name": "--share", "aliases": [], "kind": "value", "type": "float", "choices": None, "default": 0.9},
]
CATALOGUE = FlagCatalogue.from_json(
    {"engine": "toy", "version": "1", "source": "this test", "flags": FLAGS, "removed": {}, "dead": {}}
)
PLACE = Place("127.0.0.1", 8123)


def plan(
    knobs: dict[str, object], values: dict[str, object], fixed: FixedSettings | None = None, **more: object
) -> LaunchPlan:
    definition = EngineDefinition.model_validate(
        {"name": "toy", "title": "Toy", "command": ["toy", "serve"], "env": {"FIXED": "1"}, **more}
    )
    space = Space.model_validate({"name": "s", "model": "org/model", "engines": {"toy": {"knobs": knobs}}})
    candidate = Candidate.of(space, "toy", values)  # type: ignore[arg-type]
    return build_plan(definition, CATALOGUE, space, candidate, fixed or FixedSettings(), PLACE)


def settings_of(found: LaunchPlan) -> list[str]:
    """The arguments after model, host and port."""
    return list(found.argv[found.argv.index("8123") + 1 :])


@pytest.mark.parametrize(
    ("knob", "value", "expected"),
    [
        ({"int": {"low": 1, "high": 8}, "flag": "--tp-size"}, 4, ["--tp-size", "4"]),
        ({"values": ["unset", 4], "flag": "--tp-size"}, None, []),
        ({"switch": True, "flag": "--disable-graphs"}, True, ["--disable-graphs"]),
        ({"switch": True, "flag": "--disable-graphs"}, False, []),
        ({"switch": True, "flag": "--disable-graphs", "inverted": True}, True, []),
        ({"switch": True, "flag": "--disable-graphs", "inverted": True}, False, ["--disable-graphs"]),
        ({"switch": True, "flag": "--async-scheduling"}, True, ["--async-scheduling"]),
        ({"switch": True, "flag": "--async-scheduling"}, False, ["--no-async-scheduling"]),
        ({"values": ["1 2 4"], "flag": "--graph-bs", "split": True}, "1 2 4", ["--graph-bs", "1", "2", "4"]),
        ({"int": {"low": -4, "high": 4}, "flag": "--offset"}, -3, ["--offset=-3"]),
        ({"float": {"low": 0.1, "high": 0.9}, "flag": "--share"}, 0.85, ["--share", "0.85"]),
    ],
)
def test_a_flag_is_spelled_by_its_kind(knob: dict[str, object], value: object, expected: list[str]) -> None:
    values = [None if v == "unset" else v for v in knob["values"]] if "values" in knob else None  # type: ignore[attr-defined]
    found = plan({"k": {**knob, **({"values": values} if values is not None else {})}}, {"k": value})
    assert settings_of(found) == expected


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--async-scheduling", True, "--async-scheduling"),
        ("--async-scheduling", False, "--no-async-scheduling"),
        ("--async", False, "--no-async-scheduling"),
        ("--no-async-scheduling", True, "--no-async-scheduling"),
        ("--no-async-scheduling", False, "--async-scheduling"),
        ("--disable-all-reduce", False, "--no-disable-all-reduce"),
        ("--enable-all-reduce", True, "--enable-all-reduce"),
        ("--enable-all-reduce", False, "--disable-all-reduce"),
    ],
)
def test_a_fixed_toggle_is_turned_on_or_off_in_a_spelling_that_the_engine_has(
    flag: str, value: bool, expected: str
) -> None:
    definition = EngineDefinition.model_validate({"name": "toy", "title": "Toy", "command": ["toy"]})
    space = Space.model_validate({"name": "s", "model": "m", "engines": {"toy": {}}})
    found = build_plan(
        definition, CATALOGUE, space, Candidate.of(space, "toy", {}), FixedSettings({flag: value}), PLACE
    )
    assert settings_of(found) == [expected]


MODE = {"values": ["FULL"], "key": "cudagraph_mode"}


@pytest.mark.parametrize(
    ("fixed", "knob", "expected"),
    [
        ({"--compilation-config": '{"level": 3}'}, {**MODE, "flag": "-cc"}, {"cudagraph_mode": "FULL", "level": 3}),
        ({"-cc": '{"level": 3}'}, {"values": ["FULL"], "flag": "-cc.mode"}, {"level": 3, "mode": "FULL"}),
        ({"-cc.level": "3"}, {**MODE, "flag": "--compilation-config"}, {"cudagraph_mode": "FULL", "level": 3}),
        (
            {"-cc.a.b": "x", "-cc": '{"a": {"c": 1}}'},
            {"values": [2], "flag": "-cc.a.d"},
            {"a": {"b": "x", "c": 1, "d": 2}},
        ),
    ],
)
def test_of_a_json_flag_in_two_spellings_no_setting_is_lost_since_an_engine_takes_the_last_alone(
    fixed: dict[str, str], knob: dict[str, object], expected: dict[str, object]
) -> None:
    flag, text = settings_of(plan({"k": knob}, {"k": knob["values"][0]}, fixed=FixedSettings(fixed)))  # type: ignore[index]
    assert flag == "--compilation-config"
    assert json.loads(text) == expected


def test_dotted_flags_alone_are_left_to_the_engine_which_puts_them_together() -> None:
    found = plan({"k": {"values": ["2k"], "flag": "-cc.size"}}, {"k": "2k"}, fixed=FixedSettings({"-cc.level": 3}))
    assert settings_of(found) == ["-cc.level", "3", "-cc.size", "2k"]


def test_an_environment_knob_becomes_a_variable_and_a_switch_is_one_or_zero() -> None:
    knobs = {
        "proto": {"values": ["LL", "LL,LL128,Simple"], "env": "NCCL_PROTO"},
        "p2p": {"switch": True, "env": "NCCL_P2P_DISABLE", "inverted": True},
    }
    found = plan(knobs, {"proto": "LL,LL128,Simple", "p2p": True})
    assert found.env == {"FIXED": "1", "NCCL_PROTO": "LL,LL128,Simple", "NCCL_P2P_DISABLE": "0"}
    assert settings_of(found) == []


def test_an_unset_variable_is_left_out() -> None:
    found = plan({"proto": {"values": [None, "LL"], "env": "NCCL_PROTO"}}, {"proto": None})
    assert "NCCL_PROTO" not in found.env


def test_parts_of_a_json_flag_are_merged_with_its_fixed_part() -> None:
    knobs = {
        "mode": {"values": ["FULL", "NONE"], "flag": "--compilation-config", "key": "cudagraph_mode"},
        "fuse": {"switch": True, "flag": "--compilation-config", "key": "pass_config.fuse_allreduce_rms"},
    }
    fixed = FixedSettings({"--compilation-config": '{"level": 3, "pass_config": {"keep": true}}'})
    flag, text = settings_of(plan(knobs, {"mode": "FULL", "fuse": False}, fixed=fixed))
    assert flag == "--compilation-config"
    assert json.loads(text) == {
        "level": 3,
        "cudagraph_mode": "FULL",
        "pass_config": {"keep": True, "fuse_allreduce_rms": False},
    }


def test_the_model_is_positional_or_behind_its_flag() -> None:
    assert plan({}, {}).argv[:3] == ("toy", "serve", "org/model")
    assert plan({}, {}, model_flag="--model-path").argv[:4] == ("toy", "serve", "--model-path", "org/model")


def test_side_ports_go_where_the_definition_says() -> None:
    definition = EngineDefinition.model_validate(
        {
            "name": "toy",
            "title": "Toy",
            "command": ["toy"],
            "extra_ports": [{"flag": "--nccl-port"}, {"env": "VLLM_PORT"}],
        }
    )
    space = Space.model_validate({"name": "s", "model": "m", "engines": {"toy": {}}})
    place = Place("127.0.0.1", 8123, (9001, 9002), gpus=(2, 5))
    found = build_plan(definition, CATALOGUE, space, Candidate("toy"), FixedSettings(), place)
    assert found.argv[-2:] == ("--nccl-port", "9001")
    assert found.env["VLLM_PORT"] == "9002"
    assert found.env["CUDA_VISIBLE_DEVICES"] == "2,5"


def test_variables_for_measuring_only_are_named_as_such() -> None:
    found = plan({}, {}, trial_env={"DEV_MODE": "1"})
    assert found.env["DEV_MODE"] == "1"
    assert found.trial_only_env == ("DEV_MODE",)


def test_a_knob_wins_over_a_fixed_flag_and_a_fixed_list_is_spread() -> None:
    space = Space.model_validate(
        {"name": "s", "model": "m", "engines": {"toy": {"knobs": {"tp": {"values": [1, 2], "flag": "--tp-size"}}}}}
    )
    definition = EngineDefinition.model_validate({"name": "toy", "title": "Toy", "command": ["toy"]})
    fixed = FixedSettings({"--tp-size": 8, "--graph-bs": (1, 2)})
    found = build_plan(definition, CATALOGUE, space, Candidate("toy", {"tp": 2}), fixed, PLACE)
    assert settings_of(found) == ["--tp-size", "2", "--graph-bs", "1", "2"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [("NCCL_NVLS_ENABLE", "1"), ("NCCL_ALGO", "NVLS"), ("VLLM_FLASHINFER_ALLREDUCE_BACKEND", "auto")],
)
def test_a_variable_that_reaches_multicast_is_not_launched_wherever_it_comes_from(variable: str, value: str) -> None:
    with pytest.raises(UserError, match=f"{variable}={value} is not launched"):
        plan({"k": {"values": [value, None], "env": variable}}, {"k": value})
    with pytest.raises(UserError, match=f"{variable}={value} is not launched"):
        plan({}, {}, env={variable: value})


def test_a_flag_that_reaches_multicast_is_not_launched() -> None:
    definition = EngineDefinition.model_validate({"name": "sglang", "title": "S", "command": ["serve"]})
    space = Space.model_validate({"name": "s", "model": "org/model", "engines": {"sglang": {}}})
    candidate = Candidate.of(space, "sglang", {})
    for flags in ({"--enable-symm-mem": True}, {"--flashinfer-allreduce-fusion-backend": "auto"}):
        with pytest.raises(UserError, match="is not launched"):
            build_plan(definition, CATALOGUE, space, candidate, FixedSettings(flags), PLACE)
    build_plan(definition, CATALOGUE, space, candidate, FixedSettings({"--enable-symm-mem": False}), PLACE)


def test_a_launch_on_gpus_keeps_multicast_off_though_its_engine_does_not_say_so() -> None:
    definition = EngineDefinition.model_validate({"name": "toy", "title": "Toy", "command": ["toy"]})
    space = Space.model_validate({"name": "s", "model": "org/model", "engines": {"toy": {}}})
    place = Place("127.0.0.1", 8123, gpus=(0, 1))
    found = build_plan(definition, CATALOGUE, space, Candidate.of(space, "toy", {}), FixedSettings(), place)
    assert KEPT_ENV.items() <= found.env.items()


OFF, BACKEND = "--enforce-disable-flashinfer-allreduce-fusion", "--flashinfer-allreduce-fusion-backend"


def fused(flags: dict[str, object], capability: str | None, gpus: tuple[int, ...] = (0, 1)) -> list[str]:
    """The arguments of an SGLang launch that concern the fusion of all-reduces."""
    hardware = {"gpus": len(gpus), "compute_capability": capability}
    space = Space.model_validate({"name": "s", "model": "m", "hardware": hardware, "engines": {"sglang": {}}})
    catalogue = FlagCatalogue.from_json(
        {
            "engine": "sglang",
            "version": "1",
            "flags": [{"name": OFF, "kind": "switch"}, {"name": BACKEND, "kind": "value"}],
        }
    )
    definition = EngineDefinition.model_validate({"name": "sglang", "title": "S", "command": ["serve"]})
    place, candidate = Place("127.0.0.1", 8123, gpus=gpus), Candidate.of(space, "sglang", {})
    return settings_of(build_plan(definition, catalogue, space, candidate, FixedSettings(flags), place))  # type: ignore[arg-type]


@pytest.mark.parametrize("capability", ["10.0", "10.3", None])
def test_what_an_engine_would_reach_multicast_by_itself_is_turned_off(capability: str | None) -> None:
    assert fused({}, capability) == [OFF]
    assert fused({BACKEND: None}, capability) == [OFF]
    assert fused({BACKEND: "trtllm"}, capability) == [BACKEND, "trtllm"]
    with pytest.raises(UserError, match=f"{OFF} off is not launched"):
        fused({OFF: False}, capability)


def test_an_engine_that_would_not_is_left_as_it_is() -> None:
    assert fused({}, "9.0") == fused({}, "12.0") == fused({OFF: False}, "9.0") == []
    assert fused({}, "10.0", gpus=(0,)) == []


def test_a_program_that_undoes_what_every_launch_keeps_is_not_launched() -> None:
    with pytest.raises(UserError, match="is not launched: it changes NCCL_NVLS_ENABLE"):
        plan({}, {}, command=["env", "NCCL_NVLS_ENABLE=1", "toy", "serve"])


def test_variables_for_measuring_only_are_checked_too() -> None:
    with pytest.raises(UserError, match="NCCL_NVLS_ENABLE=1 is not launched"):
        plan({}, {}, trial_env={"NCCL_NVLS_ENABLE": "1"})
