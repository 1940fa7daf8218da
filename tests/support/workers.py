"""A worker process that launches a server and then does nothing, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import tuner
from tuner.trial.record import FILE, LaunchRecord

ROOT = Path(tuner.__file__).parents[1]
_PROGRAM = """
import sys, time
from pathlib import Path
from support.launches import rogue_plan
from tuner.trial.process import launch
if sys.argv[3] == "no-cgroup":
    import tuner.trial.cgroup
    tuner.trial.cgroup.create = lambda launch_id: None
server = launch(rogue_plan(sys.argv[2]), Path(sys.argv[1]))
print(server.guard_pid, flush=True)
time.sleep(600)
"""


def start_worker(run_dir: Path, mode: str, cgroup: str = "cgroup") -> tuple[subprocess.Popen[str], int]:
    """A worker whose rogue server runs, and the pid of the server's guard."""
    worker = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(run_dir), mode, cgroup],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    )
    assert worker.stdout is not None
    return worker, int(worker.stdout.readline())


def kill(worker: subprocess.Popen[str]) -> None:
    """SIGKILL, and wait until it is gone."""
    worker.kill()
    worker.wait()
    assert worker.stdout is not None
    worker.stdout.close()


Kill = Callable[[Path, subprocess.Popen[str], int], None]
"""Given a launch's run directory, its worker and the pid of its guard."""


def kill_server(run_dir: Path, worker: subprocess.Popen[str], _guard: int) -> None:
    """The server, and then the worker."""
    record = LaunchRecord.read(run_dir / FILE)
    assert record is not None
    assert record.server is not None
    os.kill(record.server.pid, signal.SIGKILL)
    worker.kill()


def kill_worker(_run_dir: Path, worker: subprocess.Popen[str], _guard: int) -> None:
    """The worker alone; the guard goes on."""
    worker.kill()


def kill_worker_and_guard(_run_dir: Path, worker: subprocess.Popen[str], guard: int) -> None:
    """Both, before the worker can see that the guard is gone."""
    os.kill(worker.pid, signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    worker.kill()


KILLS: tuple[Kill, ...] = (kill_server, kill_worker, kill_worker_and_guard)
"""Whichever process of a launch is killed."""
