"""The guard outlives nothing and lets nothing outlive its worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from support.launches import alive, born, eventually
from support.workers import ROOT, kill, start_worker

from tuner.trial.proctree import ProcessId
from tuner.trial.record import LaunchRecord
from tuner.trial.sweep import sweep


def test_a_sweep_ends_what_is_left_when_guard_and_worker_are_killed_together(tmp_path: Path) -> None:
    worker, guard = start_worker(tmp_path / "trial" / "1", "family", "no-cgroup")
    run_dir = tmp_path / "trial" / "1"
    assert eventually(lambda: len(born(run_dir)) == 5)
    assert eventually(lambda: {member.pid for member in _members(run_dir)} >= set(born(run_dir)))
    os.kill(worker.pid, signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    kill(worker)
    assert eventually(lambda: len(alive(run_dir)) == 4)  # only the leader is ended by the kernel
    swept = sweep(tmp_path)
    assert [len(launch.ended) for launch in swept] == [4]
    assert alive(run_dir) == []
    assert sweep(tmp_path) == []


def test_a_sweep_leaves_a_launch_alone_whose_worker_lives(tmp_path: Path) -> None:
    worker, _ = start_worker(tmp_path, "quiet")
    try:
        assert eventually(lambda: len(born(tmp_path)) == 1)
        assert sweep(tmp_path) == []
        assert len(alive(tmp_path)) == 1
    finally:
        kill(worker)
    assert eventually(lambda: alive(tmp_path) == [])


def test_a_sweep_does_not_touch_a_process_that_only_has_a_recorded_number(tmp_path: Path) -> None:
    worker, _ = start_worker(tmp_path, "quiet")
    assert eventually(lambda: len(born(tmp_path)) == 1)
    kill(worker)
    assert eventually(lambda: alive(tmp_path) == [])
    with subprocess.Popen(["sleep", "600"]) as stranger:
        content = json.loads((tmp_path / "launch.json").read_text())
        content["server"][0] = content["guard"][0] = stranger.pid
        content["members"] = [[stranger.pid, content["server"][1]]]
        (tmp_path / "launch.json").write_text(json.dumps(content))
        assert sweep(tmp_path) == []
        assert stranger.poll() is None
        stranger.kill()


def test_a_sweep_trusts_no_number_of_an_earlier_boot(tmp_path: Path) -> None:
    worker, _ = start_worker(tmp_path, "quiet")
    content = json.loads((tmp_path / "launch.json").read_text())
    kill(worker)
    assert eventually(lambda: alive(tmp_path) == [])
    with subprocess.Popen(["sleep", "600"]) as stranger:
        start = int(Path(f"/proc/{stranger.pid}/stat").read_text().rpartition(")")[2].split()[19])
        (tmp_path / "launch.json").write_text(
            json.dumps({**content, "server": [stranger.pid, start], "boot": "another boot"})
        )
        assert sweep(tmp_path) == []
        assert stranger.poll() is None
        stranger.kill()
    assert LaunchRecord.read(tmp_path / "launch.json").ended  # type: ignore[union-attr]


def test_the_guard_loads_the_standard_library_only() -> None:
    script = "import sys; sys.path.append(sys.argv[1]); import tuner.trial.guard; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(ROOT)], capture_output=True, text=True, check=True
    )
    top_level = {name.partition(".")[0] for name in done.stdout.split()}
    foreign = {name for name in top_level if name not in sys.stdlib_module_names}
    assert foreign <= {"tuner", "__main__"}
    assert top_level.isdisjoint({"asyncio", "subprocess", "logging", "typing_extensions"})


def _members(run_dir: Path) -> frozenset[ProcessId]:
    record = LaunchRecord.read(run_dir / "launch.json")
    return frozenset() if record is None else record.members
