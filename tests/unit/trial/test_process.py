"""One launch from start to proof, with real processes that misbehave."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from support.launches import alive, born, eventually, has_written, rogue_plan

from tuner.trial.gpu import GpuHolder, GpuState
from tuner.trial.ports import reserve_ports
from tuner.trial.process import LaunchRefused, launch
from tuner.trial.proctree import ProcessId, find_members, identify
from tuner.trial.record import LaunchRecord


def test_closing_ends_a_quiet_server_and_proves_it(tmp_path: Path) -> None:
    with launch(rogue_plan("quiet"), tmp_path) as server:
        assert eventually(has_written(tmp_path, "mode quiet"))
        assert server.poll() is None
    assert server.proof is not None
    assert server.proof.is_clean
    assert born(tmp_path)
    assert alive(tmp_path) == []


def test_a_server_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    server = launch(rogue_plan("deaf"), tmp_path)
    assert eventually(has_written(tmp_path, "\ndeaf"))
    proof = server.close(grace_s=0.3)
    assert proof.is_clean
    assert server.exit_code == -signal.SIGKILL
    assert proof.seconds >= 0.3


def test_a_stopped_server_hears_sigterm_and_ends_by_itself(tmp_path: Path) -> None:
    server = launch(rogue_plan("quiet"), tmp_path)
    os.kill(server.pid, signal.SIGSTOP)
    assert server.close().is_clean
    assert server.exit_code == -signal.SIGTERM


def test_children_with_new_sessions_and_double_forks_end_with_the_server(tmp_path: Path) -> None:
    with launch(rogue_plan("family"), tmp_path) as server:
        assert eventually(has_written(tmp_path, "family complete"))
        assert eventually(lambda: len(born(tmp_path)) == 5)
        assert {member.pid for member in server.members()} == set(born(tmp_path))
        proof = server.close(grace_s=0.2)
    assert proof.is_clean
    assert alive(tmp_path) == []


@pytest.mark.parametrize("has_cgroup", [True, False])
def test_children_are_ended_by_the_worker_when_the_guard_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_cgroup: bool
) -> None:
    if not has_cgroup:
        monkeypatch.setattr("tuner.trial.cgroup.create", lambda launch_id: None)
    with launch(rogue_plan("family"), tmp_path) as server:
        assert eventually(lambda: len(born(tmp_path)) == 5)
        assert eventually(lambda: {member.pid for member in _recorded(tmp_path).members} >= set(born(tmp_path)))
        os.kill(server.guard_pid, signal.SIGKILL)
        assert eventually(lambda: alive(tmp_path) == [])
        assert eventually(lambda: server.poll() is not None)
    assert server.proof is not None
    assert server.proof.is_clean
    assert any("guard was killed" in note for note in server.proof.notes)


def test_a_server_that_puts_itself_into_the_background_is_not_dead(tmp_path: Path) -> None:
    with launch(rogue_plan("daemon"), tmp_path) as server:
        assert eventually(lambda: server.exit_code == 0)
        assert server.poll() is None
        assert len(server.members()) == 1
        server.close(grace_s=0.2)
    assert alive(tmp_path) == []


def test_a_server_that_fails_is_dead_even_if_a_child_lives_on(tmp_path: Path) -> None:
    with launch(rogue_plan("crash-leaving-child"), tmp_path) as server:
        assert eventually(lambda: server.poll() == 3)
        assert len(alive(tmp_path)) == 1
        server.close(grace_s=0.2)
    assert alive(tmp_path) == []


def test_a_program_that_does_not_exist_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(LaunchRefused, match=r"/no/such/engine: No such file or directory"):
        launch(rogue_plan("quiet", argv=("/no/such/engine",)), tmp_path)
    assert not list(tmp_path.glob("guard.log"))


def test_closing_twice_gives_the_same_proof(tmp_path: Path) -> None:
    server = launch(rogue_plan("quiet"), tmp_path)
    assert server.close() is server.close()


def test_a_port_held_by_a_stranger_is_named_but_not_blamed_on_the_launch(tmp_path: Path) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        proof = launch(rogue_plan("quiet", port=port), tmp_path).close()
    assert [(held.port, held.pid, held.is_foreign) for held in proof.ports] == [(port, os.getpid(), True)]
    assert proof.is_clean


def test_locks_are_kept_by_the_guard_and_not_by_the_server(tmp_path: Path) -> None:
    with reserve_ports(1) as lease, launch(rogue_plan("quiet"), tmp_path, holds=lease.locks) as server:
        marker = str(Path(f"/proc/self/fd/{lease.locks[0].descriptor}").readlink())
        assert marker in _open_files(server.guard_pid)
        assert marker not in _open_files(server.pid)


def test_a_pid_alone_is_never_taken_for_the_process(tmp_path: Path) -> None:
    with launch(rogue_plan("quiet"), tmp_path) as server:
        record = _recorded(tmp_path)
        assert record.server == identify(server.pid)
        reused = dataclasses.replace(record, server=ProcessId(os.getpid(), start=1))
        assert os.getpid() not in {member.pid for member in find_members(reused.marks)}


class _LeakyGpu:
    """A driver whose GPU keeps a gigabyte after the launch."""

    def __init__(self) -> None:
        self.used = 500

    def states(self, indices: object) -> tuple[GpuState, ...]:
        used, self.used = self.used, 1524
        return (GpuState(3, "GPU-x", "fake", used, 80_000, 0, (GpuHolder(4711, 1024),)),)


def test_a_gpu_that_does_not_come_clean_is_reported_with_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.trial.process.GPU_RETURN_S", 0.0)
    proof = launch(rogue_plan("quiet", gpus=(3,)), tmp_path, gpus=_LeakyGpu()).close()
    assert not proof.is_clean
    assert "GPU 3 holds 1524 MiB instead of 500 MiB: pid 4711" in str(proof)


def test_a_launch_can_be_repeated_from_its_script(tmp_path: Path) -> None:
    plan = rogue_plan("environment", env={"SETTING": "a 'quoted' $value"})
    server = launch(plan, tmp_path, caller_env={"PATH": os.environ["PATH"], "NCCL_ALGO": "stray"})
    assert eventually(lambda: server.poll() == 0)
    server.close()
    again = subprocess.run(
        [str(tmp_path / "launch.sh")],
        env={"PATH": os.environ["PATH"], "NCCL_ALGO": "stray"},
        capture_output=True,
        text=True,
        check=True,
    )
    first = (tmp_path / "server.log").read_text().splitlines()
    own = ("TUNER_LAUNCH_ID=", "TMPDIR=")  # its mark, and a folder that is gone by now
    assert [line for line in first if not line.startswith(own)] == again.stdout.splitlines()
    assert "SETTING=a 'quoted' $value" in first
    assert not any(line.startswith("NCCL_ALGO") for line in first)


def test_a_server_that_prints_its_environment_prints_no_secret_into_its_log(tmp_path: Path) -> None:
    server = launch(
        rogue_plan("environment", pass_env=("HF_TOKEN",)), tmp_path, caller_env={"HF_TOKEN": "geheim-geheim"}
    )
    assert eventually(lambda: server.poll() == 0)
    server.close()
    said = (tmp_path / "server.log").read_text()
    assert "HF_TOKEN=***" in said
    assert "geheim-geheim" not in said


def test_the_plan_beside_the_log_is_complete_json(tmp_path: Path) -> None:
    plan = rogue_plan("quiet", env={"A": "1"})
    launch(plan, tmp_path).close()
    written = json.loads((tmp_path / "plan.json").read_text())
    assert (written["engine"], written["env"], written["argv"]) == ("rogue", {"A": "1"}, list(plan.argv))


def _recorded(run_dir: Path) -> LaunchRecord:
    record = LaunchRecord.read(run_dir / "launch.json")
    assert record is not None
    return record


def _open_files(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed: the process has just begun
            found.add(str(entry.readlink()))
    return found
