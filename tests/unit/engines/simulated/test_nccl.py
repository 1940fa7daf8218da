"""NCCL's variables mean what NCCL 2.24 to 2.30 make of them on one PCIe node."""

from __future__ import annotations

import pytest

from tuner.engines.simulated.nccl import NcclConfigError, NcclSettings, read_environment


def read(**env: str) -> NcclSettings:
    return read_environment(env, default_channels=8, protocol_preference=("Simple", "LL", "LL128"))


@pytest.mark.parametrize(
    ("env", "algorithm", "protocol"),
    [
        ({}, "auto", "auto"),
        ({"NCCL_ALGO": "ring"}, "Ring", "auto"),
        ({"NCCL_ALGO": "ring,tree;allreduce:tree"}, "Tree", "auto"),
        ({"NCCL_ALGO": "^nvls"}, "auto", "auto"),
        ({"NCCL_PROTO": "ll"}, "auto", "LL"),
        ({"NCCL_PROTO": "LL,LL128,Simple"}, "auto", "auto"),
        ({"NCCL_PROTO": "LL,Simple"}, "auto", "Simple"),
        ({"NCCL_PROTO": "^LL"}, "auto", "Simple"),
        ({"NCCL_PROTO": "allreduce:LL128"}, "auto", "LL128"),
    ],
)
def test_what_the_all_reduce_uses(env: dict[str, str], algorithm: str, protocol: str) -> None:
    found = read(**env)
    assert (found.algorithm, found.protocol) == (algorithm, protocol)


@pytest.mark.parametrize(
    ("env", "late", "says"),
    [
        ({"NCCL_ALGO": "Tree"}, True, "No algorithm/protocol available for function Allgather"),
        ({"NCCL_ALGO": "allreduce:nvls"}, True, "No algorithm/protocol available for function Allreduce"),
        ({"NCCL_ALGO": "banana"}, False, 'Unrecognized element token "banana" when parsing NCCL_ALGO'),
        ({"NCCL_ALGO": "gather:ring"}, False, 'Unrecognized prefix token "gather"'),
        ({"NCCL_ALGO": "ring;tree"}, False, "All entries except the first must have a prefix"),
        ({"NCCL_PROTO": "LL64"}, False, 'Unrecognized element token "LL64" when parsing NCCL_PROTO'),
    ],
)
def test_what_ends_the_launch_and_when(env: dict[str, str], late: bool, says: str) -> None:
    with pytest.raises(NcclConfigError, match=says) as caught:
        read(**env)
    assert caught.value.at_first_call is late


@pytest.mark.parametrize(
    ("env", "channels"),
    [
        ({}, 8),
        ({"NCCL_MAX_NCHANNELS": "4"}, 4),
        ({"NCCL_MIN_NCHANNELS": "16"}, 16),
        ({"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "4"}, 16),
        ({"NCCL_MAX_NCHANNELS": "many"}, 1),
    ],
)
def test_channels_are_cut_to_the_maximum_first_and_raised_to_the_minimum_then(
    env: dict[str, str], channels: int
) -> None:
    assert read(**env).channels == channels


def test_p2p_disable_beats_the_level_and_an_unknown_level_is_passed_over() -> None:
    assert read(NCCL_P2P_LEVEL="SYS").p2p == "wide"
    both = read(NCCL_P2P_LEVEL="SYS", NCCL_P2P_DISABLE="1")
    assert (both.p2p, [name for name, _why in both.ignored]) == ("disabled", ["NCCL_P2P_LEVEL"])
    lower_case = read(NCCL_P2P_LEVEL="sys")
    assert (lower_case.p2p, len(lower_case.ignored)) == ("default", 1)
    assert read(NCCL_P2P_DISABLE="true").p2p == "default"
