"""Settings that reach NVLink multicast are refused in every spelling."""

from __future__ import annotations

import pytest

from tuner.domain.catalogue import FlagCatalogue
from tuner.domain.denied import BUILT_IN, DENIED_ENV, KEPT_ENV
from tuner.domain.values import FlagValue, Value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_NVLS_ENABLE", 1),
        ("NCCL_NVLS_ENABLE", "2"),
        ("NCCL_NVLS_ENABLE", True),
        ("TORCH_SYMM_MEM_DISABLE_MULTICAST", 0),
        ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "on"),  # torch reads 0 and 1, and ignores every other word
        ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "true"),
        ("NVSHMEM_DISABLE_NVLS", False),
        ("NCCL_ENV_PLUGIN", "/opt/plugin.so"),
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
    assert BUILT_IN.refuses_env(name, value) is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_NVLS_ENABLE", 0),
        ("NCCL_NVLS_ENABLE", None),
        ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"),
        ("TORCH_SYMM_MEM_DISABLE_MULTICAST", True),
        ("NCCL_ENV_PLUGIN", "none"),
        ("NCCL_ALGO", "^nvls"),
        ("NCCL_ALGO", "ring,tree;allreduce:tree"),
        ("VLLM_USE_NCCL_SYMM_MEM", 0),
        ("VLLM_FLASHINFER_ALLREDUCE_BACKEND", "trtllm"),
        ("NCCL_PROTO", "LL"),
    ],
)
def test_variables_that_do_not(name: str, value: Value) -> None:
    assert BUILT_IN.refuses_env(name, value) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("--enable-nccl-nvls", True),
        ("--enable-symm-mem", True),
        ("--enable-torch-symm-mem", True),
        ("--flashinfer-allreduce-fusion-backend", "mnnvl"),
        ("--flashinfer-allreduce-fusion-backend", "auto"),
        ("--flashinfer-allreduce-fusion-backend", "cutedsl"),
        ("--flashinfer-allreduce-fusion-backend", ("trtllm", "mnnvl")),
        ("--enable-mscclpp", True),
        ("--config", "settings.yaml"),
        ("--enable-flashinfer-allreduce-fusion", True),
    ],
)
def test_flags_that_reach_multicast(name: str, value: FlagValue) -> None:
    assert BUILT_IN.refuses_flag("sglang", name, value) is not None
    assert BUILT_IN.refuses_flag("sglang", name, None) is None


def test_flags_that_do_not() -> None:
    assert BUILT_IN.refuses_flag("sglang", "--enable-symm-mem", False) is None
    assert BUILT_IN.refuses_flag("sglang", "--flashinfer-allreduce-fusion-backend", "trtllm") is None


def test_the_variables_that_every_launch_keeps_are_themselves_allowed() -> None:
    for name, value in KEPT_ENV.items():
        assert BUILT_IN.refuses_env(name, value) is None
        assert any(entry.name == name for entry in DENIED_ENV)


CATALOGUE = FlagCatalogue.from_json(
    {
        "engine": "sglang",
        "version": "1",
        "flags": [
            {"name": "--enable-symm-mem", "kind": "switch"},
            {"name": "--config", "kind": "value"},
            {"name": "--tp-size", "kind": "value"},
        ],
    }
)


@pytest.mark.parametrize(
    "program",
    [
        ["env", "NCCL_NVLS_ENABLE=1", "vllm", "serve"],
        ["env", "-u", "NCCL_NVLS_ENABLE", "vllm", "serve"],
        ["/usr/bin/env", "-i", "vllm", "serve"],
        ["bash", "-c", 'export NVSHMEM_DISABLE_NVLS="0"; exec vllm serve "$@"'],
        ["bash", "-c", "unset TORCH_SYMM_MEM_DISABLE_MULTICAST; exec vllm serve $@"],
        ["bash", "-c", "VLLM_USE_NCCL_SYMM_MEM='1' vllm serve $@"],
        ["env", "NCCL_ALGO=NVLS", "vllm", "serve"],
        ["python3", "-m", "sglang.launch_server", "--enable-symm-mem"],
        ["python3", "-m", "sglang.launch_server", "--enable-symm"],
        ["python3", "-m", "sglang.launch_server", "--config", "settings.yaml"],
        ["python3", "-m", "sglang.launch_server", "--config=settings.yaml"],
    ],
)
def test_a_program_may_not_undo_what_every_launch_keeps(program: list[str]) -> None:
    assert BUILT_IN.refuses_program("sglang", CATALOGUE, program) is not None


@pytest.mark.parametrize(
    "program",
    [
        ["/opt/venv/bin/python", "-m", "sglang.launch_server"],
        ["env", "NCCL_NVLS_ENABLE=0", "NCCL_PROTO=LL", "vllm", "serve"],
        ["numactl", "-i", "all", "python3", "-m", "sglang.launch_server", "--tp-size", "8"],
        ["bash", "-c", "cd /opt/env && exec vllm serve $@"],
    ],
)
def test_a_program_that_leaves_it_alone_may_start_servers(program: list[str]) -> None:
    assert BUILT_IN.refuses_program("sglang", CATALOGUE, program) is None
