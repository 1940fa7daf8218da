"""The script of the GPU run, from study to the exported server measured again, on the simulated engine."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tuner.domain.trial import Purpose
from tuner.store import open_store

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a small, quick study; what comes after it finds the study's name in the folder."""
    folder = tmp_path_factory.mktemp("gpu-run")
    space = (ROOT / "search_spaces" / "quickstart.yaml").read_text()
    space = space.replace("--time-scale: 30", "--time-scale: 100").replace("levels: [1, 32]", "levels: [1, 8]")
    (folder / "space.yaml").write_text(space.replace("confirm_launches: 2", "confirm_launches: 0"))
    work = folder / "work"
    asked = ["--name", "night", "--space", str(folder / "space.yaml"), "--trials", "5"]
    run(work, *asked, "--steps", "study,confirm,report,export")
    return work


def run(work: Path, *options: str, exit_code: int = 0) -> str:
    """`run.py` as a user would call it, with this interpreter's `tuner`; returns what it says beside its steps."""
    given = ["--engine", "simulated", "--model", str(work), "--launches", "2"]
    command = [sys.executable, str(ROOT / "tools" / "gpu_run" / "run.py"), "--work", str(work), *given, *options]
    program = Path(sys.executable).with_name("tuner")
    done = subprocess.run([*command, "--tuner", str(program)], timeout=300, capture_output=True, text=True, check=False)
    assert done.returncode == exit_code, done.stderr
    return done.stderr


def steps_of(work: Path) -> dict[str, int]:
    """Step → exit code."""
    return {
        step["step"]: step["exit_code"] for step in map(json.loads, (work / "steps.jsonl").read_text().splitlines())
    }


def test_every_step_ends_well(work: Path) -> None:
    steps = steps_of(work)
    assert {name for name, code in steps.items() if code} == set()
    assert {"study", "confirm", "report", "export-single-stream", "bench-single-stream", "bench-throughput"} <= set(
        steps
    )


def test_the_confirmation_asks_nobody_and_launches_as_often_as_was_said(work: Path) -> None:
    assert {arm["launches"] for arm in json.loads((work / "confirm.json").read_text())["arms"]} == {2}


def test_the_exported_server_was_measured_at_the_runs_loads(work: Path) -> None:
    measured = json.loads((work / "bench-single-stream.json").read_text())
    assert [level["level"] for level in measured["levels"]] == [1, 32, 128]
    assert measured["simulated"] is True


def test_a_run_on_a_study_that_is_there_goes_on_with_it(work: Path) -> None:
    with open_store(f"sqlite:///{work}/study.db") as store:
        before = store.attempts("night")
        run(work, "--trials", str(len(before) + 1), "--steps", "study")
        added = store.attempts("night")[len(before) :]
    assert [attempt.purpose for attempt in added] == [Purpose.SEARCH]


def test_the_results_come_in_one_archive_with_the_study(work: Path, tmp_path: Path) -> None:
    run(work, "--collect", str(tmp_path))
    with tarfile.open(tmp_path / "gpu-run.tar.gz") as archive:
        names = archive.getnames()
    assert {"gpu-run/study.db", "gpu-run/confirm.json", "gpu-run/export-single-stream.sh"} <= set(names)
    assert {"gpu-run/runs/night/trial-0000/attempt-1/server.log"} <= set(names)


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert run(tmp_path, "--steps", "report", exit_code=1).startswith(f"a run goes on in {tmp_path}: wait until")
    assert not (tmp_path / "steps.jsonl").exists()


def test_a_step_that_fails_says_why_and_makes_the_exit_code_of_the_whole(tmp_path: Path) -> None:
    said = run(tmp_path, "--steps", "study,confirm,report", "--space", "no-such-space.yaml", exit_code=1)
    lines = said.splitlines()
    assert lines[0].startswith("study: error: no-such-space.yaml: ")
    assert f"(see {tmp_path / 'study.log'})" in lines[0]
    assert lines[1:] == [f"{name}: left out, there is no study in {tmp_path}" for name in ("confirm", "report")]
    assert json.loads((tmp_path / "steps.jsonl").read_text())["exit_code"] != 0


@pytest.mark.parametrize(
    "command", [["start"], ["wait", "1"], ["collect", "results"], ["relaunch", "1", "warm", "results"]]
)
def test_the_offline_script_says_what_must_come_first(tmp_path: Path, command: list[str]) -> None:
    script = ROOT / "tools" / "gpu_run" / "offline.sh"
    environment = {**os.environ, "GPU_RUN": str(tmp_path)}
    done = subprocess.run(["bash", script, *command], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"nothing is unpacked in {tmp_path}: offline.sh unpack FOLDER")
    assert list(tmp_path.iterdir()) == []
