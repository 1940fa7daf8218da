"""NCCL hardly ever complains; these values are caught before a launch."""

from __future__ import annotations

import pytest

from tuner.domain.space import Hardware
from tuner.domain.values import Value
from tuner.spec.nccl import remarks_on

NVLINK = Hardware(gpus=8, compute_capability="9.0")
PCIE = Hardware(gpus=8, compute_capability="12.0")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_ALGO", None),
        ("NCCL_ALGO", "Ring"),
        ("NCCL_ALGO", "ring,tree"),
        ("NCCL_ALGO", "ring,tree;allreduce:tree"),
        ("NCCL_ALGO", "RING;AllReduce:Tree,Ring"),
        ("NCCL_ALGO", "^tree"),
        ("NCCL_ALGO", "^nvls"),
        ("NCCL_PROTO", "LL"),
        ("NCCL_PROTO", "LL,LL128,Simple"),
        ("NCCL_PROTO", "^LL128"),
        ("NCCL_PROTO", "allreduce:LL;broadcast:Simple"),
        ("NCCL_P2P_LEVEL", "SYS"),
        ("NCCL_P2P_LEVEL", 4),
        ("NCCL_MAX_NCHANNELS", 8),
        ("NCCL_MAX_NCHANNELS", "32"),
        ("NCCL_P2P_DISABLE", True),
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_SOMETHING_ENTIRELY_NEW_FOR_SWITCHES", "1"),
        ("MAX_JOBS", "many"),
    ],
)
def test_values_that_do_what_they_say(name: str, value: Value) -> None:
    assert remarks_on(name, value, NVLINK) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("NCCL_ALGO", "Tree", "leaves no algorithm for broadcast"),
        ("NCCL_ALGO", "^ring", "leaves no algorithm for broadcast"),
        ("NCCL_ALGO", "ring,tree;allgather:tree", "leaves no algorithm for allgather"),
        ("NCCL_ALGO", "ring;allreduce:collnetdirect", "collnetdirect cannot run on one node"),
        ("NCCL_ALGO", "ring;allreduce:pat,nvlstree", "cannot run on one node"),
        ("NCCL_ALGO", "rign", "NCCL fails at start on 'rign'"),
        ("NCCL_ALGO", "ring, tree", "NCCL fails at start on ' tree'"),
        ("NCCL_ALGO", "ring;tree", "only the first entry may lack a function"),
        ("NCCL_ALGO", "ring;allredcue:tree", "NCCL knows no function 'allredcue'"),
        ("NCCL_PROTO", "LL,SImpel", "NCCL fails at start on 'SImpel'"),
        ("NCCL_P2P_LEVEL", "sys", "NCCL ignores the level sys"),
        ("NCCL_P2P_LEVEL", 6, "NCCL ignores the level 6"),
        ("NCCL_MAX_NCHANNELS", "yes", "NCCL reads 'yes' as 0"),
        ("NCCL_BUFFSIZE", "4M", "NCCL reads '4M' as 0"),
        ("NCCL_NTHREADS", 1.5, "NCCL reads 1.5 as 0"),
    ],
)
def test_values_that_cannot_serve_or_cannot_act(name: str, value: Value, words: str) -> None:
    found = remarks_on(name, value, NVLINK)
    assert [remark.fatal for remark in found] == [True]
    assert words in found[0].message


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("NCCL_PROTO", "LL182", "LL128"),
        ("NCCL_PROTO", "simpel", "Simple"),
        ("NCCL_ALGO", "ring;allreduce:tre", "Tree"),
        ("NCCL_ALGO", "NVLSTre", "NVLSTree"),
        ("NCCL_ALGO", "ring;AllRedcue:tree", "AllReduce"),
    ],
)
def test_a_suggestion_is_spelt_as_nccl_spells_it(name: str, value: str, meant: str) -> None:
    (remark,) = remarks_on(name, value, NVLINK)
    assert remark.hint == f"did you mean {meant}?"


def test_an_algorithm_for_all_reduce_alone_breaks_with_a_later_nccl() -> None:
    (remark,) = remarks_on("NCCL_ALGO", "allreduce:tree", NVLINK)
    assert not remark.fatal
    assert remark.hint is not None
    assert "ring,tree;allreduce:<algorithm>" in remark.hint


def test_ll128_over_pcie_is_warned_of() -> None:
    for value in ("LL128", "LL,LL128,Simple", "allreduce:LL128"):
        (remark,) = remarks_on("NCCL_PROTO", value, PCIE)
        assert (remark.fatal, "corrupted" in remark.message) == (False, True)
    assert remarks_on("NCCL_PROTO", "^LL128", PCIE) == []


def test_a_mistyped_name_is_suspected() -> None:
    (remark,) = remarks_on("NCCL_MAX_NCHANELS", 8, NVLINK)
    assert (remark.fatal, remark.hint) == (False, "did you mean NCCL_MAX_NCHANNELS?")
