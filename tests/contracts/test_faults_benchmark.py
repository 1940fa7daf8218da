"""The fault matrix as a program: what its first Ctrl-C leaves of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuner.trial.proctree import ProcessId, is_alive
from tuner.trial.record import FILE, LaunchRecord

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


def servers_below(folder: Path) -> list[ProcessId]:
    """Servers and guards of the launches that were begun below a folder."""
    records = [record for path in folder.rglob(FILE) if (record := LaunchRecord.read(path)) is not None]
    return [one for record in records for one in (record.guard, record.server) if one is not None]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_the_matrix_and_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.faults", "--only", "crash_serving", "--only", "worker_killed"]
    with subprocess.Popen(
        [*command, "--injections", "500", "--jobs", "2"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    ) as matrix:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not (seen := servers_below(tmp_path)) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert seen
            for _ in range(2):  # impatience changes nothing
                matrix.send_signal(number)
            said, _ = matrix.communicate(timeout=PATIENCE_S)
        finally:
            matrix.kill()
    assert matrix.returncode == 130
    assert "Traceback" not in said
    assert said.count("stopping: what runs is ended") == 1
    assert list(tmp_path.glob("tuner-faults-*")) == []
    assert not [one for one in seen if is_alive(one)]
