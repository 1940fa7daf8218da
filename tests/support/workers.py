"""A worker process that launches a server and then does nothing, to be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tuner

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
