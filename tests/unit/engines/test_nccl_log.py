"""NCCL's own lines, from a real log of two H200 with `NCCL_NVLS_ENABLE=0` under 2.28.9, and variants of its lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.domain.trial import Activity
from tuner.engines.nccl_log import (
    NcclReading,
    own_all_reduce,
    read_nccl_log,
    variable_activity,
    verification_env,
)

DATA = Path(__file__).parents[2] / "data" / "nccl"
SIZES = (8 << 10, 256 << 10, 1 << 20)  # decode steps of an 8-billion model at C=1, 32 and 128


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return (DATA / "tuning_2.28.9.log").read_text().splitlines()


@pytest.fixture(scope="module")
def reading(lines: list[str]) -> NcclReading:
    return read_nccl_log(lines)


def with_variable(lines: list[str], name: str, value: str) -> NcclReading:
    return read_nccl_log([*lines, f"vm:705:705 [0] NCCL INFO {name} set by environment to {value}."])


def test_version_variables_channels_and_calls_are_read(reading: NcclReading) -> None:
    assert (reading.version, reading.channels) == ((2, 28, 9), 24)
    assert reading.variables == {"NCCL_NVLS_ENABLE": "0"}
    (small,) = reading.all_reduces([8192])
    assert (small.algorithm, small.protocol) == ("RING", "LL")
    assert small.count > 1
    assert reading.all_reduces([12345]) == ()


def test_a_variable_that_nccl_read_and_that_decides_the_call_is_active(lines: list[str]) -> None:
    state, reason = variable_activity("NCCL_PROTO", "LL", with_variable(lines, "NCCL_PROTO", "LL"), SIZES)
    assert (state, reason) == (Activity.ACTIVE, "NCCL read it; decode steps use RING LL")


def test_a_variable_that_nccl_never_read_is_inactive(reading: NcclReading) -> None:
    assert variable_activity("NCCL_P2P_LEVEL", "phb", reading, SIZES) == (Activity.INACTIVE, "NCCL did not read it")


def test_a_number_that_nccl_understood_as_another_is_inactive(lines: list[str]) -> None:
    found = variable_activity("NCCL_BUFFSIZE", "4M", with_variable(lines, "NCCL_BUFFSIZE", "4"), SIZES)
    assert found == (Activity.INACTIVE, "asked 4M, NCCL understood 4")


def test_calls_that_go_another_way_than_asked_betray_an_inactive_choice(lines: list[str]) -> None:
    read = with_variable(lines, "NCCL_PROTO", "Simple")
    assert variable_activity("NCCL_PROTO", "Simple", read, SIZES) == (Activity.INACTIVE, "decode steps use RING LL")


@pytest.mark.parametrize("asked", ["^nvls", "ring,tree", "tree;allreduce:ring", "broadcast:tree"])
def test_a_choice_that_allows_what_was_used_is_active(lines: list[str], asked: str) -> None:
    state, _ = variable_activity("NCCL_ALGO", asked, with_variable(lines, "NCCL_ALGO", asked), SIZES)
    assert state is Activity.ACTIVE


def test_no_all_reduce_of_decode_size_means_that_the_engine_bypasses_nccl(lines: list[str]) -> None:
    bypassed = [line for line in lines if "AllReduce:" not in line]
    read = with_variable(bypassed, "NCCL_PROTO", "LL")
    state, reason = variable_activity("NCCL_PROTO", "LL", read, SIZES, own="CUSTOM")
    assert state is Activity.INACTIVE
    assert "own all-reduce (CUSTOM) serves decode steps" in reason


def test_a_version_that_logs_no_calls_leaves_it_open(lines: list[str]) -> None:
    old = [line.replace("2.28.9", "2.21.5") for line in lines if "AllReduce:" not in line]
    assert variable_activity("NCCL_PROTO", "LL", with_variable(old, "NCCL_PROTO", "LL"), SIZES)[0] is Activity.UNKNOWN


@pytest.mark.parametrize(
    ("version", "line", "state", "reason"),
    [
        # Since 2.31 a call's line goes on behind the channels.
        (
            "2.31.2",
            "AllReduce: 8192 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0} cgaClusterSize 0",
            Activity.ACTIVE,
            "NCCL read it; decode steps use RING LL",
        ),
        ("2.24.3", "AllReduce: 8192 Bytes -> Algo Tree proto LL channel{Lo..Hi}={0..1}", Activity.ACTIVE, "TREE LL"),
        ("2.23.4", "AllReduce: 8192 Bytes -> Algo 1 proto 0 time 9.800000", Activity.ACTIVE, "RING LL"),
        ("2.23.4", "AllReduce: 8192 Bytes -> Algo 1 proto 2 time 9.800000", Activity.INACTIVE, "RING SIMPLE"),
        ("2.23.4", "AllGather: 8192 Bytes -> Algo 1 proto 0 time 9.800000", Activity.INACTIVE, "something else serves"),
        ("2.20.5", "8192 Bytes -> Algo 1 proto 0 time 9.800000", Activity.UNKNOWN, "which calls are all-reduces"),
        ("2.20.5", "805306368 Bytes -> Algo 1 proto 2 time 3970.683594", Activity.INACTIVE, "something else serves"),
        ("2.18.6", "Connected all rings", Activity.UNKNOWN, "version 2.18.6 logs no calls"),
        ("2.30.7", "Connected all rings", Activity.INACTIVE, "something else serves"),
    ],
)
def test_calls_are_read_in_the_words_of_each_version(version: str, line: str, state: Activity, reason: str) -> None:
    reading = read_nccl_log(
        [
            f"vm:705:705 [0] NCCL INFO NCCL version {version}+cuda12.8",
            "vm:705:705 [0] NCCL INFO NCCL_PROTO set by environment to LL",
            f"vm:705:705 [0] NCCL INFO {line}",
        ]
    )
    found = variable_activity("NCCL_PROTO", "LL", reading, SIZES)
    assert found[0] is state
    assert reason in found[1]


def test_symmetric_kernels_are_calls_that_no_choice_decides(lines: list[str]) -> None:
    symmetric = "vm:1:1 [0] NCCL INFO AllReduce [Symmetric]: 8192 Bytes -> Kernel AllReduce_RSxLD_AGxST nchannels 8"
    bypassed = [line for line in lines if "AllReduce:" not in line]
    read = with_variable([*bypassed, symmetric], "NCCL_PROTO", "LL")
    assert variable_activity("NCCL_PROTO", "LL", read, SIZES)[0] is Activity.INACTIVE


def test_vllm_names_the_all_reduce_that_comes_first() -> None:
    lines = (DATA / "vllm_backends.log").read_text().splitlines()
    assert own_all_reduce(lines) == "CUSTOM"
    assert own_all_reduce([lines[0].replace("'CUSTOM', ", "")]) is None
    aside = "WARNING Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs."
    assert own_all_reduce([*lines, aside]) is None
    assert own_all_reduce(["nothing of the kind"]) is None


@pytest.mark.parametrize(
    ("lines", "own"),
    [
        (["[TP0] All Reduce config: symmetric_memory = 80.01 MB, local_buffer = 2.00 MB, multicast = False"], True),
        (["CustomAllReduceV2 is disabled because it's not supported on more than two PCIe-only GPUs."], False),
        (
            ["CustomAllreduce is disabled due to an unsupported world size: 5. Supported world sizes: [2, 4, 6, 8]."],
            False,
        ),
        (["Setup Custom allreduce failed with invalid literal for int(): 'GPU-1'. To silence this warning, …"], False),
        (["All Reduce config: symmetric_memory = 80.01 MB", "Setup Custom allreduce failed with out of memory"], False),
        (["Custom quick allreduce is disabled because this works on AMD only"], False),
    ],
)
def test_sglang_says_whether_its_own_all_reduce_is_set_up(lines: list[str], own: bool) -> None:
    assert own_all_reduce(lines) == ("custom all-reduce" if own else None)


def test_a_verification_launch_lets_every_process_write_a_file_of_its_own() -> None:
    env = verification_env("/runs/x")
    assert env["NCCL_DEBUG_FILE"] == "/runs/x/nccl.%h.%p"
    assert {"ENV", "TUNING"} <= set(env["NCCL_DEBUG_SUBSYS"].split(","))
