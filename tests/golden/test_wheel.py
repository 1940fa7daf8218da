"""The built wheel works outside the checkout: its data travels with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")


def run(command: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    hidden = {"PYTHONPATH", "TUNER_LAUNCHERS", "TUNER_SPACES", "TUNER_STORAGE", "TUNER_RUNS", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        command, cwd=folder, env={**environment, **more}, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel in it, and a folder that is no checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    run([str(UV), "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)], folder)
    (wheel,) = folder.glob("tuner-*.whl")
    run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], folder)
    python = str(folder / "env" / "bin" / "python")
    lock = str(ROOT / "requirements.lock")
    run([str(UV), "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", lock], folder)
    run([str(UV), "pip", "install", "--quiet", "--python", python, "--no-deps", str(wheel)], folder)
    return folder


def test_an_installed_tuner_finds_its_spaces_engines_and_migrations(installed: Path) -> None:
    tuner = str(installed / "env" / "bin" / "tuner")
    spaces = json.loads(run([tuner, "space", "list", "--json"], installed).stdout)
    assert "quickstart" in json.dumps(spaces)
    assert "site-packages" in json.dumps(spaces)
    engines = run([tuner, "engine", "list"], installed).stdout
    assert all(name in engines for name in ("sglang", "vllm", "simulated"))


def test_an_installed_tuner_runs_a_study_and_exports_it(installed: Path) -> None:
    tuner = str(installed / "env" / "bin" / "tuner")
    run([tuner, "study", "start", "--space", "quickstart", "--trials", "3", "--name", "night", "--yes"], installed)
    rows = json.loads(run([tuner, "study", "trials", "night", "--json"], installed).stdout)["trials"]
    assert [row["state"] for row in rows[:3]] == ["measured"] * 3
    run([tuner, "export", "night", "-o", "serve.sh"], installed)
    assert (installed / "serve.sh").stat().st_mode & 0o100
