"""Launches under tuner's own time limits, and on a core that others use up: what takes seconds by its nature."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.launches import alive, born, eventually, is_gone, rogue_plan
from support.workers import kill, start_worker

from tuner.domain.outcome import Phase
from tuner.trial.deadlines import PhaseDeadlines
from tuner.trial.process import launch
from tuner.trial.watchdog import LaunchFailed, LaunchTrouble, wait_ready

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("cgroup", ["cgroup", "no-cgroup"])
def test_the_whole_tree_ends_within_ten_seconds_of_the_workers_sigkill(tmp_path: Path, cgroup: str) -> None:
    worker, guard = start_worker(tmp_path, "family", cgroup)
    assert eventually(lambda: len(born(tmp_path)) == 5)
    kill(worker)
    began = time.monotonic()
    assert eventually(lambda: alive(tmp_path) == [] and is_gone(guard))
    assert time.monotonic() - began < 10


def test_a_start_that_others_keep_from_the_cpu_is_blamed_on_the_host(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    impatient = PhaseDeadlines(launch_timeout_s=60, silence_s=1.0, learned={Phase.SPAWN: 5.0})
    plan = rogue_plan("", argv=(sys.executable, "-S", "-c", spin))
    hog = [sys.executable, "-S", "-c", spin]
    # Kernels that group processes by session share a core between sessions, however nice a process is.
    hogs = [subprocess.Popen(hog, start_new_session=True) for _ in range(5)]
    try:
        with launch(plan, tmp_path) as server, pytest.raises(LaunchFailed) as failed:
            wait_ready(server, lambda: False, lambda line: None, impatient)
    finally:
        for one in hogs:
            one.kill()
            one.wait()
    assert failed.value.kind is LaunchTrouble.STARVED
    assert "other processes had the CPU" in failed.value.observation
