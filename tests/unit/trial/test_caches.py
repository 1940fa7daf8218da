"""Caches of compiled kernels: shared by the launches of one engine version on one kind of machine, by nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tuner.domain.launch import LaunchPlan
from tuner.engines.definition import load_definition
from tuner.engines.installed import Installed
from tuner.trial.caches import cache_root, engine_cache, with_caches
from tuner.trial.machine import GpuFacts, MachineFacts

INSTALLED = Installed(("/env/bin/vllm",), "0.26.0", {"torch": "2.11.0"})
GPU = GpuFacts(0, "NVIDIA H200", "GPU-1", "9.0", 143771, 0, "0000:01:00.0")
MACHINE = MachineFacts("one", "6.1", "EPYC", 32, 256.0, (GPU,), driver="580.159.04")
PLAN = LaunchPlan("vllm", ("vllm",), {"A": "1"}, "127.0.0.1", 1, trial_only_env=("A",))


@pytest.fixture(autouse=True)
def chosen_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("installed", "machine"),
    [
        pytest.param(replace(INSTALLED, version="0.27.0"), MACHINE, id="engine"),
        pytest.param(replace(INSTALLED, packages={"torch": "2.12.0"}), MACHINE, id="torch"),
        pytest.param(INSTALLED, replace(MACHINE, driver="590.1"), id="driver"),
        pytest.param(INSTALLED, replace(MACHINE, cpu="Xeon"), id="cpu"),
        pytest.param(INSTALLED, replace(MACHINE, gpus=(replace(GPU, name="NVIDIA H100"),)), id="gpu"),
        pytest.param(INSTALLED, replace(MACHINE, gpus=(GPU, GPU)), id="gpus"),
    ],
)
def test_what_could_change_a_compiled_kernel_changes_the_folder(installed: Installed, machine: MachineFacts) -> None:
    assert engine_cache("vllm", installed, machine) != engine_cache("vllm", INSTALLED, MACHINE)


def test_two_machines_of_one_kind_and_two_places_of_one_installation_share_it() -> None:
    elsewhere = replace(INSTALLED, program=("/other/bin/vllm",))
    twin = replace(MACHINE, hostname="two", memory_gib=512.0)
    assert engine_cache("vllm", elsewhere, twin) == engine_cache("vllm", INSTALLED, MACHINE)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_launch_keeps_every_cache_below_that_folder_and_its_export_does_not(engine: str, chosen_root: Path) -> None:
    definition = load_definition(engine)
    plan = with_caches(replace(PLAN, engine=engine), definition, INSTALLED)
    assert {"TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"} <= set(definition.cache_env)
    for name in definition.cache_env:
        assert Path(plan.env[name]).is_relative_to(chosen_root / "engines")
    assert set(plan.trial_only_env) == {"A", *definition.cache_env}
    assert len({plan.env[name] for name in definition.cache_env}) == len(definition.cache_env)


def test_what_the_space_says_of_a_cache_stays() -> None:
    asked = replace(PLAN, env={"VLLM_CACHE_ROOT": "/mine"})
    plan = with_caches(asked, load_definition("vllm"), INSTALLED)
    assert plan.env["VLLM_CACHE_ROOT"] == "/mine"
    assert "VLLM_CACHE_ROOT" not in plan.trial_only_env


def test_an_engine_of_unknown_version_shares_with_nobody() -> None:
    assert with_caches(PLAN, load_definition("vllm"), replace(INSTALLED, version=None)) == PLAN


def test_the_cache_lies_where_caches_of_the_user_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TUNER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "tuner"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "tuner"
