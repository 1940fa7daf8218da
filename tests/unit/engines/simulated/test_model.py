"""The performance model: its anchors, its gates, its regions, and the reference of its best points."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tuner.engines.simulated.model import Speed, parse_settings, truth
from tuner.engines.simulated.modelfile import SimModel, load_model, models_dir
from tuner.engines.simulated.reference import goals, neighbours, score_of

LL = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "--num-continuous-decode-steps": 4}


@pytest.fixture(scope="module")
def sm120() -> SimModel:
    return load_model("sm120")


def rates(model: SimModel, settings: dict[str, Any], flavor: str = "sglang") -> tuple[float, float]:
    found = truth(model, flavor, settings)
    assert found.failure is None, found.failure
    return found.rates[1], found.rates[128]


def failure(model: SimModel, settings: dict[str, Any], flavor: str = "sglang") -> str | None:
    found = truth(model, flavor, settings).failure
    return None if found is None else found.fault


def test_the_anchors_of_the_file_are_met(sm120: SimModel) -> None:
    assert len(sm120.anchors) == 3
    for anchor in sm120.anchors:
        found = rates(sm120, dict(anchor.settings), anchor.flavor)
        assert found == pytest.approx((anchor.single_stream, anchor.throughput), rel=1e-5)


def test_the_anchors_are_those_of_the_story(sm120: SimModel) -> None:
    assert rates(sm120, {}) == pytest.approx((63.6, 2370), rel=1e-5)
    assert rates(sm120, LL) == pytest.approx((90.0, 2320), rel=1e-5)
    assert rates(sm120, {}, "vllm") == pytest.approx((82.5, 1536), rel=1e-5)


def test_there_are_faster_points_beyond_the_anchors(sm120: SimModel) -> None:
    best = json.loads((models_dir() / "sm120.reference.json").read_text())["flavors"]["sglang"]["balanced"]
    assert best["single_stream"] > 95
    assert best["throughput"] > 0.97 * 2370


def test_the_throughput_formula_is_the_documented_one(sm120: SimModel) -> None:
    speed = Speed(sm120, parse_settings(sm120, "sglang", {}))
    batch, shape = 32, sm120.workload
    total_ms = (
        speed.admission_ms
        + batch * shape.input_tokens * speed.prefill_ms_per_token
        + (shape.output_tokens - 1) * speed.step_ms(batch)
    )
    assert truth(sm120, "sglang", {}, levels=[32]).rates[32] == pytest.approx(
        batch * shape.output_tokens / total_ms * 1e3
    )


@pytest.mark.parametrize(
    "setting",
    [{"NCCL_PROTO": "LL"}, {"NCCL_ALGO": "Ring"}, {"NCCL_MAX_NCHANNELS": 2}, {"NCCL_P2P_LEVEL": "SYS"}],
)
def test_nccl_settings_act_only_while_the_engine_leaves_all_reduce_to_nccl(
    sm120: SimModel, setting: dict[str, Any]
) -> None:
    own = {"--enable-custom-all-reduce": True}
    assert rates(sm120, {**own, **setting}) == rates(sm120, own)
    assert rates(sm120, setting) != rates(sm120, {})
    inactive = parse_settings(sm120, "sglang", {**own, **setting}).inactive
    assert set(inactive) == set(setting)


def test_graph_sizes_act_only_with_graphs(sm120: SimModel) -> None:
    eager = {"--disable-cuda-graph": True}
    assert rates(sm120, {**eager, "--cuda-graph-max-bs-decode": 8}) == rates(sm120, eager)
    small = rates(sm120, {"--cuda-graph-max-bs-decode": 8})
    assert small[0] > rates(sm120, {})[0]
    assert small[1] < rates(sm120, {})[1]


def test_settings_interact(sm120: SimModel) -> None:
    """What fewer channels gain alone depends on whether the protocol is fast."""
    few = {"NCCL_MAX_NCHANNELS": 3}
    gain = 1 / rates(sm120, {})[0] - 1 / rates(sm120, few)[0]
    gain_with_ll = 1 / rates(sm120, LL)[0] - 1 / rates(sm120, {**LL, **few})[0]
    assert gain > 1.5 * gain_with_ll > 0


@pytest.mark.parametrize(
    "setting",
    [
        {"--triton-attention-reduce-in-fp32": True},
        {"--spec-trace-dir": "x"},
        {"--prefetch-depth": 4},
        {"NCCL_NTHREADS": 256},
    ],
)
def test_dead_settings_change_nothing(sm120: SimModel, setting: dict[str, Any]) -> None:
    assert rates(sm120, setting) == rates(sm120, {})


def test_decode_steps_do_nothing_for_vllm(sm120: SimModel) -> None:
    steps = {"--num-continuous-decode-steps": 4}
    assert rates(sm120, steps, "vllm") == rates(sm120, {}, "vllm")
    assert parse_settings(sm120, "vllm", steps).inactive


def test_the_wrong_answer_option_is_about_thirty_percent_faster(sm120: SimModel) -> None:
    found = truth(sm120, "sglang", {"--kv-cache-dtype": "fp4-fast"})
    assert found.corrupts > 0
    assert 1.25 < found.rates[1] / 63.6 < 1.40
    assert truth(sm120, "sglang", {"--kv-cache-dtype": "fp8_e4m3"}).corrupts == 0


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"--attention-backend": "flashinfer"}, "hang@graph_capture"),
        ({"--attention-backend": "flashinfer", "--cuda-graph-max-bs-decode": 56}, None),
        ({"--attention-backend": "flashinfer", "--disable-cuda-graph": True}, None),
        ({"--attention-backend": "fa3"}, "crash@weights:class=unsupported"),
        ({"--mem-fraction-static": 0.56}, "crash@profile:class=kv_too_small"),
        ({"--mem-fraction-static": 0.93}, "crash@graph_capture:class=oom_graph"),
        ({"--mem-fraction-static": 0.95, "--disable-cuda-graph": True}, "crash@profile:class=oom_weights"),
        ({"--mem-fraction-static": 0.91}, "crash@serving:class=oom_runtime,running=96"),
        ({"--mem-fraction-static": 0.88}, None),
        ({"NCCL_ALGO": "Tree"}, "crash@graph_capture:class=nccl_config"),
        ({"NCCL_ALGO": "banana"}, "crash@nccl_init:class=nccl_config"),
        ({"NCCL_ALGO": "ring,tree;allreduce:tree"}, None),
    ],
)
def test_regions_in_which_a_launch_fails(sm120: SimModel, settings: dict[str, Any], fault: str | None) -> None:
    assert failure(sm120, settings) == fault


def test_less_kv_room_than_the_load_needs_costs_throughput(sm120: SimModel) -> None:
    tight = {"--mem-fraction-static": 0.70}
    assert rates(sm120, tight)[1] < rates(sm120, {})[1]
    assert rates(sm120, {**tight, "--kv-cache-dtype": "fp8_e4m3"})[1] > rates(sm120, tight)[1]
    assert rates(sm120, tight)[0] == rates(sm120, {})[0]


def test_fewer_running_requests_than_clients_costs_throughput(sm120: SimModel) -> None:
    assert rates(sm120, {"--max-running-requests": 64})[1] < 0.85 * rates(sm120, {})[1]


@pytest.mark.parametrize("flavor", ["sglang", "vllm"])
@pytest.mark.parametrize("goal", ["single_stream", "throughput", "balanced"])
def test_no_single_change_beats_a_point_of_the_reference(sm120: SimModel, flavor: str, goal: str) -> None:
    listed = json.loads((models_dir() / "sm120.reference.json").read_text())["flavors"][flavor][goal]
    assert rates(sm120, listed["settings"], flavor) == pytest.approx(
        (listed["single_stream"], listed["throughput"]), rel=1e-4
    )
    score = goals(sm120, flavor)[goal]
    best = score_of(sm120, flavor, listed["settings"], score)
    better = [n for n in neighbours(listed["settings"]) if score_of(sm120, flavor, n, score) > best + 1e-6]
    assert better == []
