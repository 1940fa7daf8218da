"""Settings that reach NVLink multicast are refused in every spelling."""

from __future__ import annotations

import pytest

from tuner.domain.denied import DENIED_ENV, KEPT_ENV, denied_env, denied_flag
from tuner.domain.values import Value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_NVLS_ENABLE", 1),
        ("NCCL_NVLS_ENABLE", "2"),
        ("NCCL_NVLS_ENABLE", True),
        ("TORCH_SYMM_MEM_DISABLE_MULTICAST", 0),
        ("NVSHMEM_DISABLE_NVLS", False),
        ("NCCL_ALGO", "NVLS"),
        ("NCCL_ALGO", "nvls,ring"),
        ("NCCL_ALGO", "ring,tree;allreduce:nvlstree"),
        ("NCCL_ALGO", "^ring;allreduce:NVLS"),
        ("VLLM_USE_NCCL_SYMM_MEM", 1),
        ("VLLM_FLASHINFER_ALLREDUCE_BACKEND", "auto"),
        ("VLLM_FLASHINFER_ALLREDUCE_BACKEND", "MNNVL"),
    ],
)
def test_variables_that_reach_multicast(name: str, value: Value) -> None:
    assert denied_env(name, value) is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_NVLS_ENABLE", 0),
        ("NCCL_NVLS_ENABLE", None),
        ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"),
        ("NCCL_ALGO", "^nvls"),
        ("NCCL_ALGO", "ring,tree;allreduce:tree"),
        ("VLLM_USE_NCCL_SYMM_MEM", 0),
        ("VLLM_FLASHINFER_ALLREDUCE_BACKEND", "trtllm"),
        ("NCCL_PROTO", "LL"),
    ],
)
def test_variables_that_do_not(name: str, value: Value) -> None:
    assert denied_env(name, value) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("--enable-nccl-nvls", True),
        ("--enable-symm-mem", True),
        ("--enable-torch-symm-mem", True),
        ("--flashinfer-allreduce-fusion-backend", "mnnvl"),
        ("--flashinfer-allreduce-fusion-backend", "auto"),
        ("--enable-flashinfer-allreduce-fusion", True),
    ],
)
def test_flags_that_reach_multicast(name: str, value: Value) -> None:
    assert denied_flag("sglang", name, value) is not None
    assert denied_flag("sglang", name, None) is None


def test_flags_that_do_not() -> None:
    assert denied_flag("sglang", "--enable-symm-mem", False) is None
    assert denied_flag("sglang", "--flashinfer-allreduce-fusion-backend", "trtllm") is None


def test_the_variables_that_every_launch_keeps_are_themselves_allowed() -> None:
    for name, value in KEPT_ENV.items():
        assert denied_env(name, value) is None
        assert any(entry.name == name for entry in DENIED_ENV)
