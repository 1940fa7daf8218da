"""Which environments a probe tries."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.domain.space import Space
from tuner.domain.values import Assignment
from tuner.probe.settings import setting_groups, usual_space

PROTO: dict[str, Any] = {"values": [None, "LL", "Simple"], "env": "NCCL_PROTO", "when": "own == off"}
ALGO: dict[str, Any] = {"values": [None, "Ring"], "env": "NCCL_ALGO", "when": "own == off"}
OWN: dict[str, Any] = {"switch": True, "flag": "--disable-custom-all-reduce", "inverted": True}
BASELINE: Assignment = {"own": True, "proto": None, "algo": None}


def space(knobs: dict[str, Any], **more: Any) -> Space:
    return Space.model_validate({"name": "s", "model": "m", "engines": {"vllm": {"knobs": knobs}}, **more})


def labels(of: Space, baseline: Assignment) -> list[str]:
    return [setting.label for setting in setting_groups(of, "vllm", baseline).all]


def test_each_value_alone_comes_first_then_protocol_with_algorithm() -> None:
    found = setting_groups(space({"own": OWN, "proto": PROTO, "algo": ALGO}), "vllm", BASELINE)
    assert [s.label for s in found.single] == ["default", "proto=LL", "proto=Simple", "algo=Ring"]
    assert [s.label for s in found.pairs] == ["proto=LL, algo=Ring", "proto=Simple, algo=Ring"]
    assert found.single[1].env == {"NCCL_PROTO": "LL"}
    assert found.pairs[0].env == {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}


def test_knobs_that_sleep_behind_the_engines_own_all_reduce_are_woken_up() -> None:
    asleep: Assignment = {"own": True, "proto": None}
    assert setting_groups(space({"own": OWN, "proto": PROTO}), "vllm", asleep).parents == {"own": False}


def test_knobs_that_are_awake_leave_the_others_alone() -> None:
    awake: Assignment = {"own": False, "proto": None}
    assert setting_groups(space({"own": OWN, "proto": PROTO}), "vllm", awake).parents == {}


def test_the_default_is_the_baseline_and_unset_is_a_value_like_others() -> None:
    found = setting_groups(space({"own": OWN, "proto": PROTO}), "vllm", {"own": False, "proto": "LL"})
    assert found.single[0].env == {"NCCL_PROTO": "LL"}
    assert [(s.label, dict(s.env)) for s in found.single[1:]] == [
        ("proto=unset", {}),
        ("proto=Simple", {"NCCL_PROTO": "Simple"}),
    ]


def test_what_a_rule_forbids_is_not_tried() -> None:
    rules = [{"forbid": "proto == LL and algo == Ring"}]
    found = setting_groups(space({"own": OWN, "proto": PROTO, "algo": ALGO}, rules=rules), "vllm", BASELINE)
    assert [s.label for s in found.pairs] == ["proto=Simple, algo=Ring"]


def test_nvlink_multicast_is_never_tried() -> None:
    nvls = {"values": [None, "allreduce:nvls"], "env": "NCCL_ALGO"}
    switch = {"values": [0, 1], "env": "NCCL_NVLS_ENABLE"}
    found = labels(space({"algo": nvls, "nvls": switch}), {"algo": None, "nvls": 0})
    assert found == ["default"]


def test_switches_are_written_as_nccl_reads_them() -> None:
    found = setting_groups(space({"p2p_off": {"switch": True, "env": "NCCL_P2P_DISABLE"}}), "vllm", {"p2p_off": False})
    assert [dict(s.env) for s in found.single] == [{"NCCL_P2P_DISABLE": "0"}, {"NCCL_P2P_DISABLE": "1"}]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_without_a_space_the_usual_knobs_are_tried(engine: str) -> None:
    of = usual_space("m", engine, 2)
    found = setting_groups(of, engine, {"nccl_proto": None, "nccl_algo": None, "nccl_max_channels": None})
    assert len(found.single) == 1 + 3 + 2 + 3
    assert len(found.pairs) == 3 * 2
    assert not any("NVLS" in text.upper() for setting in found.all for text in setting.env.values())
